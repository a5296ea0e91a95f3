#include "lib/box/gc_foreign.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/box/history.h"
#include "lib/box/store.h"
#include "lib/box/store_other.h"
#include "lib/provider/freezer.h"
#include "lib/provider/provider.h"

#define LABELS_MAX 1024
#define PIDS_SHOWN 4
#define PROC_BYTES (64 * 1024) /* of one file of a process */
#define LINE_BYTES 512
/* A box that is being made or removed may be without a row, a group or processes for a moment: what
 * is reported was so at two looks. */
#define AGAIN_MS 1000

struct label {
    char id[BOX_ID_BYTES];
    char group[FREEZER_NAME_BYTES]; /* "": none was seen */
    char *state_dir;                /* of its store; NULL: nothing on this machine tells */
    pid_t pids[PIDS_SHOWN];
    size_t n_pids;
};

struct look {
    struct bh_ctx *ctx;
    char own_id[BOX_ID_BYTES]; /* of the box that gc itself runs in; "": none */
    struct label labels[LABELS_MAX];
    size_t n;
};

static struct look *look_free(struct look *l)
{
    for (size_t i = 0; l && i < l->n; i++)
        free(l->labels[i].state_dir);
    free(l);
    return NULL;
}

/* group "": that of whatever group the box has. NULL: there are too many. */
static struct label *find_label(struct look *l, const char *id, const char *group)
{
    struct label *label;

    for (size_t i = 0; i < l->n; i++)
        if (strncmp(l->labels[i].id, id, BOX_ID_BYTES - 1) == 0 &&
            (!*group || str_eq(l->labels[i].group, group)))
            return &l->labels[i];
    if (l->n == LABELS_MAX)
        return NULL;
    label = &l->labels[l->n++];
    (void)snprintf(label->id, sizeof(label->id), "%.16s", id);
    (void)snprintf(label->group, sizeof(label->group), "%s", group);
    return label;
}

/* The store that a process names must be the one of the group's mark. */
static void set_state_dir(struct label *label, const char *dir, size_t len)
{
    char name[FREEZER_NAME_BYTES];
    char *copy = label->state_dir || !len || *dir != '/' ? NULL : strndup(dir, len);

    if (!copy)
        return;
    freezer_name(copy, label->id, name);
    if (*label->group && !str_eq(label->group, name))
        free(copy);
    else
        label->state_dir = copy;
}

/* ---- processes ---- */

/* Up to PROC_BYTES of /proc/PID/NAME, and a NUL. */
static char *read_proc(pid_t pid, const char *name, size_t *ret_len)
{
    _cleanup_close_ int fd = -1;
    _cleanup_free_ char *text = malloc(PROC_BYTES + 1);
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    fd = text ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || io_read_full(fd, text, PROC_BYTES, ret_len, NULL) < 0)
        return NULL;
    text[*ret_len] = '\0';
    return TAKE(text);
}

/* The box's group that the process is in, or below. */
static bool read_group(pid_t pid, char group[FREEZER_NAME_BYTES], char id[BOX_ID_BYTES])
{
    size_t len = 0;
    _cleanup_free_ char *text = read_proc(pid, "cgroup", &len);

    for (const char *p = text; p && (p = strstr(p, ":/")); p++) {
        size_t n = 1 + strcspn(p + 2, "/\n");

        if (n >= FREEZER_NAME_BYTES)
            continue;
        (void)snprintf(group, FREEZER_NAME_BYTES, "%.*s", (int)n, p + 1);
        if (freezer_group_id(group, id))
            return true;
    }
    group[0] = '\0';
    return false;
}

/* The value of an entry of NUL-terminated ones that begins so; NULL: there is none. */
static const char *find_entry(const char *list, size_t len, const char *prefix)
{
    for (size_t i = 0; list && i < len; i += strlen(list + i) + 1)
        if (str_has_prefix(list + i, prefix))
            return list + i + strlen(prefix);
    return NULL;
}

static bool read_mark(pid_t pid, char id[BOX_ID_BYTES])
{
    size_t len = 0;
    _cleanup_free_ char *text = read_proc(pid, "environ", &len);
    const char *value = find_entry(text, len, PROVIDER_MARK_ENV "=");

    if (!value || !ctx_is_box_id(value))
        return false;
    (void)snprintf(id, BOX_ID_BYTES, "%s", value);
    return true;
}

