#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#define DEFAULT_WAIT_MS (2 * 60 * 1000)

struct args {
    int64_t keep_ms;
    uint16_t port;
    bool all, force;
};

#define O(name, letter, type, member, arg, help) \
    { \
        name, letter, type, offsetof(struct args, member), arg, help, NULL \
    }

static const char *time_left(const struct bh_box_info *i, char *out, size_t n)
{
    int64_t left = i->deadline_ms - clock_real_ms();

    if (!i->deadline_ms || i->state != BH_STATE_RUNNING)
        return "-";
    return str_format_duration(left > 0 ? left : 0, out, n);
}

/* ---- ls ---- */

struct list {
    struct cli *cli;
    struct cli_table *table;
    json_t *json;
};

static int add_box(void *arg, struct bh_box *box)
{
    struct list *l = arg;
    const struct bh_box_info *i = bh_box_info(box);
    char age[32], left[32];

    if (l->cli->json) {
        json_t *v = json_loads(i->json, JSON_ALLOW_NUL, NULL);

        (void)json_array_append_new(l->json, v ? v : cli_box_json(i));
        return 0;
    }
    if (l->cli->quiet) {
        (void)puts(i->name);
        return 0;
    }
    cli_table_add(l->table,
                  (const char *const[]){
                      i->name, bh_state_name(i->state), i->provider, i->agent_name,
                      str_format_duration(clock_real_ms() - i->created_ms, age, sizeof(age)),
                      time_left(i, left, sizeof(left)), *i->agent_url ? i->agent_url : "-", NULL});
    return 0;
}

static int run_ls(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"NAME", "STATE",     "PROVIDER", "AGENT",
                                        "AGE",  "TIME LEFT", "URL",      NULL};
    struct list l = {.cli = c, .json = json_array()};
    int r;

    (void)args;
    (void)operands;
    if (!c->json && !c->quiet)
        l.table = cli_table_new(heads);
    r = bh_list(c->ctx, add_box, &l, err);
    cli_table_print_free(l.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "boxes", l.json));
    json_decref(l.json);
    return r;
}

const struct cli_command cmd_ls = {
    .name = "ls",
    .group = "Boxes",
    .operands = "",
    .summary = "list the boxes",
    .examples = "  bellhop ls\n"
                "  bellhop ls -q      # only the names\n"
                "  bellhop ls --json\n",
    .run = run_ls,
};

/* ---- status ---- */

static void print_value(const char *key, json_t *v, int indent)
{
    const char *name;
    json_t *item;
    size_t i;

    if (json_is_object(v)) {
        (void)printf("%*s%s\n", indent, "", key);
        json_object_foreach (v, name, item)
            print_value(name, item, indent + 2);
        return;
    }
    (void)printf("%*s%-*s ", indent, "", 24 - indent, key);
    if (json_is_string(v))
        (void)fputs(cli_text(json_string_value(v)), stdout);
    else if (json_is_boolean(v))
        (void)fputs(json_is_true(v) ? "yes" : "no", stdout);
    else if (json_is_integer(v))
        (void)printf("%" PRId64, (int64_t)json_integer_value(v));
    else if (json_is_null(v))
        (void)fputs("unknown", stdout);
    else if (json_is_array(v) && !json_array_size(v))
        (void)fputs("none", stdout);
    json_array_foreach (v, i, item) {
        if (json_is_string(item))
            (void)printf("%s%s", i ? ", " : "", cli_text(json_string_value(item)));
    }
    (void)fputc('\n', stdout);
}

static void print_labels(json_t *labels)
{
    const char *key;
    json_t *v;
    unsigned n = 0;

    json_object_foreach (labels, key, v)
        (void)printf("%-24s %s=%s\n", n++ ? "" : "labels", key, json_string_value(v));
}

/* What it is for, where that is known. */
static void print_project(json_t *project)
{
    static const char *const keys[] = {"path", "remote"};
    static const char *const heads[] = {"project path", "project remote"};

    for (size_t i = 0; i < N_ELEMENTS(keys); i++) {
        json_t *v = json_object_get(project, keys[i]);

        if (!v || (json_is_string(v) && !json_string_length(v)))
            continue;
        (void)printf("%-24s ", heads[i]);
        cli_print_bytes(v);
        (void)fputc('\n', stdout);
    }
}

