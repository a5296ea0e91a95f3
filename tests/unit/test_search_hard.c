/* search: trees that change while they are searched, paths at PATH_MAX, work on both cores. */
#define T_ALARM_S 120
#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "common/buf.h"
#include "search/search.h"
#include "search/tree.h"

static int open_plain(void *arg, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static const struct tree_access plain = {.open = open_plain};

static const struct tree_options whole_tree = {
    .shown = "", .max_depth = UINT32_MAX, .max_filesize = UINT64_MAX, .n_workers = 2};

/* --- a tree that changes --- */

#define FILES 8
#define LINES 4000
#define LINE "needle in a line of some length, forty two\n"

/* Opens the file itself, never the target of a link. */
static int open_own(const char *path, int flags)
{
    return open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0644);
}

static void fill(const char *path, unsigned lines)
{
    int fd = open_own(path, O_CREAT | O_TRUNC);

    for (unsigned i = 0; fd >= 0 && i < lines; i++)
        if (write(fd, LINE, strlen(LINE)) < 0) /* the FIFO is full, or has no reader any more */
            break;
    if (fd >= 0)
        (void)close(fd);
}

static void shrink(const char *path, off_t len)
{
    int fd = open_own(path, 0);

    if (fd >= 0) {
        (void)ftruncate(fd, len);
        (void)close(fd);
    }
}

/* Changes a file while it is being read, in one of several ways. */
static void change(unsigned n)
{
    char path[32], other[32];

    (void)snprintf(path, sizeof(path), "d/f%u", n % FILES);
    (void)snprintf(other, sizeof(other), "d/f%u", (n + 1) % FILES);
    switch (n / FILES % 7) {
    case 0:
        shrink(path, (off_t)(n % 5 * 1000));
        break;
    case 1:
        fill(path, LINES); /* from nothing */
        break;
    case 2:
        (void)unlink(path);
        break;
    case 3:
        (void)symlink("../.secret", path);
        break;
    case 4:
        (void)remove(path);
        (void)mkfifo(path, 0644);
        break;
    case 5:
        (void)remove(path);
        (void)mkdir(path, 0755);
        break;
    default:
        (void)remove(path);
        fill(path, LINES / 2);
        (void)rename(path, other);
        break;
    }
}

struct seen {
    unsigned n_steady, n_wrong;
};

/*
 * Every reported line was written, or is the part of a line at which a file was cut; no line comes
 * from the target of a link.
 */
static int on_line(void *arg, const char *path, const struct grep_result *r, struct err *e)
{
    struct seen *s = arg;
    bool is_part = r->line.len < strlen(LINE) && memcmp(r->line.text, LINE, r->line.len) == 0;

    (void)e;
    s->n_steady += strcmp(path, "steady") == 0;
    s->n_wrong += !is_part;
    return 0;
}

static void search_once(const char *whole, struct seen *s)
{
    static struct notes notes;
    const struct search_sink sink = {.result = on_line, .arg = s};
    struct search_options o = {.tree = whole_tree,
                               .match = {.pattern = "needle", .len = 6},
                               .grep = {.max_per_file = UINT64_MAX}};
    struct search_result res;
    struct err e = {0};
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    T_OK(fd >= 0);
    o.tree.whole = whole;
    notes_init(&notes);
    T_INT(search_run(fd, &o, &plain, &sink, &notes, &res, &e), 0);
    notes_done(&notes);
    (void)close(fd);
}