/* The argument after this one. */
static const char *next_argument(const char *list, size_t len, const char *option)
{
    for (size_t i = 0; list && i < len; i += strlen(list + i) + 1)
        if (str_eq(list + i, option) && i + strlen(option) + 1 < len)
            return list + i + strlen(option) + 1;
    return NULL;
}

static struct label *take_process(struct look *l, pid_t pid, const char *argv, size_t len)
{
    char group[FREEZER_NAME_BYTES] = "", id[BOX_ID_BYTES] = "";
    const char *of = next_argument(argv, len, "--id");
    const char *dir = next_argument(argv, len, "--state-dir");
    struct label *label;

    if (of && dir && ctx_is_box_id(of)) /* a monitor */
        (void)snprintf(id, sizeof(id), "%s", of);
    else if (!read_group(pid, group, id) && !read_mark(pid, id))
        return NULL;
    label = find_label(l, id, group);
    if (!label)
        return NULL;
    if (label->n_pids < PIDS_SHOWN)
        label->pids[label->n_pids] = pid;
    label->n_pids++;
    return label;
}

/* Every "/DIR/boxes/ID" in the text, for labels of which only the id is known. */
static void take_paths(struct look *l, const char *text, size_t len)
{
    static const char boxes[] = "/boxes/";

    for (const char *p = text; p && (p = memmem(p, len - (size_t)(p - text), boxes, 7)); p += 7) {
        const char *begin = p;

        if (!ctx_has_box_id(p + 7))
            continue;
        while (begin > text && !iscntrl((unsigned char)begin[-1]) && begin[-1] != '=' &&
               begin[-1] != ' ')
            begin--;
        for (size_t i = 0; i < l->n; i++)
            if (strncmp(l->labels[i].id, p + 7, BOX_ID_BYTES - 1) == 0)
                set_state_dir(&l->labels[i], begin, (size_t)(p - begin));
    }
}

static void name_store(struct look *l, pid_t pid, bool is_labelled)
{
    size_t len = 0, n_mounts = 0;
    _cleanup_free_ char *argv = read_proc(pid, "cmdline", &len);
    _cleanup_free_ char *mounts = is_labelled ? read_proc(pid, "mountinfo", &n_mounts) : NULL;
    const char *dir = next_argument(argv, len, "--state-dir");
    const char *of = next_argument(argv, len, "--id");
    char link[64], cwd[4096];
    ssize_t n;

    for (size_t i = 0; dir && of && i < l->n; i++)
        if (str_eq(l->labels[i].id, of))
            set_state_dir(&l->labels[i], dir, strlen(dir));
    take_paths(l, argv, len);
    take_paths(l, mounts, n_mounts); /* the box's own directory, as its file system has it */
    (void)snprintf(link, sizeof(link), "/proc/%d/cwd", (int)pid);
    n = is_labelled ? readlink(link, cwd, sizeof(cwd) - 1) : -1;
    if (n > 0) {
        cwd[n] = '\0';
        take_paths(l, cwd, (size_t)n);
    }
}

/* ---- a look ---- */

static void each_process(struct look *l, void (*fn)(struct look *l, pid_t pid))
{
    _cleanup_closedir_ DIR *d = opendir("/proc");

    for (struct dirent *de; d && (de = readdir(d));) {
        uint64_t pid;

        if (str_parse_u64(de->d_name, 2, INT32_MAX, &pid, NULL) == 0)
            fn(l, (pid_t)pid);
    }
}

static void find_process(struct look *l, pid_t pid)
{
    size_t len = 0;
    _cleanup_free_ char *argv = read_proc(pid, "cmdline", &len);

    if (argv)
        (void)take_process(l, pid, argv, len);
}

static void find_store_of(struct look *l, pid_t pid)
{
    bool is_labelled = false;

    for (size_t i = 0; i < l->n; i++)
        for (size_t j = 0; j < l->labels[i].n_pids && j < PIDS_SHOWN; j++)
            is_labelled = is_labelled || l->labels[i].pids[j] == pid;
    name_store(l, pid, is_labelled);
}