static void print_status(const struct bh_box_info *i, json_t *whole, json_t *enforced)
{
    char created[CLOCK_TEXT_BYTES], since[CLOCK_TEXT_BYTES], left[32];
    const char *key;
    json_t *v;

    clock_text(i->created_ms, created);
    clock_text(i->state_since_ms, since);
    (void)printf("%-24s %s\n", "name", i->name);
    (void)printf("%-24s %s\n", "id", i->id);
    (void)printf("%-24s %s since %s%s%s\n", "state", bh_state_name(i->state), since,
                 *i->cause ? ": " : "", cli_text(i->cause));
    (void)printf("%-24s %s\n", "time left", time_left(i, left, sizeof(left)));
    (void)printf("%-24s %s\n", "created", created);
    (void)printf("%-24s %s\n", "provider", i->provider);
    (void)printf("%-24s %s\n", "image", i->image);
    (void)printf("%-24s %s\n", "project", i->workdir);
    print_project(json_object_get(whole, "project"));
    (void)printf("%-24s %s%s%s\n", "agent", i->agent_name, *i->agent_version ? " " : "",
                 cli_text(i->agent_version));
    if (*i->agent_url)
        (void)printf("%-24s %s\n", "agent url", i->agent_url);
    (void)printf("%-24s %s\n", "guest socket", i->guest_socket);
    print_labels(json_object_get(whole, "labels"));
    if (!enforced)
        return;
    (void)fputs("\nWhat the kernel says is enforced:\n", stdout);
    json_object_foreach (enforced, key, v)
        print_value(key, v, 2);
}

static int run_status(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *text = NULL;
    const struct bh_box_info *i;
    json_t *enforced = NULL, *whole;
    int r = cli_get_box(c, operands[0], &box, err);

    (void)args;
    if (r < 0)
        return r;
    if (bh_box_info(box)->state == BH_STATE_RUNNING) {
        r = bh_inspect(box, &text, err);
        if (r < 0)
            return r;
        enforced = json_loads(text, JSON_ALLOW_NUL, NULL);
    }
    i = bh_box_info(box);
    whole = json_loads(i->json, JSON_ALLOW_NUL, NULL);
    if (!whole)
        whole = cli_box_json(i);
    if (!c->json) {
        print_status(i, whole, enforced);
        json_decref(whole);
        json_decref(enforced);
        return EXIT_CLI_OK;
    }
    (void)json_object_set_new(whole, "enforced", enforced ? enforced : json_null());
    return cli_print_json_take(whole);
}

const struct cli_command cmd_status = {
    .name = "status",
    .group = "Boxes",
    .operands = "NAME",
    .summary = "show a box, and what is really enforced on it",
    .details =
        "User namespace, seccomp, capabilities, limits and network are read back from the\n"
        "kernel, not from what was asked for. The disk's limit is kept by the kernel where its\n"
        "file system has project quotas; else the box's monitor counts what the box has written,\n"
        "and stops it (disk_limited_by).",
    .examples = "  bellhop status api\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_status,
};

/* ---- start, stop, rm ---- */

/* One line or document for each box that an action was done to. */
static int report(struct cli *c, const char *name, const char *what, json_t *list)
{
    if (c->json)
        return json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "state", what));
    if (!c->quiet)
        (void)printf("%s: %s\n", name, what);
    return 0;
}

static int each_box(struct cli *c, char **names, const char *what,
                    int (*fn)(struct bh_box *box, int64_t timeout_ms, struct bh_error *err),
                    bool missing_ok, struct bh_error *err)
{
    json_t *list = json_array();
    int r = 0;

    for (; r == 0 && *names; names++) {
        _cleanup_box_ struct bh_box *box = NULL;

        r = cli_get_box(c, *names, &box, err);
        if (r == -BH_NOT_FOUND && missing_ok) {
            r = 0;
            continue;
        }
        if (r == 0)
            r = fn(box, DEFAULT_WAIT_MS, err);
        if (r == 0)
            r = report(c, *names, what, list);
    }
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "boxes", list));
    json_decref(list);
    return r;
}

static int run_start(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    return each_box(c, operands, "running", bh_start, false, err);
}

static int run_stop(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    (void)args;
    return each_box(c, operands, "stopped", bh_stop, false, err);
}

static int run_rm(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;

    return each_box(c, operands, "removed", bh_destroy, a->force, err);
}

