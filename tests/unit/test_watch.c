#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#define T_ALARM_S 300 /* thousands of directories on a busy machine */
#include "test.h"

#include "fs_help.h"

#include "common/clock.h"
#include "fs/sys.h"
#include "fs/watch.h"
#include "fs/watch_own.h"

static struct err e;

/*
 * ---- a client that does what it is told --------------------------------------------------------
 */

#define MAX_ENTRIES 4096

struct entry {
    char *path;
    bool is_dir;
};

struct model {
    struct entry v[MAX_ENTRIES];
    size_t n;
    unsigned overflows, renames, unwatched;
    int last_error;
    char said[65536]; /* "+dir/ +file -file a>b ~mod =written @attr ..." */
    bool gone;
    const char *exclude;
};

static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static void model_drop(struct model *m, const char *path)
{
    for (size_t i = 0; i < m->n;) {
        if (is_below(m->v[i].path, path)) {
            free(m->v[i].path);
            m->v[i] = m->v[--m->n];
        } else {
            i++;
        }
    }
}

static void model_set(struct model *m, const char *path, bool is_dir)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->v[i].path, path) == 0) {
            if (m->v[i].is_dir == is_dir)
                return;
            model_drop(m, path);
            break;
        }
    T_OK(m->n < MAX_ENTRIES);
    m->v[m->n++] = (struct entry){strdup(path), is_dir};
}

static void model_rename(struct model *m, const char *from, const char *to, bool is_dir)
{
    size_t n = strlen(from);

    model_drop(m, to);
    for (size_t i = 0; i < m->n; i++) {
        char *moved;

        if (!is_below(m->v[i].path, from))
            continue;
        T_OK(asprintf(&moved, "%s%s", to, m->v[i].path + n) > 0);
        free(m->v[i].path);
        m->v[i].path = moved;
    }
    model_set(m, to, is_dir);
}

static void model_read(struct model *m, const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *de;
    char path[PATH_MAX];
    struct stat st;

    while (d && (de = readdir(d))) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, de->d_name);
        if (lstat(path, &st) < 0)
            continue;
        model_set(m, path, S_ISDIR(st.st_mode));
        if (S_ISDIR(st.st_mode))
            model_read(m, path);
    }
    if (d)
        closedir(d);
}

static void say(struct model *m, const struct fs_watch_event *ev)
{
    static const char signs[] = "+->~=@!?";
    size_t n = strlen(m->said);

    if (ev->type == FS_WATCH_RENAMED)
        snprintf(m->said + n, sizeof(m->said) - n, "%s>%s%s ", ev->from, ev->path,
                 ev->is_dir ? "/" : "");
    else
        snprintf(m->said + n, sizeof(m->said) - n, "%c%s%s ", signs[ev->type], ev->path,
                 ev->is_dir ? "/" : "");
}

static void on_event(void *arg, const struct fs_watch_event *ev)
{
    struct model *m = arg;

    say(m, ev);
    switch (ev->type) {
    case FS_WATCH_CREATED:
        model_set(m, ev->path, ev->is_dir);
        break;
    case FS_WATCH_REMOVED:
        model_drop(m, ev->path);
        break;
    case FS_WATCH_RENAMED:
        m->renames++;
        model_rename(m, ev->from, ev->path, ev->is_dir);
        break;
    case FS_WATCH_OVERFLOW:
        m->overflows++;
        model_drop(m, "t");
        model_read(m, "t");
        break;
    case FS_WATCH_UNWATCHED:
        m->unwatched++;
        m->last_error = ev->error->code;
        break;
    case FS_WATCH_MODIFIED:
    case FS_WATCH_WRITTEN:
    case FS_WATCH_ATTRIBUTES:
        break;
    }
}

static bool on_gone(void *arg)
{
    return ((struct model *)arg)->gone;
}

static bool on_excluded(void *arg, const char *rel, bool is_dir)
{
    (void)is_dir;
    return strcmp(((struct model *)arg)->exclude, rel) == 0;
}

static struct model *model_new(void)
{
    struct model *m = calloc(1, sizeof(*m));

    T_OK(m != NULL);
    return m;
}

static void model_free(struct model *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->v[i].path);
    free(m);
}