/* Hidden, so that only a link could reveal it. */
static void make_secret(void)
{
    static const char text[] = "a needle that is not to be found\n";
    int fd = open_own(".secret", O_CREAT);

    T_OK(fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    (void)close(fd);
}

TEST(search_of_files_that_change_tells_what_was_there_and_ends)
{
    struct seen s = {0};
    char whole[PATH_MAX];
    pid_t pid;

    T_OK(getcwd(whole, sizeof(whole)) && mkdir("d", 0755) == 0);
    fill("steady", LINES);
    make_secret();
    for (unsigned i = 0; i < FILES; i++)
        change(FILES + i);
    pid = fork();
    T_OK(pid >= 0);
    if (pid == 0)
        (void)signal(SIGPIPE, SIG_IGN);
    for (unsigned n = 0; pid == 0; n++) /* until it is killed */
        change(n);
    for (unsigned i = 0; i < 30; i++)
        search_once(whole, &s);
    T_OK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    T_INT(s.n_steady, 30 * LINES);
    T_INT(s.n_wrong, 0);
}

/* --- long paths --- */

static int count_needles(void *arg, const char *path, const struct grep_result *r, struct err *e)
{
    (void)r;
    (void)e;
    T_OK(strcmp(strrchr(path, '/') + 1, "file") == 0);
    ++*(unsigned *)arg;
    return 0;
}

/* Files with path lengths from a little below PATH_MAX to a little above it. */
TEST(search_finds_files_whose_paths_are_about_as_long_as_a_path_can_be)
{
    enum { DIRS = 15, AROUND = 24 };
    static struct notes notes;
    unsigned n = 0, made = 0;
    const struct search_sink sink = {.result = count_needles, .arg = &n};
    struct search_options o = {.tree = whole_tree,
                               .match = {.pattern = "needle", .len = 6},
                               .grep = {.max_per_file = UINT64_MAX}};
    struct search_result res;
    char whole[PATH_MAX], name[NAME_MAX + 1];
    int top = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t len;

    T_OK(top >= 0 && getcwd(whole, sizeof(whole)));
    len = strlen(whole);
    memset(name, 'd', sizeof(name));
    name[NAME_MAX] = '\0';
    for (unsigned i = 0; i < DIRS; i++, len += NAME_MAX + 1)
        T_OK(mkdir(name, 0755) == 0 && chdir(name) == 0);
    while (len + NAME_MAX < PATH_MAX - AROUND) {
        T_OK(mkdir("d", 0755) == 0 && chdir("d") == 0);
        len += 2;
    }
    for (size_t total = PATH_MAX - AROUND; total < PATH_MAX + AROUND; total++) {
        size_t dir = total - len - strlen("//file");
        char path[NAME_MAX + 8];

        if (dir > NAME_MAX)
            continue;
        (void)snprintf(path, sizeof(path), "%.*s", (int)dir, name);
        path[0] = 'e';
        T_OK(mkdir(path, 0755) == 0);
        (void)strcat(path, "/file");
        fill(path, 1);
        made++;
    }
    T_OK(fchdir(top) == 0 && made > AROUND);
    o.tree.whole = whole;
    notes_init(&notes);
    T_INT(search_run(top, &o, &plain, &sink, &notes, &res, NULL), 0);
    T_INT(notes.total, 0);
    T_INT(n, made);
    notes_done(&notes);
    (void)close(top);
}

/* --- two cores --- */

struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t met;
    bool came[TREE_MAX_WORKERS];
};

/* Each worker waits until both have got an entry: a single worker would wait in vain. */
static int meet(void *arg, unsigned worker, const struct tree_entry *entry, struct err *e)
{
    struct meeting *m = arg;
    struct timespec until;
    int r = 0;

    (void)entry;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    (void)pthread_mutex_lock(&m->lock);
    m->came[worker] = true;
    (void)pthread_cond_broadcast(&m->met);
    while (r == 0 && !(m->came[0] && m->came[1]))
        r = pthread_cond_timedwait(&m->met, &m->lock, &until);
    (void)pthread_mutex_unlock(&m->lock);
    return r ? err_set(e, ERR_INTERNAL, "only one worker works") : 0;
}

TEST(search_works_on_two_threads_at_once)
{
    struct meeting m = {.lock = PTHREAD_MUTEX_INITIALIZER, .met = PTHREAD_COND_INITIALIZER};
    const struct tree_visitor v = {.visit = meet, .arg = &m};
    struct tree_options o = whole_tree;
    static struct notes notes;
    struct tree *t = NULL;
    struct err e = {0};
    char whole[PATH_MAX], path[32];
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    T_OK(fd >= 0 && getcwd(whole, sizeof(whole)));
    for (unsigned i = 0; i < 300; i++) {
        (void)snprintf(path, sizeof(path), "f%u", i);
        fill(path, 1);
    }
    o.whole = whole;
    notes_init(&notes);
    T_INT(tree_new(fd, &o, &plain, &notes, &t, &e), 0);
    T_INT(tree_walk(t, &v, &e), 0);
    T_OK(m.came[0] && m.came[1]);
    tree_free(t);
    notes_done(&notes);
    (void)close(fd);
}