const struct cli_command cmd_start = {
    .name = "start",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "start stopped boxes, with their agents",
    .examples = "  bellhop start api\n",
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX,
    .run = run_start,
};

const struct cli_command cmd_stop = {
    .name = "stop",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "end everything that runs in boxes; their disks stay",
    .details =
        "Any command on a stopped box starts it again. It stays until 'bellhop rm' removes it:\n"
        "neither time nor 'bellhop gc' does, unless gc is given --stopped-for.",
    .examples = "  bellhop stop api\n",
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX,
    .run = run_stop,
};

static const struct cli_option rm_options[] = {
    O("force", 'f', CLI_FLAG, force, NULL, "a box that is not there is no error"),
    {0},
};

const struct cli_command cmd_rm = {
    .name = "rm",
    .group = "Boxes",
    .operands = "NAME...",
    .summary = "remove boxes and everything in them, without a trace",
    .examples = "  bellhop rm api\n",
    .options = rm_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX,
    .run = run_rm,
};

/* ---- keep, url ---- */

static const struct cli_option keep_options[] = {
    O("for", 0, CLI_DURATION, keep_ms, "TIME", "at least so long from now, such as 2h"),
    {0},
};

static int run_keep(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    int64_t deadline_ms = 0;
    char text[CLOCK_TEXT_BYTES];
    int r;

    if (a->keep_ms <= 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "for", "say for how long: --for 2h");
    r = cli_get_box(c, operands[0], &box, err);
    if (r == 0)
        r = bh_extend(box, a->keep_ms, &deadline_ms, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(
            json_pack("{s:s, s:I}", "name", operands[0], "deadline_ms", (json_int_t)deadline_ms));
    clock_text(deadline_ms, text);
    (void)printf("%s lives until %s\n", operands[0], text);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_keep = {
    .name = "keep",
    .group = "Boxes",
    .operands = "NAME --for TIME",
    .summary = "let a box live longer",
    .details =
        "A box's time is never made shorter. While the box is used it is prolonged by itself:\n"
        "  a command that runs, attached or detached (exec -d, and those started by other "
        "programs);\n"
        "  calls of the box's agent, by bellhop or on its socket; a connection to one of its "
        "ports;\n"
        "  a hold; a coding agent that works, and whatever else keeps the processor busy.\n"
        "Not use: an idle shell, a server that nobody talks to, a coding agent that waits, and\n"
        "questions such as ls, status and activity.",
    .examples = "  bellhop keep api --for 2h\n",
    .options = keep_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_keep,
};

static const struct cli_option url_options[] = {
    O("port", 'p', CLI_U16, port, "PORT", "of this port in the box (default: the agent's)"),
    {0},
};

/* The agent's URL is there while the box runs: a stopped one is started, as by any command. */
static int agent_url(struct cli *c, struct bh_box *box, char **ret, struct bh_error *err)
{
    const struct bh_box_info *i = bh_box_info(box);
    bool has_agent = strcmp(i->agent_name, "none") != 0;
    int r = 0;

    if (has_agent && i->state != BH_STATE_RUNNING) {
        r = c->no_resume ? cli_fail(err, BH_FAILED_PRECONDITION, "state", "the box '%s' is %s",
                                    i->name, bh_state_name(i->state))
                         : bh_start(box, DEFAULT_WAIT_MS, err);
        i = bh_box_info(box);
    }
    if (r < 0)
        return r;
    if (!*i->agent_url)
        return cli_fail(err, BH_FAILED_PRECONDITION, "port",
                        "the agent of '%s' has no URL; name a port of the box: --port 8080",
                        i->name);
    *ret = strdup(i->agent_url);
    return *ret ? 0 : cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
}

static int run_url(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *url = NULL;
    int r = cli_get_box(c, operands[0], &box, err);

    if (r < 0)
        return r;
    r = a->port ? bh_get_url(box, a->port, &url, err) : agent_url(c, box, &url, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "url", url));
    (void)puts(url);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_url = {
    .name = "url",
    .group = "Work",
    .operands = "NAME",
    .summary = "print a local URL for a port in a box",
    .details = "The port is reached over this machine's loopback only.",
    .examples = "  bellhop url api               # the coding agent's\n"
                "  curl \"$(bellhop url api -p 8080)\"\n",
    .options = url_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX,
    .run = run_url,
};