static int watch_as(struct fs_caller *c, const char *path, bool recursive, size_t max,
                    struct model *m, struct fs_watch **w)
{
    const struct fs_watch_options o = {
        .recursive = recursive,
        .max_dirs = max,
        .sink = {.event = on_event,
                 .is_gone = on_gone,
                 .is_excluded = m->exclude ? on_excluded : NULL,
                 .arg = m},
    };

    return fs_watch_new(c, path, &o, w, &e);
}

static struct fs_watch *watch(struct fs_caller *c, const char *path, struct model *m)
{
    struct fs_watch *w = NULL;

    if (watch_as(c, path, true, 0, m, &w) < 0)
        t_fail(__FILE__, __LINE__, "no watch: %s", e.message);
    return w;
}

/* Runs the watch until no more events come. */
static enum fs_watch_state settle(struct fs_watch *w)
{
    enum fs_watch_state state = FS_WATCH_PENDING; /* an earlier run may have left one */

    for (;;) {
        struct pollfd p = {.fd = fs_watch_fd(w), .events = POLLIN};

        if (state != FS_WATCH_PENDING && poll(&p, 1, 0) == 0)
            return state;
        if (fs_watch_run(w, &state, &e) < 0)
            t_fail(__FILE__, __LINE__, "%s", e.message);
        if (state == FS_WATCH_ENDED)
            return state;
        if (state == FS_WATCH_PENDING)
            poll(&p, 1, 5);
    }
}

/* The events since the last call. */
static const char *said(struct model *m, struct fs_watch *w)
{
    static char text[sizeof(m->said)];

    settle(w);
    memcpy(text, m->said, sizeof(text));
    if (text[0])
        text[strlen(text) - 1] = '\0';
    m->said[0] = '\0';
    return text;
}

/* Written in place: h_file() makes another file and renames it. */
static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        t_fail(__FILE__, __LINE__, "can't write '%s'", path);
    close(fd);
}

/*
 * ---- each kind of event ------------------------------------------------------------------------
 */

