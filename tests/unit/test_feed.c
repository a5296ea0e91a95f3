#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "fs/inotify_feed.h"
#include "event/loop.h"

#define MASK (IN_CREATE | IN_DELETE | IN_MODIFY | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF)

struct all {
    struct loop *loop;
    struct fs_feeds *feeds;
    struct fs_feed *own[FEED_OWN_MAX];
};

/* From here on new feeds share inotify instances. */
static struct all all_new(void)
{
    struct all a = {0};

    T_INT(loop_new(&a.loop, NULL), 0);
    T_INT(loop_start(a.loop, NULL), 0);
    T_INT(fs_feeds_new(a.loop, &a.feeds, NULL), 0);
    for (size_t i = 0; i < FEED_OWN_MAX; i++)
        T_INT(fs_feed_new(a.feeds, 0, &a.own[i], NULL), 0);
    return a;
}

static void all_done(struct all *a)
{
    for (size_t i = 0; i < FEED_OWN_MAX; i++)
        fs_feed_free(a->own[i]);
    loop_stop(a->loop);
    loop_free(a->loop);
    fs_feeds_free(a->feeds);
}

/*
 * Each feed takes an instance with the fewest feeds: the first and the last of 2 * FEED_SHARED_MAX
 * share one.
 */
static void share(struct all *a, struct fs_feed **v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        T_INT(fs_feed_new(a->feeds, 0, &v[i], NULL), 0);
}

static int add(struct fs_feed *f, const char *path, uint32_t mask)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int wd = fs_feed_add(f, fd, mask | IN_ONLYDIR);

    T_OK(fd >= 0 && wd > 0);
    (void)close(fd);
    return wd;
}

static void put(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    T_OK(fd >= 0 && write(fd, "x", 1) == 1);
    (void)close(fd);
}

/* All events as text: "1+name 1wname". */
static const char *told(struct fs_feed *f)
{
    _Alignas(struct inotify_event) static char raw[600]; /* few at a time */
    static struct buf out;
    ssize_t n;

    out.max = 16 << 20;
    buf_clear(&out);
    T_OK(buf_adds(&out, "", NULL) == 0);
    while ((n = fs_feed_read(f, raw, sizeof(raw))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *ev = (const void *)(raw + at);
            char kind = ev->mask & IN_CREATE       ? '+'
                        : ev->mask & IN_MODIFY     ? 'w'
                        : ev->mask & IN_DELETE     ? '-'
                        : ev->mask & IN_MOVED_FROM ? '>'
                        : ev->mask & IN_MOVED_TO   ? '<'
                        : ev->mask & IN_IGNORED    ? '.'
                        : ev->mask & IN_Q_OVERFLOW ? '!'
                                                   : '?';

            at += (ssize_t)(sizeof(*ev) + ev->len);
            T_OK(buf_addf(&out, NULL, "%s%d%c%s", out.len ? " " : "", ev->wd, kind,
                          ev->len ? ev->name : "") == 0);
        }
    }
    return out.data;
}

TEST(feeds_that_share_are_told_what_each_asked_for)
{
    struct all a = all_new();
    struct fs_feed *f[2 * FEED_SHARED_MAX];
    struct fs_feed *first, *second;

    T_INT(mkdir("d", 0755), 0);
    T_INT(mkdir("e", 0755), 0);
    share(&a, f, 2 * FEED_SHARED_MAX);
    for (size_t i = 0; i < FEED_SHARED_MAX; i++) {
        T_INT(add(f[i], "d", MASK), 1);
        T_INT(add(f[i], "e", MASK), 2);
        T_INT(add(f[i], "d", MASK), 1);
    }
    put("d/before");
    for (size_t i = FEED_SHARED_MAX; i < 2 * FEED_SHARED_MAX; i++)
        T_INT(add(f[i], "d", IN_DELETE), 1);
    T_INT(rename("d/before", "e/x"), 0);
    put("e/x");
    put("e/x");
    T_INT(unlink("e/x"), 0);
    put("d/y");
    T_INT(unlink("d/y"), 0);
    for (size_t i = 0; i < FEED_SHARED_MAX; i++)
        T_STR(told(f[i]), "1+before 1wbefore 1>before 2<x 2wx 2-x 1+y 1wy 1-y");
    for (size_t i = FEED_SHARED_MAX; i < 2 * FEED_SHARED_MAX; i++)
        T_STR(told(f[i]), "1-y");
    first = f[0];
    second = f[2 * FEED_SHARED_MAX - 1];
    /*
     * A watch that one feed drops stays with the others; when the feed adds it again, it is a new
     * watch.
     */
    put("d/z");
    fs_feed_rm(first, 1);
    fs_feed_rm(first, 1);
    T_INT(add(first, "d", MASK), 3);
    T_INT(unlink("d/z"), 0);
    T_STR(told(first), "1+z 1wz 1. 3-z");
    T_STR(told(second), "1-z");
    T_INT(rmdir("e"), 0);
    T_STR(told(first), "2? 2.");
    T_STR(told(second), "");
    for (size_t i = 0; i < 2 * FEED_SHARED_MAX; i++)
        fs_feed_free(f[i]);
    all_done(&a);
}

