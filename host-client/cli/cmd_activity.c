/* cmd_system: activity, hold, release, ports, wait-port, ready: what goes on in a box. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/str.h"

#define HOLD_ID_BYTES 129

struct args {
    int64_t for_ms, timeout_ms;
    const char *reason, *id, *path;
};

#define O(name, letter, type, member, arg, help) \
    { \
        name, letter, type, offsetof(struct args, member), arg, help, NULL \
    }

/* ---- activity ---- */

static void print_holds(json_t *holds)
{
    json_t *hold;
    size_t i;

    json_array_foreach (holds, i, hold) {
        json_t *reason = json_object_get(hold, "reason");
        char left[32];

        const char *id = json_string_value(json_object_get(hold, "id"));

        (void)printf("hold %s for another %s%s%s\n", cli_text(id ? id : ""),
                     str_format_duration(json_integer_value(json_object_get(hold, "expires_in_ms")),
                                         left, sizeof(left)),
                     json_string_length(reason) ? ": " : "",
                     json_is_string(reason) ? cli_text(json_string_value(reason)) : "");
    }
}

static void print_activity(const struct bh_activity *a)
{
    json_t *whole = json_loads(a->json, JSON_ALLOW_NUL, NULL);
    char idle[32];

    if (a->busy)
        (void)printf("busy: %s\n", cli_text(a->reasons));
    else
        (void)printf("idle for %s\n", str_format_duration(a->idle_ms, idle, sizeof(idle)));
    (void)printf("%u commands, %u open calls, %u connections", a->commands, a->calls,
                 a->connections);
    if (a->cpu_ms >= 0)
        (void)printf(", %.1f s of processor time in %.1f s", (double)a->cpu_ms / 1000,
                     (double)a->cpu_window_ms / 1000);
    (void)putchar('\n');
    print_holds(json_object_get(whole, "holds"));
    json_decref(whole);
}

static int run_activity(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    struct bh_activity a = {.size = sizeof(a)};
    int r = cli_get_box(c, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_activity(box, &a, err);
    if (r < 0)
        return r;
    if (c->json)
        cli_puts_json(a.json);
    else
        print_activity(&a);
    free(a.json);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_activity = {
    .name = "activity",
    .group = "Work",
    .operands = "NAME",
    .summary = "say whether a box is in use, and by what",
    .details =
        "Commands that run, open calls, connections to its ports, processor time and holds.\n"
        "Asking does not count as use.",
    .examples = "  bellhop activity api\n"
                "  bellhop activity --json api | jq .busy\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_activity,
};

/* ---- hold, release ---- */

static int run_hold(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_hold_options o = {
        .size = sizeof(o), .id = a->id, .reason = a->reason, .ttl_ms = a->for_ms};
    _cleanup_box_ struct bh_box *box = NULL;
    char id[HOLD_ID_BYTES];
    int r = cli_get_box(c, operands[0], &box, err);

    if (r == 0)
        r = bh_hold_take(box, &o, id, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "id", id));
    (void)puts(cli_text(id));
    return EXIT_CLI_OK;
}

static const struct cli_option hold_options[] = {
    O("for", 'f', CLI_DURATION, for_ms, "TIME", "how long at most (default: 10m; at most 24h)"),
    O("reason", 'r', CLI_STR, reason, "TEXT", "shown by activity"),
    O("id", 0, CLI_STR, id, "ID", "its name; taken again, it is renewed"),
    {0},
};

const struct cli_command cmd_hold = {
    .name = "hold",
    .group = "Work",
    .operands = "NAME",
    .summary = "have a box count as used for a while; prints the hold's id",
    .details = "It does not stop for want of use until the hold is released or its time is over.\n"
               "What works in the box does the same with 'bellhopd hold'.",
    .examples = "  bellhop hold api --for 2h --reason 'waiting for review'\n"
                "  bellhop release api ID\n",
    .options = hold_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_hold,
};

static int run_release(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    int r = cli_get_box(c, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_hold_release(box, operands[1], err);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:s}", "released", operands[1]));
    return r;
}

const struct cli_command cmd_release = {
    .name = "release",
    .group = "Work",
    .operands = "NAME ID",
    .summary = "end a hold on a box",
    .examples = "  bellhop release api $(bellhop hold api)\n",
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX,
    .run = run_release,
};

/* ---- ports ---- */

struct ports {
    struct cli_table *table;
};

static int add_port(void *arg, const struct bh_port *p)
{
    struct ports *ports = arg;
    char number[8], connections[16], process[80];

    if (p->is_agent)
        return 0;
    (void)snprintf(number, sizeof(number), "%u", (unsigned)p->port);
    (void)snprintf(connections, sizeof(connections), "%u", p->connections);
    (void)snprintf(process, sizeof(process), p->pid ? "%.60s (%d)" : "-", p->process, p->pid);
    cli_table_add(ports->table, (const char *const[]){
                                    number, p->protocol, p->address, p->reachable ? "yes" : "no",
                                    connections, process, *p->command ? p->command : "-", NULL});
    return 0;
}

static int run_ports(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"PORT",        "PROTOCOL", "ADDRESS", "REACHABLE",
                                        "CONNECTIONS", "PROCESS",  "COMMAND", NULL};
    _cleanup_box_ struct bh_box *box = NULL;
    struct ports ports = {0};
    json_t *reply = NULL;
    int r = cli_get_box(c, operands[0], &box, err);

    (void)args;
    if (r == 0 && c->json) {
        r = cli_call_take(box, "System/Ports", json_object(), &reply, err);
        return r < 0 ? r : cli_print_json_take(reply);
    }
    if (r == 0)
        ports.table = cli_table_new(heads);
    if (r == 0)
        r = bh_ports(box, add_port, &ports, err);
    cli_table_print_free(ports.table, c->tty_out);
    return r;
}

