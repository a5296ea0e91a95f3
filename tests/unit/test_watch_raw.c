#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/io.h"
#include "fs/watch.h"
#include "fs_help.h"

static struct buf told;

static void on_event(void *arg, const struct fs_watch_event *ev)
{
    static const char letters[] = {
        [FS_WATCH_CREATED] = '+',
        [FS_WATCH_ATTRIBUTES] = 'm',
        [FS_WATCH_MODIFIED] = 'w',
        [FS_WATCH_REMOVED] = '-',
    };
    char letter = ev->type == FS_WATCH_REMOVED && ev->is_moved ? '>' : letters[ev->type];

    (void)arg;
    T_OK(buf_addf(&told, NULL, "%s%c%s", told.len ? " " : "", letter, ev->path) == 0);
}

/* All events as text: "+name wname ...". */
static const char *run(struct fs_watch *n)
{
    enum fs_watch_state state;
    struct err e = {0};

    buf_clear(&told);
    if (fs_watch_run(n, &state, &e) < 0)
        return e.message[0] ? "error" : "no message";
    return told.len ? told.data : "";
}

static struct fs_watch *watch(struct fs_caller *c, const char *dir, bool recursive)
{
    const struct fs_watch_options o = {
        .recursive = recursive, .raw = true, .sink = {.event = on_event}};
    struct fs_watch *n = NULL;
    char path[PATH_MAX];

    buf_init(&told, 16 << 20);
    T_OK(realpath(dir, path));
    T_INT(fs_watch_new(c, path, &o, &n, NULL), 0);
    return n;
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    T_OK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
}

struct here {
    struct fs_root *root;
    struct fs_caller *c;
};

static struct here here_new(void)
{
    struct here h = {0};

    T_INT(fs_root_new("/", &h.root, NULL), 0);
    T_INT(fs_caller_new(h.root, NULL, "/", &h.c, NULL), 0);
    T_INT(mkdir("w", 0755), 0);
    return h;
}

static void here_done(struct here *h, struct fs_watch *n)
{
    fs_watch_free(n);
    fs_caller_unref(h->c);
    fs_root_free(h->root);
    buf_done(&told);
}

TEST(notices_are_the_kernels_one_for_one)
{
    struct here h = here_new();
    struct fs_watch *n = watch(h.c, "w", false);

    put("w/f", "x");
    T_STR(run(n), "+f wf");
    T_INT(chmod("w/f", 0600), 0);
    T_INT(rename("w/f", "w/g"), 0);
    T_INT(mkdir("w/d", 0755), 0);
    put("w/d/unseen", "x");
    T_INT(unlink("w/g"), 0);
    T_STR(run(n), "mf >f +g +d -g");
    T_STR(run(n), "");
    T_INT(chmod("w", 0700), 0);
    T_INT(rename("w", "v"), 0);
    T_STR(run(n), "m. >.");
    put("v/x", "");
    T_STR(run(n), ""); /* its path is unknown */
    here_done(&h, n);
}

TEST(notices_of_a_new_tree_come_once_and_then_as_it_changes)
{
    struct here h = here_new();
    struct fs_watch *n = watch(h.c, "w", true);

    T_INT(mkdir("w/a", 0755), 0);
    T_INT(mkdir("w/a/b", 0755), 0);
    put("w/a/b/f", "x");
    put("w/a/b/empty", "");
    T_STR(run(n), "+a +a/b +a/b/empty +a/b/f wa/b/f");
    put("w/a/b/f", "y");
    T_STR(run(n), "wa/b/f");
    T_INT(unlink("w/a/b/f"), 0);
    T_INT(unlink("w/a/b/empty"), 0);
    T_INT(rmdir("w/a/b"), 0);
    T_STR(run(n), "-a/b/f -a/b/empty -a/b");
    put("w/a/b", "now a file");
    T_STR(run(n), "+a/b wa/b");
    here_done(&h, n);
}