TEST(watch_tells_what_happens_in_order)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w;

    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/d", 0755), 0);
    w = watch(c, "t", m);
    T_INT(fs_watch_dirs(w), 2);
    put("t/d/f", "x");
    T_STR(said(m, w), "+t/d/f ~t/d/f =t/d/f");
    T_INT(rename("t/d/f", "t/g"), 0);
    T_STR(said(m, w), "t/d/f>t/g");
    T_INT(rename("t/d", "t/e"), 0);
    put("t/e/h", "");
    T_STR(said(m, w), "t/d>t/e/ +t/e/h =t/e/h");
    T_INT(chmod("t/g", 0600), 0);
    T_INT(unlink("t/g"), 0);
    T_STR(said(m, w), "@t/g -t/g");
    T_INT(rename("t/e", "out"), 0);
    put("out/unseen", "");
    T_STR(said(m, w), "-t/e/");
    T_INT(fs_watch_dirs(w), 1);
    T_INT(rename("out", "t/in"), 0);
    T_STR(said(m, w), "+t/in/ +t/in/h +t/in/unseen");
    T_INT(fs_watch_dirs(w), 2);
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_loses_nothing_that_happens_in_a_new_directory_before_it_is_watched)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w;

    T_INT(mkdir("t", 0755), 0);
    w = watch(c, "t", m);
    T_INT(mkdir("t/a", 0755), 0);
    T_INT(mkdir("t/a/b", 0755), 0);
    put("t/a/b/f", "x");
    T_INT(rename("t/a", "t/z"), 0);
    T_STR(said(m, w), "+t/a/ t/a>t/z/ +t/z/b/ +t/z/b/f");
    put("t/z/b/g", "");
    T_STR(said(m, w), "+t/z/b/g =t/z/b/g");
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_hides_our_temporary_names_and_what_is_excluded)
{
    struct fs_caller *c = h_caller();
    struct fs_write_options o = {.mode = 0644};
    struct fs_write_result res;
    struct model *m = model_new();
    struct fs_watch *w;

    m->exclude = "no";
    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/no", 0755), 0);
    T_INT(mkdir("t/" FS_TEMP_PREFIX "0", 0755), 0);
    w = watch(c, "t", m);
    T_INT(fs_watch_dirs(w), 1);
    put("t/no/f", "");
    put("t/" FS_TEMP_PREFIX "0/f", "");
    T_STR(said(m, w), "");
    T_INT(h_write(c, "t/f", "one", &o, &res, &e), 0);
    T_STR(said(m, w), "+t/f");
    T_INT(h_write(c, "t/f", "two", &o, &res, &e), 0);
    T_STR(said(m, w), "+t/f =t/f");
    put("t/#12", "x");
    T_STR(said(m, w), "+t/#12 ~t/#12 =t/#12");
    T_INT(rename("t/no", "t/yes"), 0);
    T_STR(said(m, w), "+t/yes/ +t/yes/f");
    T_INT(rename("t/yes", "t/no"), 0);
    T_STR(said(m, w), "-t/yes/");
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_without_recursive_stays_in_its_directory)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w = NULL;

    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/d", 0755), 0);
    T_INT(watch_as(c, "t", false, 0, m, &w), 0);
    put("t/d/f", "");
    T_INT(mkdir("t/n", 0755), 0);
    put("t/n/f", "");
    T_INT(rename("t/n", "t/m"), 0);
    T_STR(said(m, w), "+t/n/ t/n>t/m/");
    T_INT(fs_watch_dirs(w), 1);
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_of_one_file_tells_of_it_alone_also_when_it_is_replaced)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w;

    put("f", "x");
    T_INT(symlink("f", "link"), 0);
    w = watch(c, "f", m);
    put("g", "y");
    T_STR(said(m, w), "");
    T_INT(rename("g", "f"), 0);
    T_STR(said(m, w), "+f =f");
    put("f", "z");
    T_STR(said(m, w), "~f =f");
    T_INT(unlink("f"), 0);
    T_STR(said(m, w), "-f");
    put("f", "");
    T_STR(said(m, w), "+f =f");
    fs_watch_free(w);
    w = watch(c, "link", m);
    put("f", "");
    T_STR(said(m, w), "~link =link");
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_ends_when_its_directory_goes)
{
    static const char *const want[] = {"removed", "removed", "moved", "moved"};
    struct fs_caller *c = h_caller();

    for (size_t i = 0; i < 4; i++) {
        struct model *m = model_new();
        struct fs_watch *w;
        int busy = -1;

        T_INT(mkdir("t", 0755), 0);
        T_INT(mkdir("t/d", 0755), 0);
        w = watch(c, "t/d", m);
        if (i & 1) /* a file that is still open delays its last event */
            busy = open("t/d", O_RDONLY | O_DIRECTORY);
        T_INT(i < 2 ? rmdir("t/d") : rename("t/d", "t/e"), 0);
        T_INT(settle(w), FS_WATCH_ENDED);
        T_STR(fs_watch_end(w), want[i]);
        close(busy);
        fs_watch_free(w);
        model_free(m);
        h_snapshot("t", (char[128]){0});
        T_INT(system("rm -r t"), 0);
    }
    h_drop(c);
}

TEST(watch_refuses_what_it_can_not_watch)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w = NULL;

    T_INT(watch_as(c, "none", true, 0, m, &w), -ERR_NOT_FOUND);
    T_STR(e.field, "path");
    T_INT(watch_as(c, "/proc/self", true, 0, m, &w), -ERR_PRECONDITION);
    T_STR(e.field, "path");
    T_OK(!w);
    model_free(m);
    h_drop(c);
}