/* The test reads nothing: the loop does. */
TEST(feed_that_shares_says_that_it_can_be_read)
{
    struct all a = all_new();
    struct pollfd p = {.events = POLLIN};
    struct fs_feed *f;

    T_INT(mkdir("d", 0755), 0);
    share(&a, &f, 1);
    T_INT(add(f, "d", MASK), 1);
    p.fd = fs_feed_fd(f);
    for (int i = 0; i < 3; i++) {
        T_INT(poll(&p, 1, 0), 0);
        put("d/f");
        T_INT(poll(&p, 1, 20000), 1);
        T_STR(told(f), i ? "1wf" : "1+f 1wf");
    }
    fs_feed_free(f);
    all_done(&a);
}

TEST(feed_that_nobody_reads_overflows_alone)
{
    struct all a = all_new();
    struct fs_feed *f[2 * FEED_SHARED_MAX];
    struct fs_feed *still, *reader;
    char names[2][240] = {"d/1", "d/2"};
    size_t seen = 0;

    T_INT(mkdir("d", 0755), 0);
    share(&a, f, 2 * FEED_SHARED_MAX);
    still = f[0];
    reader = f[2 * FEED_SHARED_MAX - 1];
    for (int i = 0; i < 2; i++) {
        memset(names[i] + 3, 'n', sizeof(names[i]) - 4);
        put(names[i]);
    }
    T_INT(add(still, "d", IN_CREATE | IN_ATTRIB), 1);
    T_INT(add(reader, "d", IN_CREATE | IN_ATTRIB), 1);
    for (size_t n = 0; n < FEED_QUEUE_BYTES + 100000; n += sizeof(names[0])) {
        T_INT(chmod(names[n / sizeof(names[0]) % 2], 0644), 0);
        if (n % (100 * sizeof(names[0])) == 0)
            seen += strlen(told(reader)) > 0;
    }
    T_OK(seen > 0 && !strchr(told(reader), '!'));
    T_STR(strrchr(told(still), ' '), " -1!");
    T_INT(mkdir("d/more", 0755), 0);
    T_STR(told(still), "1+more");
    for (size_t i = 0; i < 2 * FEED_SHARED_MAX; i++)
        fs_feed_free(f[i]);
    all_done(&a);
}

/* Also after the loop has stopped. */
TEST(feeds_may_be_freed_in_any_order)
{
    struct all a = all_new();
    struct fs_feed *f[3 * FEED_SHARED_MAX];
    char path[16];

    share(&a, f, 3 * FEED_SHARED_MAX);
    for (int d = 0; d < 100; d++) {
        (void)snprintf(path, sizeof(path), "d%d", d);
        T_INT(mkdir(path, 0755), 0);
        for (size_t i = 0; i < 3 * FEED_SHARED_MAX; i++)
            T_INT(add(f[i], path, MASK), d + 1);
    }
    for (size_t i = 0; i < 3 * FEED_SHARED_MAX; i += 2)
        f[i] = fs_feed_free(f[i]);
    put("d7/f");
    T_STR(told(f[1]), "8+f 8wf");
    loop_stop(a.loop);
    for (size_t i = 1; i < 3 * FEED_SHARED_MAX; i += 2)
        f[i] = fs_feed_free(f[i]);
    all_done(&a);
}
