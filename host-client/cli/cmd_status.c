#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"

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

/* Prints the project's path and remote, if they are known. */
static void print_status_project(json_t *project)
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

static void print_keys(json_t *keys)
{
    json_t *key;
    size_t i;

    json_array_foreach (keys, i, key) {
        (void)printf("%-24s ", i ? "" : "keys");
        cli_print_bytes(key);
        (void)fputc('\n', stdout);
    }
}

/* A limit, a time or a word; "-" for 0, which is the provider's own. */
static const char *option_text(json_t *v, const char *unit, char *out, size_t size)
{
    uint64_t n = (uint64_t)json_integer_value(v);

    if (json_is_string(v))
        return *json_string_value(v) ? cli_text(json_string_value(v)) : "-";
    if (!n)
        return "-";
    if (*unit == 'm')
        return str_format_duration((int64_t)n, out, size);
    if (*unit == 'b')
        (void)snprintf(out, size, "%" PRIu64 "M", n >> 20);
    else if (*unit)
        (void)snprintf(out, size, "%.15g", (double)n / 1000);
    else
        (void)snprintf(out, size, "%" PRIu64, n);
    return out;
}

/* Prints the options and their sources, if `up` recorded them; then what else was set. */
static void print_sources(json_t *whole)
{
    static const struct {
        const char *option, *key, *unit; /* milliseconds, bytes, thousandths */
    } rows[] = {
        {"provider", "provider", ""},
        {"image", "image", ""},
        {"runtime", "runtime", ""},
        {"network", "network", ""},
        {"privilege", "privilege", ""},
        {"timeout", "timeout_ms", "ms"},
        {"on-timeout", "on_timeout", ""},
        {"idle", "idle_ms", "ms"},
        {"on-idle", "on_idle", ""},
        {"on-gone", "on_gone", ""},
        {"cpus", "cpu_millis", "thousandths"},
        {"memory", "memory_bytes", "bytes"},
        {"disk", "disk_bytes", "bytes"},
        {"pids", "pids", ""},
    };
    _cleanup_json_ json_t *sources = json_deep_copy(json_object_get(whole, "sources"));
    const char *name;
    json_t *source;

    if (!json_is_object(sources))
        return;
    (void)fputs("\nWhere the options came from:\n", stdout);
    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        json_t *v = json_object_get(json_object_get(whole, "options"), rows[i].key);
        const char *from = json_string_value(json_object_get(sources, rows[i].option));
        char text[40];

        (void)printf("  %-14s %-18s %s\n", rows[i].option,
                     option_text(v ? v : json_object_get(whole, rows[i].key), rows[i].unit, text,
                                 sizeof(text)),
                     from ? cli_text(from) : "built-in");
        (void)json_object_del(sources, rows[i].option);
    }
    json_object_foreach (sources, name, source)
        (void)printf("  %-14s %-18s %s\n", cli_text(name), "", cli_text(json_string_value(source)));
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
    (void)printf("%-24s %s\n", "time left", cli_time_left(i, left, sizeof(left)));
    (void)printf("%-24s %s\n", "created", created);
    (void)printf("%-24s %s\n", "provider", i->provider);
    (void)printf("%-24s %s\n", "image", i->image);
    (void)printf("%-24s %s\n", "project", i->workdir);
    print_status_project(json_object_get(whole, "project"));
    (void)printf("%-24s %s%s%s\n", "agent", i->agent_name, *i->agent_version ? " " : "",
                 cli_text(i->agent_version));
    if (*i->agent_url)
        (void)printf("%-24s %s\n", "agent url", i->agent_url);
    (void)printf("%-24s %s\n", "guest socket", i->guest_socket);
    v = json_object_get(json_object_get(whole, "snapshot"), "name");
    if (v)
        (void)printf("%-24s %s\n", "last snapshot", json_string_value(v));
    print_labels(json_object_get(whole, "labels"));
    print_keys(json_object_get(whole, "keys"));
    print_sources(whole);
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
    struct bh_error why = {0};
    int exit_status, r = bh_get(c->ctx, operands[0], &box, err);

    (void)args;
    if (r < 0)
        return r;
    if (bh_box_info(box)->state == BH_STATE_RUNNING) {
        r = bh_inspect(box, &text, &why);
        if (r == -BH_CANCELED) {
            *err = why;
            return r;
        }
        enforced = r < 0 ? NULL : json_loads(text, JSON_ALLOW_NUL, NULL);
    }
    exit_status = why.code ? cli_exit_for(&why) : EXIT_CLI_OK;
    i = bh_box_info(box);
    whole = json_loads(i->json, JSON_ALLOW_NUL, NULL);
    if (!whole)
        whole = cli_box_json(i);
    if (!c->json) {
        print_status(i, whole, enforced);
        if (why.code)
            (void)printf("\nWhat is enforced is not known: %s\n", cli_text(why.message));
        json_decref(whole);
        json_decref(enforced);
        return exit_status;
    }
    (void)json_object_set_new(whole, "enforced", enforced ? enforced : json_null());
    if (why.code)
        (void)json_object_set_new(whole, "error", cli_error_json(&why));
    r = cli_print_json_take(whole);
    return exit_status == EXIT_CLI_OK ? r : exit_status;
}

const struct cli_command cmd_status = {
    .name = "status",
    .group = "Boxes",
    .operands = "NAME",
    .summary = "show a box, and what is really enforced on it",
    .details =
        "User namespace, seccomp, capabilities, limits and network are read back from the kernel,\n"
        "not taken from the request. The kernel enforces the disk limit if the file system has\n"
        "project quotas; otherwise the box's monitor counts the bytes written, and stops a box "
        "that\n"
        "exceeds the limit (disk_limited_by). Where they cannot be read, because the box's engine "
        "does\n"
        "not answer, the rest is shown with the reason (error), and the exit status is its own.",
    .examples = "  bellhop status api\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_status,
};