TEST(watch_says_which_directories_it_can_not_watch)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w = NULL;

    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/a", 0755), 0);
    T_INT(mkdir("t/b", 0755), 0);
    T_INT(watch_as(c, "t", true, 2, m, &w), -ERR_EXHAUSTED);
    T_INT(watch_as(c, "t", true, 3, m, &w), 0);
    T_INT(mkdir("t/a/more", 0755), 0);
    T_STR(said(m, w), "+t/a/more/ !t/a/more/");
    T_INT(m->last_error, ERR_EXHAUSTED);
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_has_the_rights_of_the_user)
{
    struct fs_caller *c;
    struct model *m = model_new();
    struct fs_watch *w = NULL;

    if (geteuid() != 0)
        T_SKIP("needs root");
    T_INT(chmod(".", 0755), 0);
    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/closed", 0700), 0);
    c = h_caller_in("/", "nobody");
    T_INT(watch_as(c, "t/closed", true, 0, m, &w), -ERR_DENIED);
    T_STR(e.field, "path");
    T_INT(watch_as(c, "t", true, 0, m, &w), 0);
    T_STR(said(m, w), "!t/closed/");
    T_INT(m->last_error, ERR_DENIED);
    put("t/closed/f", "");
    put("t/f", "");
    T_STR(said(m, w), "+t/f =t/f");
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_stays_inside_the_root_and_follows_no_link)
{
    struct fs_caller *c;
    struct model *m = model_new();
    struct fs_watch *w = NULL;

    T_INT(mkdir("in", 0755), 0);
    T_INT(mkdir("in/t", 0755), 0);
    T_INT(mkdir("out", 0755), 0);
    T_INT(mkdir("out/d", 0755), 0);
    T_INT(symlink("../../out", "in/t/link"), 0);
    T_INT(symlink("../out", "in/away"), 0);
    T_INT(chdir("in"), 0);
    c = h_caller_in(".", NULL);
    T_INT(watch_as(c, "away", true, 0, m, &w), -ERR_DENIED);
    T_INT(watch_as(c, "../out", true, 0, m, &w), -ERR_DENIED);
    w = watch(c, "t", m);
    T_INT(fs_watch_dirs(w), 1);
    T_INT(symlink("../../out", "t/another"), 0);
    put("../out/d/f", "");
    T_STR(said(m, w), "+t/another");
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

/*
 * ---- the model test ----------------------------------------------------------------------------
 */

struct ops {
    uint64_t seed;
    unsigned n;
    atomic_bool is_over;
};

static uint64_t random_next(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* A path in the tree, or sometimes outside; few names, so that operations collide. */
static void random_path(uint64_t *s, char out[64])
{
    int depth = 1 + (int)(random_next(s) % 2 + random_next(s) % 2);

    snprintf(out, 64, "%s", random_next(s) % 8 == 0 ? "out" : "t");
    for (int i = 0; i < depth; i++)
        snprintf(out + strlen(out), 64 - strlen(out), "/%c", (char)('a' + random_next(s) % 3));
}

static void random_op(uint64_t *s)
{
    char a[64], b[64];
    int fd;

    random_path(s, a);
    random_path(s, b);
    switch (random_next(s) % 12) {
    case 0:
    case 1:
    case 2:
        (void)mkdir(a, 0755);
        break;
    case 3:
    case 4:
        fd = open(a, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd >= 0 && random_next(s) % 2 && write(fd, "x", 1) != 1)
            t_fail(__FILE__, __LINE__, "write");
        if (fd >= 0)
            close(fd);
        break;
    case 5:
        (void)unlink(a);
        break;
    case 6:
        (void)rmdir(a);
        break;
    case 7:
        (void)sys_renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
        break;
    case 8:
        (void)symlink("x", a);
        break;
    default:
        (void)rename(a, b);
        break;
    }
}

static void *run_ops(void *arg)
{
    struct ops *o = arg;

    for (unsigned i = 0; i < o->n; i++)
        random_op(&o->seed);
    atomic_store(&o->is_over, true);
    return NULL;
}

static void must_equal(const struct model *told, uint64_t seed)
{
    struct model *there = model_new();
    bool differs;

    model_read(there, "t");
    differs = there->n != told->n;
    for (size_t i = 0; i < there->n && !differs; i++) {
        size_t k = 0;

        while (k < told->n && strcmp(told->v[k].path, there->v[i].path) != 0)
            k++;
        differs = k == told->n || told->v[k].is_dir != there->v[i].is_dir;
    }
    if (differs) {
        for (size_t i = 0; i < there->n; i++)
            fprintf(stderr, "there %s %d\n", there->v[i].path, there->v[i].is_dir);
        for (size_t i = 0; i < told->n; i++)
            fprintf(stderr, "told  %s %d\n", told->v[i].path, told->v[i].is_dir);
        fprintf(stderr, "said  %s\n", told->said);
        fprintf(stderr, "errors %u overflows %u\n", told->unwatched, told->overflows);
        t_fail(__FILE__, __LINE__, "seed %llu: what was told is not what is there",
               (unsigned long long)seed);
    }
    model_free(there);
}

static void clean(void)
{
    T_INT(system("rm -rf t out && mkdir t out"), 0);
}

TEST(watch_replayed_gives_the_tree_that_is_there)
{
    struct fs_caller *c = h_caller();
    unsigned renames = 0;

    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t s = seed * 0x9e3779b97f4a7c15u;
        struct model *m = model_new();
        struct fs_watch *w;

        clean();
        for (int i = 0; i < 20; i++)
            random_op(&s);
        model_read(m, "t");
        w = watch(c, "t", m);
        for (int i = 0; i < 100; i++) {
            enum fs_watch_state state;

            random_op(&s);
            if (random_next(&s) % 6 == 0)
                T_INT(fs_watch_run(w, &state, &e), 0);
        }
        T_INT(settle(w), FS_WATCH_IDLE);
        must_equal(m, seed);
        /* And the watch continues correctly from there. */
        m->said[0] = '\0';
        for (int i = 0; i < 10; i++)
            random_op(&s);
        settle(w);
        must_equal(m, seed);
        renames += m->renames;
        fs_watch_free(w);
        model_free(m);
    }
    T_OK(renames > 30);
    h_drop(c);
}

TEST(watch_replayed_gives_the_tree_while_another_thread_changes_it)
{
    struct fs_caller *c = h_caller();

    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct ops o = {.seed = seed * 0x9e3779b97f4a7c15u, .n = 1500};
        struct model *m = model_new();
        struct fs_watch *w;
        pthread_t thread;

        clean();
        w = watch(c, "t", m);
        T_INT(pthread_create(&thread, NULL, run_ops, &o), 0);
        while (!atomic_load(&o.is_over)) {
            settle(w);
            m->said[0] = '\0';
        }
        T_INT(pthread_join(thread, NULL), 0);
        settle(w);
        must_equal(m, seed);
        fs_watch_free(w);
        model_free(m);
    }
    h_drop(c);
}

