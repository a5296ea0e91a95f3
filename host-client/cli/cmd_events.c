#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#define FOLLOW_MS 200
#define CAUSE_CHARS 180 /* of a line; --json has all of it */

struct args {
    const char *since;
    bool follow;
};

struct events {
    struct cli *cli;
    int64_t since; /* of the last event that was taken */
    int64_t after; /* events up to this one are taken, but not printed */
    char box_id[40];
    bool by_box;
    bool is_over; /* the box is destroyed: it has no more events */
    json_t *json; /* NULL: each event is printed as it comes */
};

static void print_box_event(const struct bh_event *e, bool by_box)
{
    _cleanup_free_ char *cause = str_clamp(e->cause, CAUSE_CHARS);
    char when[CLOCK_TEXT_BYTES];

    clock_text(e->time_ms, when);
    (void)printf("%" PRId64 "\t%s\t", by_box ? e->seq : e->position, when);
    if (!by_box)
        (void)printf("%s\t", cli_text(*e->box_name ? e->box_name : e->box_id));
    if (strcmp(e->kind, "state") == 0)
        (void)printf("%s", bh_state_name(e->after));
    else
        (void)printf("%s", cli_text(e->kind));
    (void)printf("\t%s\t%s\n", cli_text(e->actor), cause ? cli_text(cause) : "");
}

static int take_event(void *arg, const struct bh_event *e)
{
    struct events *v = arg;

    v->since = v->by_box ? e->seq : e->position;
    v->is_over = v->by_box && e->after == BH_STATE_DESTROYED;
    (void)snprintf(v->box_id, sizeof(v->box_id), "%s", e->box_id);
    if (v->since <= v->after)
        return 0;
    if (v->json)
        return json_array_append_new(v->json, json_loads(e->json, JSON_ALLOW_NUL, NULL)) < 0;
    if (v->cli->json)
        cli_puts_json(e->json);
    else
        print_box_event(e, v->by_box);
    return fflush(stdout) != 0;
}

/* A box of an older store may have no events yet. */
static int find_box_id(struct cli *c, const char *name, struct events *v, struct bh_error *err)
{
    struct bh_box *box = NULL;
    int r = bh_get(c->ctx, name, &box, err);

    if (r == 0)
        (void)snprintf(v->box_id, sizeof(v->box_id), "%s", bh_box_info(box)->id);
    (void)bh_box_free(box);
    return r;
}

/* Lists the new events again and again, until the box is destroyed or the call is canceled. The name
 * may become another box's meanwhile: the box is followed by its id. */
static int follow_events(struct cli *c, struct bh_event_options *o, struct events *v,
                         struct bh_error *err)
{
    struct pollfd cancel = {.fd = c->opts.cancel_fd, .events = POLLIN};
    int r = v->by_box && !*v->box_id ? find_box_id(c, o->box, v, err) : 0;

    if (v->by_box)
        o->box = v->box_id;
    while (r == 0 && !v->is_over) {
        if (poll(&cancel, 1, FOLLOW_MS) > 0)
            return cli_fail(err, BH_CANCELED, "", "canceled");
        o->since = v->since;
        r = bh_list_events(c->ctx, o, take_event, v, err);
    }
    return r;
}

static int run_events(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct bh_event_options o = {.size = sizeof(o), .box = operands[0]};
    struct events v = {.cli = c, .by_box = operands[0] != NULL};
    struct err e = {0};
    int r;

    if (a->since && str_parse_i64(a->since, 0, INT64_MAX, &o.since, &e) < 0)
        return cli_fail(err, BH_INVALID_ARGUMENT, "since", "since: %s", e.message);
    v.after = v.since = o.since;
    if (a->follow && v.by_box)
        o.since = v.since = 0; /* all, to learn whether the last one is the box's end */
    if (c->json && !a->follow)
        v.json = json_array();
    r = bh_list_events(c->ctx, &o, take_event, &v, err);
    if (r == 0 && a->follow)
        r = follow_events(c, &o, &v, err);
    if (r == 0 && v.json)
        return cli_print_json_take(json_pack("{s:o}", "events", v.json));
    json_decref(v.json);
    return r;
}

static const struct cli_option events_options[] = {
    CLI_OPT("since", 0, CLI_STR, since, "N", "only those after event N"),
    CLI_OPT("follow", 'f', CLI_FLAG, follow, NULL,
            "go on as more happens; with NAME, until the box is destroyed"),
    {0},
};

const struct cli_command cmd_events = {
    .name = "events",
    .group = "Boxes",
    .operands = "[NAME]",
    .summary = "show what happened to a box, or to all, also to those that are gone",
    .details =
        "One line for each change of a state: its number, time, the new state, who caused it,\n"
        "and why, in up to 180 characters. The numbers of one box count from 1; without NAME they\n"
        "are those of all boxes, and a column names the box. NAME may also be the id of a box. "
        "With\n"
        "--json one document, which has all of it; with --json and --follow one document a line.\n"
        "The events of a box are kept as long as its record: 30 days after its end, or\n"
        "$BELLHOP_RECORDS_FOR.",
    .examples = "  bellhop events api\n"
                "  bellhop events -f --since 12 api   # go on after event 12\n"
                "  bellhop events --json | jq '.events[] | select(.after == \"error\")'\n",
    .options = events_options,
    .args_bytes = sizeof(struct args),
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_events,
};