/* Later events in it, before it was read, are no events of the watched tree. */
TEST(notices_of_a_directory_that_has_moved_out_are_not_told)
{
    struct here h = here_new();
    struct fs_watch *n;

    T_INT(mkdir("w/a", 0755), 0);
    T_INT(mkdir("w/a/b", 0755), 0);
    n = watch(h.c, "w", true);
    T_INT(rename("w/a", "out"), 0);
    put("out/b/f", "x");
    T_INT(mkdir("out/b/c", 0755), 0);
    T_STR(run(n), ">a");
    put("out/b/f", "y");
    T_STR(run(n), "");
    T_INT(rename("out", "w/back"), 0);
    T_STR(run(n), "+back +back/b +back/b/c +back/b/f wback/b/f");
    put("w/back/b/c/f", "x");
    T_STR(run(n), "+back/b/c/f wback/b/c/f");
    here_done(&h, n);
}

TEST(notices_follow_a_directory_that_moves_within)
{
    struct here h = here_new();
    struct fs_watch *n;

    T_INT(mkdir("w/a", 0755), 0);
    T_INT(mkdir("w/a/b", 0755), 0);
    T_INT(mkdir("w/z", 0755), 0);
    n = watch(h.c, "w", true);
    T_INT(rename("w/a", "w/z/a2"), 0);
    put("w/z/a2/b/f", "x");
    T_STR(run(n), ">a +z/a2 +z/a2/b/f wz/a2/b/f");
    T_INT(mkdir("w/empty", 0755), 0);
    T_INT(rename("w/z/a2", "w/empty"), 0); /* over another */
    put("w/empty/b/g", "");
    /* The first reading of "empty" finds the entries that were made since. */
    T_STR(run(n), "+empty +empty/b +empty/b/f wempty/b/f +empty/b/g >z/a2 +empty");
    T_INT(rename("w/empty", "w/1"), 0);
    T_INT(rename("w/1", "w/2"), 0);
    T_INT(rename("w/z", "w/2/b/z"), 0);
    put("w/2/b/z/h", "");
    T_STR(run(n), ">empty +1 >1 +2 >z +2/b/z +2/b/z/h");
    T_INT(rename("w/2/b", "tmp"), 0); /* replaces the file that had the name */
    T_INT(rename("w/2", "gone"), 0);
    T_INT(rename("tmp", "w/2"), 0);
    put("w/2/z/i", "");
    T_STR(run(n), ">2/b >2 +2 +2/f w2/f +2/g +2/z +2/z/h +2/z/i");
    put("w/2/z/j", "");
    T_STR(run(n), "+2/z/j");
    here_done(&h, n);
}

TEST(notices_that_the_kernel_dropped_are_an_error)
{
    struct here h = here_new();
    struct fs_watch *n = watch(h.c, "w", false);
    char *text = NULL;
    size_t len = 0;
    int max;

    T_INT(io_read_file(AT_FDCWD, "/proc/sys/fs/inotify/max_queued_events", 64, &text, &len, NULL),
          0);
    max = (int)strtol(text, NULL, 10);
    free(text);
    if (max > 100000)
        t_skip("the queue of inotify is too long to fill");
    for (int i = 0; i <= max; i += 2) {
        put("w/f", "");
        T_INT(unlink("w/f"), 0);
    }
    T_STR(run(n), "error");
    here_done(&h, n);
}

TEST(notices_begin_only_where_there_is_a_directory)
{
    const struct fs_watch_options o = {.raw = true, .sink = {.event = on_event}};
    struct here h = here_new();
    struct fs_watch *n = NULL;
    struct err e = {0};

    T_INT(fs_watch_new(h.c, "/nowhere", &o, &n, &e), -ERR_NOT_FOUND);
    T_OK(fs_watch_new(h.c, "/proc/version", &o, &n, &e) < 0);
    here_done(&h, NULL);
}