TEST(watch_says_when_the_kernel_lost_events_and_is_right_after_that)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w;
    char path[64];

    T_INT(mkdir("t", 0755), 0);
    w = watch(c, "t", m);
    for (int i = 0; i < 9000; i++) { /* two events each; the kernel keeps 16,384 */
        snprintf(path, sizeof(path), "t/%d", i);
        T_INT(mkdir(path, 0755), 0);
        if (i >= 20)
            T_INT(rmdir(path), 0);
    }
    settle(w);
    T_INT(m->overflows, 1);
    T_INT(fs_watch_dirs(w), 21);
    m->said[0] = '\0';
    put("t/7/f", "");
    T_STR(said(m, w), "+t/7/f =t/7/f");
    must_equal(m, 0);
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_of_a_mount_ends_when_it_is_unmounted)
{
    struct fs_caller *c = h_caller();
    struct model *m = model_new();
    struct fs_watch *w;

    T_INT(mkdir("t", 0755), 0);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "t", "tmpfs", 0, NULL) < 0)
        T_SKIP("needs the right to mount");
    w = watch(c, "t", m);
    T_INT(umount2("t", 0), 0);
    T_INT(settle(w), FS_WATCH_ENDED);
    T_STR(fs_watch_end(w), "unmounted");
    fs_watch_free(w);
    model_free(m);
    h_drop(c);
}

TEST(watch_dirs_keep_what_is_below_a_directory_that_moves)
{
    struct watch_dirs *d = NULL;
    struct watch_dir *root, *a, *b, *x;
    struct buf path;

    T_INT(watch_dirs_new(4, &d, &e), 0);
    T_INT(watch_dirs_add(d, NULL, "", &root, &e), 0);
    T_INT(watch_dirs_add(d, root, "a", &a, &e), 0);
    T_INT(watch_dirs_add(d, a, "b", &b, &e), 0);
    T_INT(watch_dirs_add(d, b, "x", &x, &e), 0);
    T_INT(watch_dirs_add(d, b, "y", &x, &e), -ERR_EXHAUSTED);
    watch_dirs_set_wd(d, x, 7);
    T_INT(watch_dirs_move(d, a, b, "a", &e), -ERR_INVALID);
    T_INT(watch_dirs_move(d, b, root, "c", &e), 0);
    buf_init(&path, 100);
    T_INT(watch_dirs_path(watch_dirs_by_wd(d, 7), &path, &e), 0);
    T_STR(path.data, "c/x");
    T_OK(watch_dirs_lookup(d, "c/x") == x);
    T_OK(!watch_dirs_lookup(d, "a/b"));
    watch_dirs_drop(d, b, NULL, NULL);
    T_OK(!watch_dirs_by_wd(d, 7));
    T_INT(watch_dirs_count(d), 2);
    buf_done(&path);
    watch_dirs_free(d);
}
