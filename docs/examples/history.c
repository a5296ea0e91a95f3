/* history: gets the box of a key, removes it, and tells what became of it: its events, its record,
 * and the typed error.
 *     cc history.c -o history -lbellhop && ./history STATE_DIR CACHE_DIR PROVIDER KEY */
#include <bellhop/bellhop.h>
#include <stdio.h>
#include <string.h>

static int print_event(void *arg, const struct bh_event *e)
{
    (void)arg;
    printf("%lld %s, by %s%s%s\n", (long long)e->seq, bh_state_name(e->after), e->actor,
           *e->cause ? ": " : "", e->cause);
    return 0;
}

static int print_record(void *arg, const struct bh_record *r)
{
    (void)arg;
    printf("record: %s, %s, %s, times %s, logs %s, transcript %s\n", r->provider, r->cause,
           r->exit_signal == 9 ? "killed" : "ended",
           r->created_ms <= r->used_ms && r->used_ms <= r->destroyed_ms ? "in order" : "wrong",
           *r->logs ? "kept" : "none", r->transcript ? r->transcript : "none");
    return 0;
}

static int tell(struct bh_ctx *ctx, const char *provider, const char *key, struct bh_error *e)
{
    struct bh_create_options create = {.size = sizeof(create), .provider = provider, .key = key};
    struct bh_event_options events = {.size = sizeof(events)};
    struct bh_box *box = NULL, *same = NULL, *none = NULL;
    struct bh_gone gone = {.size = sizeof(gone)};
    char id[40];
    int r = bh_create(ctx, &create, &box, e);

    if (r == 0)
        r = bh_get_by_key(ctx, key, &same, e);
    if (r < 0)
        return r;
    (void)snprintf(id, sizeof(id), "%s", bh_box_info(box)->id);
    printf("one box: %s\n", strcmp(id, bh_box_info(same)->id) == 0 ? "yes" : "no");
    r = bh_destroy(box, 0, e);
    events.box = id;
    if (r == 0)
        r = bh_list_events(ctx, &events, print_event, NULL, e);
    if (r == 0)
        r = bh_list_records(ctx, print_record, NULL, e);
    if (r == 0 && bh_start(same, 0, e) < 0 && bh_error_gone(e, &gone))
        printf("gone: %s, %s, %s\n", strcmp(gone.id, id) == 0 ? "the same box" : "another",
               gone.provider, gone.cause);
    if (bh_get_by_key(ctx, key, &none, e) < 0)
        printf("the key is free: %s, %s\n", bh_code_name(e->code),
               bh_error_gone(e, NULL) ? "gone" : "unknown");
    (void)bh_box_free(same);
    (void)bh_box_free(box);
    return r;
}

int main(int argc, char **argv)
{
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_error e;
    struct bh_ctx *ctx = NULL;
    int r;

    if (argc != 5)
        return 2;
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    opts.actor = "the example";
    r = bh_open(&opts, &ctx, &e);
    if (r == 0)
        r = tell(ctx, argv[3], argv[4], &e);
    if (r < 0)
        fprintf(stderr, "%s: %s\n", bh_code_name(e.code), e.message);
    (void)bh_close(ctx);
    return r < 0;
}