static int look_around(struct bh_ctx *ctx, struct look **ret, struct err *e)
{
    _cleanup_strv_ char **groups = NULL;
    struct look *l = calloc(1, sizeof(*l));
    char id[BOX_ID_BYTES];
    int r = l ? freezer_list(&groups, e) : err_oom(e);

    if (r < 0) {
        (void)look_free(l);
        return r;
    }
    l->ctx = ctx;
    (void)read_mark(getpid(), l->own_id);
    for (char **g = groups; g && *g; g++)
        if (freezer_group_id(*g, id))
            (void)find_label(l, id, *g);
    each_process(l, find_process);
    if (l->n)
        each_process(l, find_store_of);
    for (size_t i = 0; i < l->n; i++) /* a group with this store's mark, without processes */
        if (*l->labels[i].group)
            set_state_dir(&l->labels[i], ctx->state_dir, strlen(ctx->state_dir));
    *ret = l;
    return 0;
}

/* ---- whose it is ---- */

static bool is_of_own_store(const struct look *l, const struct label *label)
{
    char name[FREEZER_NAME_BYTES];
    struct record_row record = {0};
    struct box_row row = {0};
    int r;

    if (str_eq(label->id, l->own_id))
        return true;
    freezer_name(l->ctx->state_dir, label->id, name);
    if (*label->group && !str_eq(label->group, name))
        return false;
    r = store_get(l->ctx->store, label->id, &row, NULL);
    if (r == -ERR_NOT_FOUND && *label->group) /* the sweeps end a group that has a record */
        r = store_find_record(l->ctx->store, "id", label->id, &record, NULL);
    box_row_done(&row);
    record_row_done(&record);
    return r != -ERR_NOT_FOUND; /* in doubt, it is */
}

/* NULL: a store owns it. */
static const char *why_foreign(const struct look *l, const struct label *label)
{
    if (is_of_own_store(l, label))
        return NULL;
    if (!label->state_dir)
        return "of a store that nothing here names";
    switch (store_other_find(label->state_dir, label->id)) {
    case STORE_OTHER_LACKS:
        return "whose store does not know it";
    case STORE_OTHER_GONE:
        return "whose store is gone";
    case STORE_OTHER_HAS:
    case STORE_OTHER_CLOSED:
        break;
    }
    return NULL;
}

static void report_label(const struct gc_foreign *gc, const struct label *label, const char *why)
{
    char line[LINE_BYTES], pids[128] = "no processes";
    size_t n = 0;

    for (size_t i = 0; i < label->n_pids && i < PIDS_SHOWN; i++)
        n += (size_t)snprintf(pids + n, sizeof(pids) - n, "%s%d", i ? ", " : "processes ",
                              (int)label->pids[i]);
    if (label->n_pids > PIDS_SHOWN)
        (void)snprintf(pids + n, sizeof(pids) - n, " and %zu more", label->n_pids - PIDS_SHOWN);
    (void)snprintf(line, sizeof(line), "not ours, kept: the box %s %s%s%.200s%s: %s%s%s%s",
                   label->id, why, label->state_dir ? " ('" : "",
                   label->state_dir ? label->state_dir : "", label->state_dir ? "')" : "",
                   *label->group ? "control group '" : "", label->group, *label->group ? "', " : "",
                   pids);
    str_make_utf8(line);
    gc->report(gc->arg, line);
}

static size_t count_foreign(const struct look *l)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        n += why_foreign(l, &l->labels[i]) != NULL;
    return n;
}

int gc_report_foreign(const struct gc_foreign *gc, struct err *e)
{
    struct look *first = NULL, *second = NULL;
    int r = look_around(gc->ctx, &first, e);

    if (r == 0 && count_foreign(first)) {
        (void)poll(NULL, 0, AGAIN_MS);
        r = look_around(gc->ctx, &second, e);
    }
    for (size_t i = 0; r == 0 && second && i < second->n; i++) {
        struct label *now = &second->labels[i];
        const char *why = why_foreign(second, now);

        for (size_t j = 0; why && j < first->n; j++)
            if (str_eq(first->labels[j].id, now->id) &&
                str_eq(first->labels[j].group, now->group) &&
                why_foreign(first, &first->labels[j])) {
                report_label(gc, now, why);
                break;
            }
    }
    (void)look_free(first);
    (void)look_free(second);
    return r;
}
