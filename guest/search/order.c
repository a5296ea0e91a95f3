#include "search/order.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/str.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/path.h"

#define PATHS_MAX_BYTES (64u * 1024 * 1024)

struct order_item {
    struct tree_entry entry; /* its paths are set by replay_item() */
    size_t at;               /* of the path below the root */
};

struct collection {
    const struct order *order;
    const struct tree_access *access;
    const struct tree_visitor *v;
    struct notes *notes;
    pthread_mutex_t lock;
    struct order_item *items; /* guarded by lock, as all below */
    size_t n, cap;
    struct buf paths;
};

static int64_t ns_of(struct timespec ts)
{
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t key_of(enum order_by by, const struct stat *st)
{
    switch (by) {
    case ORDER_MODIFIED:
        return ns_of(st->st_mtim);
    case ORDER_ACCESSED:
        return ns_of(st->st_atim);
    case ORDER_CHANGED:
        return ns_of(st->st_ctim);
    case ORDER_SIZE:
        return (int64_t)st->st_size;
    case ORDER_NONE:
    case ORDER_PATH:
    default:
        return 0;
    }
}

static int add_item(struct collection *c, const struct tree_entry *entry, int64_t key,
                    struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&c->lock);
    size_t at = c->paths.len, max = ORDER_MAX_BYTES / sizeof(*c->items);
    int r;

    if (c->n == max)
        return err_field(e, ERR_EXHAUSTED, "sort", "more than %zu entries are too many to sort",
                         max);
    r = array_grow(&c->items, &c->cap, c->n + 1, max, e);
    if (r == 0)
        r = buf_add(&c->paths, entry->below, entry->below_len + 1, e);
    if (r == -ERR_EXHAUSTED)
        return err_at(e, r, "sort");
    if (r < 0)
        return r;
    c->items[c->n] = (struct order_item){.entry = *entry, .at = at};
    c->items[c->n].entry.key = key;
    c->n++;
    return 0;
}

static int collect_entry(void *arg, unsigned worker, const struct tree_entry *entry, struct err *e)
{
    struct collection *c = arg;
    struct stat st = {0};
    int r;

    if (c->v->wants && !c->v->wants(c->v->arg, worker, entry))
        return 0;
    if (c->order->by != ORDER_PATH) {
        r = tree_entry_stat(entry, c->access, &st);
        if (r < 0) {
            notes_add_errno(c->notes, entry->path, -r);
            return 0;
        }
    }
    return add_item(c, entry, key_of(c->order->by, &st), e);
}

static bool collect_is_gone(void *arg)
{
    const struct collection *c = arg;

    return c->v->is_gone && c->v->is_gone(c->v->arg);
}

static int compare_places(const struct order *o, int64_t key_a, const char *a, int64_t key_b,
                          const char *b)
{
    int c = key_a < key_b ? -1 : key_a > key_b ? 1 : path_compare(a, b);

    return o->reverse ? -c : c;
}

static int compare_items(const void *a, const void *b, void *arg)
{
    const struct collection *c = arg;
    const struct order_item *x = a, *y = b;

    return compare_places(c->order, x->entry.key, c->paths.data + x->at, y->entry.key,
                          c->paths.data + y->at);
}

/* Whether the caller has had the item already. */
static bool is_past(const struct collection *c, const struct order_item *item)
{
    const struct order_place *after = &c->order->after;
    int cmp;

    if (!after->below)
        return false;
    cmp = compare_places(c->order, item->entry.key, c->paths.data + item->at, after->key,
                         after->below);
    return cmp < 0 || (cmp == 0 && !c->order->with_after);
}

struct names {
    int rootfd;
    const struct tree_options *o;
    struct buf shown, whole;
};

static int join_path(struct buf *b, const char *dir, const char *below, struct err *e)
{
    size_t n = strlen(dir);
    int r;

    buf_clear(b);
    r = buf_add(b, dir, n, e);
    if (r == 0 && n && dir[n - 1] != '/')
        r = buf_add(b, "/", 1, e);
    return r < 0 ? r : buf_adds(b, below, e);
}

static int replay_item(struct collection *c, struct order_item *item, struct names *names,
                       struct err *e)
{
    struct tree_entry *entry = &item->entry;
    int r;

    entry->below = c->paths.data + item->at;
    r = join_path(&names->shown, names->o->shown, entry->below, e);
    if (r == 0)
        r = join_path(&names->whole, names->o->whole, entry->below, e);
    if (r < 0)
        return r;
    entry->path = names->shown.data;
    entry->path_len = names->shown.len;
    entry->whole = names->whole.data;
    entry->dirfd = names->rootfd;
    entry->name = entry->below;
    return c->v->visit(c->v->arg, 0, entry, e);
}