const struct cli_command cmd_ports = {
    .name = "ports",
    .group = "Work",
    .operands = "NAME",
    .summary = "list what listens in a box",
    .details = "REACHABLE: 'bellhop url --port' leads there. COMMAND is the id that ps shows.",
    .examples = "  bellhop ports api\n"
                "  bellhop url api --port 3000\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_ports,
};

/* ---- wait-port ---- */

static int run_wait_port(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_wait_port_options o = {
        .size = sizeof(o), .timeout_ms = a->timeout_ms, .path = a->path, .exec_id = a->id};
    _cleanup_box_ struct bh_box *box = NULL;
    struct err e = {0};
    uint64_t port = 0;
    int status = 0;
    int r = str_parse_u64(operands[1], 1, UINT16_MAX, &port, &e);

    if (r < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "port", "the port %s", e.message);
    o.port = (uint16_t)port;
    r = cli_get_box(c, operands[0], &box, err);
    if (r == 0)
        r = bh_wait_port(box, &o, &status, err);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:i, s:o}", "port", (int)port, "status",
                                             status ? json_integer(status) : json_null()));
    return r;
}

static const struct cli_option wait_port_options[] = {
    O("timeout", 't', CLI_DURATION, timeout_ms, "TIME", "wait no longer: status 6 (default: 30s)"),
    O("path", 'p', CLI_STR, path, "PATH", "ask for this by HTTP until the status is below 400"),
    O("id", 0, CLI_STR, id, "ID", "give up when this command ends without it: status 4"),
    {0},
};

const struct cli_command cmd_wait_port = {
    .name = "wait-port",
    .group = "Work",
    .operands = "NAME PORT",
    .summary = "wait until something listens on a port in a box",
    .examples = "  id=$(bellhop exec -d api -- npm run dev)\n"
                "  bellhop wait-port api 3000 --id $id && bellhop url api --port 3000\n"
                "  bellhop wait-port api 8080 --path /health --timeout 2m\n",
    .options = wait_port_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX,
    .run = run_wait_port,
};

/* ---- ready ---- */

static const char *state_of_tool(bool ok, bool required, const char *error)
{
    if (ok)
        return "ok";
    if (error && !strstr(error, "not found"))
        return "fails";
    return required ? "missing" : "not there";
}

static void print_ready(const struct cli *c, const char *report)
{
    static const char *const heads[] = {"TOOL", "STATE", "VERSION", NULL};
    json_t *whole = json_loads(report, JSON_ALLOW_NUL, NULL), *tool;
    struct cli_table *t = cli_table_new(heads);
    size_t i;

    json_array_foreach (json_object_get(whole, "tools"), i, tool) {
        bool ok = json_is_true(json_object_get(tool, "ok"));
        bool required = json_is_true(json_object_get(tool, "required"));
        const char *name = json_string_value(json_object_get(tool, "name"));
        const char *text = json_string_value(json_object_get(tool, ok ? "version" : "error"));

        cli_table_add(t,
                      (const char *const[]){name, state_of_tool(ok, required, text), text, NULL});
    }
    cli_table_print_free(t, c->tty_out);
    json_decref(whole);
}

static int run_ready(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *report = NULL;
    int r = cli_get_box(c, operands[0], &box, err);

    (void)args;
    if (r == 0)
        r = bh_ready(box, &report, err);
    if (report && c->json) {
        cli_puts_json(report);
        return r < 0 ? cli_exit_for(err) : EXIT_CLI_OK;
    }
    if (report && !c->quiet)
        print_ready(c, report);
    return r;
}

const struct cli_command cmd_ready = {
    .name = "ready",
    .group = "Work",
    .operands = "NAME",
    .summary = "run every tool that a box promises, and say which work",
    .details = "Ends with 4 when one that is required does not run.",
    .examples = "  bellhop ready api\n"
                "  bellhop ready --json api | jq .tools\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_ready,
};
