#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "event/loop.h"
#include "event/pool.h"
#include "fs/watcher.h"
#include "fs_help.h"

struct here {
    struct loop *loop;
    struct pool *pool;
    struct fs_caller *c;
    struct fs_watcher *w;
};

/* Watches the new directory "w" with a queue for three events. */
static struct here watch(bool strict)
{
    struct fs_watcher_options o = {
        .strict = strict, .batch_ms = 1, .queue_bytes = 1000, .event_bytes = 300};
    struct here h = {.c = h_caller()};

    T_INT(mkdir("w", 0755), 0);
    T_INT(loop_new(&h.loop, NULL), 0);
    T_INT(loop_start(h.loop, NULL), 0);
    T_INT(pool_new(&h.pool, NULL), 0);
    o.loop = h.loop;
    o.pool = h.pool;
    T_INT(fs_watcher_new(&o, &h.w, NULL), 0);
    T_INT(fs_watcher_start(h.w, h.c, "w", NULL), 0);
    return h;
}

static void here_done(struct here *h)
{
    fs_watcher_drop(h->w);
    loop_stop(h->loop);
    while (loop_run_posted(h->loop))
        ;
    T_OK(!pool_free(h->pool, 60000));
    loop_free(h->loop);
    h_drop(h->c);
}

static void add_bytes(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    T_OK(fd >= 0 && write(fd, "x", 1) == 1);
    (void)close(fd);
}

/* The type of the next event, or the result without one. */
static int next(struct here *h, bool *ret_is_slow)
{
    struct fs_watcher_event *x = NULL;
    struct err e = {0};
    int type, r = fs_watcher_next(h->w, &x, &e);

    if (r != FS_WATCHER_EVENT)
        return r < 0 ? r : -1000;
    type = (int)x->ev.type;
    *ret_is_slow = x->is_slow;
    fs_watcher_event_free(h->w, x);
    return type;
}

TEST(watcher_merges_a_change_that_repeats_the_last_one_in_its_queue)
{
    struct here h = watch(false);
    bool is_slow;
    int fd = open("w/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    for (int i = 0; i < 5; i++) {
        T_OK(write(fd, "x", 1) == 1);
        fs_watcher_catch_up(h.w);
    }
    T_INT(next(&h, &is_slow), FS_WATCH_CREATED);
    T_INT(next(&h, &is_slow), FS_WATCH_MODIFIED);
    T_INT(next(&h, &is_slow), -1000);
    T_OK(write(fd, "x", 1) == 1);
    fs_watcher_catch_up(h.w);
    T_INT(next(&h, &is_slow), FS_WATCH_MODIFIED);
    (void)close(fd);
    here_done(&h);
}

TEST(watcher_with_a_full_queue_tells_overflow_and_goes_on)
{
    struct here h = watch(false);
    bool is_slow = false;

    for (int i = 0; i < 10; i++) {
        char path[16];

        (void)snprintf(path, sizeof(path), "w/%d", i);
        T_INT(mkdir(path, 0755), 0);
    }
    fs_watcher_catch_up(h.w);
    for (int i = 0; i < 3; i++)
        T_INT(next(&h, &is_slow), FS_WATCH_CREATED);
    T_INT(next(&h, &is_slow), FS_WATCH_OVERFLOW);
    T_OK(is_slow);
    T_INT(next(&h, &is_slow), -1000);
    T_INT(rmdir("w/9"), 0);
    fs_watcher_catch_up(h.w);
    T_INT(next(&h, &is_slow), FS_WATCH_REMOVED);
    here_done(&h);
}

TEST(watcher_that_is_strict_ends_with_a_full_queue)
{
    struct here h = watch(true);
    bool is_slow;

    T_INT(mknod("w/f", S_IFREG | 0644, 0), 0);
    for (int i = 0; i < 10; i++) {
        char path[16];

        (void)snprintf(path, sizeof(path), "w/%d", i);
        T_INT(mkdir(path, 0755), 0);
    }
    fs_watcher_catch_up(h.w);
    T_INT(next(&h, &is_slow), -ERR_EXHAUSTED);
    add_bytes("w/f");
    fs_watcher_catch_up(h.w);
    T_INT(next(&h, &is_slow), -ERR_EXHAUSTED);
    here_done(&h);
}