static int replay_items(struct collection *c, int rootfd, const struct tree_options *o,
                        struct err *e)
{
    struct names names = {.rootfd = rootfd, .o = o};
    int r = 0;

    buf_init(&names.shown, PATHS_MAX_BYTES);
    buf_init(&names.whole, PATHS_MAX_BYTES);
    for (size_t i = 0; r == 0 && i < c->n; i++) {
        if (is_past(c, &c->items[i]))
            continue;
        if (collect_is_gone(c))
            r = err_set(e, ERR_CANCELED, "the search was canceled");
        else
            r = replay_item(c, &c->items[i], &names, e);
    }
    buf_done(&names.shown);
    buf_done(&names.whole);
    return r;
}

static int walk_tree(int rootfd, const struct tree_options *o, const struct tree_access *access,
                     const struct tree_visitor *v, struct notes *notes, struct err *e)
{
    struct tree *t;
    int r = tree_new(rootfd, o, access, notes, &t, e);

    if (r < 0)
        return r;
    r = tree_walk(t, v, e);
    tree_free(t);
    return r;
}

int order_walk(int rootfd, const struct tree_options *o, const struct order *order,
               const struct tree_access *access, const struct tree_visitor *v, struct notes *notes,
               struct err *e)
{
    struct collection c = {.order = order, .access = access, .v = v, .notes = notes};
    const struct tree_visitor collector = {
        .visit = collect_entry, .is_gone = collect_is_gone, .arg = &c};
    struct tree_options with = *o;
    int r;

    with.sort = order->by == ORDER_PATH && !order->reverse;
    with.after = with.sort ? order->after.below : NULL;
    with.with_after = order->with_after;
    if (with.sort || order->by == ORDER_NONE)
        return walk_tree(rootfd, &with, access, v, notes, e);
    (void)pthread_mutex_init(&c.lock, NULL);
    buf_init(&c.paths, ORDER_MAX_BYTES);
    r = walk_tree(rootfd, &with, access, &collector, notes, e);
    if (r == 0) {
        if (c.n)
            qsort_r(c.items, c.n, sizeof(*c.items), compare_items, &c);
        r = replay_items(&c, rootfd, o, e);
    }
    buf_done(&c.paths);
    free(c.items);
    (void)pthread_mutex_destroy(&c.lock);
    return r;
}

/* ---- cursors: "1:fingerprint:key:skip:path", in base64 ---- */

#define CURSOR_MAX_BYTES (16 * 1024)

uint64_t order_fingerprint(const char *text, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a: only to tell requests apart by accident */

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return h;
}

int order_cursor_new(uint64_t fingerprint, const struct order_place *last, uint64_t skip,
                     char **ret, struct err *e)
{
    _cleanup_buf_ struct buf plain = {.max = CURSOR_MAX_BYTES};
    char *text;
    int r = buf_addf(&plain, e, "1:%" PRIx64 ":%" PRId64 ":%" PRIu64 ":%s", fingerprint, last->key,
                     skip, last->below);

    if (r < 0)
        return r;
    text = calloc(1, B64_LEN(plain.len) + 1);
    if (!text)
        return err_oom(e);
    b64_encode(plain.data, plain.len, text);
    *ret = text;
    return 0;
}

int order_cursor_read(const char *cursor, uint64_t fingerprint, struct order_place *ret,
                      uint64_t *ret_skip, struct err *e)
{
    size_t len = strlen(cursor), n;
    _cleanup_free_ char *plain = malloc(len / 4 * 3 + 1);
    uint64_t found, skip;
    int64_t key;
    int path_at = 0;
    char *below;

    if (!plain)
        return err_oom(e);
    if (len <= B64_LEN(CURSOR_MAX_BYTES) && b64_decode(cursor, len, plain, &n, NULL) == 0) {
        plain[n] = '\0';
        if (strlen(plain) != n ||
            sscanf(plain, "1:%" SCNx64 ":%" SCNd64 ":%" SCNu64 ":%n", &found, &key, &skip,
                   &path_at) != 3 ||
            found != fingerprint)
            path_at = 0;
    }
    if (!path_at)
        return err_field(e, ERR_INVALID, "cursor", "no cursor of this search");
    below = strdup(plain + path_at);
    if (!below)
        return err_oom(e);
    *ret = (struct order_place){below, key};
    *ret_skip = skip;
    return 0;
}
