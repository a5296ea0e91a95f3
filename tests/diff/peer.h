#pragma once
/*
 * peer: one question, to rg or fd and to the search modules. Answers are as rg -0 prints them: a path
 * is followed by a NUL byte.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/wait.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "search/glob.h"
#include "search/search.h"
#include "test.h"

#define OUT_MAX (16u * 1024 * 1024)
#define MAX_ARGS 48

struct question {
    char *args[MAX_ARGS]; /* of the other program, owned */
    size_t n;
    bool is_fd, pcre;
    bool by_line_for_rg; /* asked with -U, of a pattern for which rg does without */
    struct search_options o;
    struct glob_options glob;
    const char *more[4]; /* patterns */
    char **globs;
    char **iglobs;
    char **exclude;
    char **extensions;
    char **types;
    char **type_not;
};

static void ask(struct question *q, const char *arg)
{
    T_OK(q->n < MAX_ARGS);
    q->args[q->n++] = strdup(arg);
}

static void question_args_done(struct question *q)
{
    for (size_t i = 0; i < q->n; i++)
        free(q->args[i]);
}

static void question_done(struct question *q)
{
    question_args_done(q);
    strv_free(q->globs);
    strv_free(q->iglobs);
    strv_free(q->exclude);
    strv_free(q->extensions);
    strv_free(q->types);
    strv_free(q->type_not);
}

/* Takes out where rg says that it gives up on a binary file, and with --crlf what is left of lines'
 * ends. */
static void clean_answer(const struct question *q, struct buf *out)
{
    struct buf clean = {.max = OUT_MAX};
    const char *p = out->data, *end = p + out->len;

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p), len = n;

        while (q->o.grep.crlf && len && p[len - 1] == '\r')
            len--;
        if (!memmem(p, len, " WARNING: stopped searching ", 28)) {
            T_OK(buf_add(&clean, p, len, NULL) == 0);
            T_OK(buf_adds(&clean, "\n", NULL) == 0);
        }
        p += n + 1;
    }
    buf_done(out);
    *out = clean;
}

/* Starts it with its output into a new pipe, whose other end is *ret_fd. */
static pid_t start_peer(struct question *q, const char *program, int *ret_fd)
{
    char *argv[MAX_ARGS + 2] = {(char *)(uintptr_t)program};
    posix_spawn_file_actions_t actions;
    int pipes[2];
    pid_t pid;

    memcpy(argv + 1, q->args, q->n * sizeof(*argv));
    T_OK(pipe2(pipes, O_CLOEXEC) == 0);
    T_OK(posix_spawn_file_actions_init(&actions) == 0);
    T_OK(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) == 0);
    T_OK(posix_spawn_file_actions_adddup2(&actions, pipes[1], 1) == 0);
    T_OK(posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0) == 0);
    T_INT(posix_spawnp(&pid, program, &actions, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pipes[1]);
    *ret_fd = pipes[0];
    return pid;
}

#define PANIC 101 /* the status of a Rust program that found itself wrong */

/* False when it gave no answer: rg 13 panics when what it looks ahead at with -U is cut within a
 * character, and with --crlf at a file that ends in "\r". */
static bool read_peer(pid_t pid, int fd, struct buf *out)
{
    char block[8192];
    ssize_t n;
    int status;

    while ((n = read(fd, block, sizeof(block))) > 0)
        T_OK(buf_add(out, block, (size_t)n, NULL) == 0);
    (void)close(fd);
    T_OK(waitpid(pid, &status, 0) == pid);
    T_OK(WIFEXITED(status) && (WEXITSTATUS(status) <= 2 || WEXITSTATUS(status) == PANIC));
    return WEXITSTATUS(status) != PANIC;
}

static int open_plain(void *arg, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static const struct tree_access plain = {.open = open_plain};

static int take_path(void *arg, const struct tree_entry *entry, struct err *e)
{
    return buf_addf(arg, e, "%s%s\n", entry->path, entry->type == TREE_DIR ? "/" : "");
}

static void add_line(struct buf *out, const char *path, char sep, uint64_t number, const char *text,
                     size_t len)
{
    T_OK(buf_add(out, path, strlen(path) + 1, NULL) == 0);
    T_OK(buf_addf(out, NULL, "%" PRIu64 "%c", number, sep) == 0);
    T_OK(buf_add(out, text, len, NULL) == 0);
    T_OK(buf_adds(out, "\n", NULL) == 0);
}

struct taker {
    struct buf *out;
    enum grep_mode mode;
    bool alone; /* each match is a result */
    bool multiline;
    bool crlf;
};

/* With -U -o rg prints nothing for the part of a match that is nothing or only a line's end. */
static void take_lines(const struct taker *t, const char *path, const struct grep_result *r)
{
    struct buf *out = t->out;
    const struct grep_line *line = r->replaced ? r->replaced : &r->line;
    const char *text = line->text, *end = text + line->len;

    bool ends = t->alone && end > text && end[-1] == '\n';

    if (ends) /* of the match: the line that is printed ends so */
        end--;
    for (size_t i = 0; i < r->n_before; i++)
        add_line(out, path, '-', r->before[i].number, r->before[i].text, r->before[i].len);
    for (uint64_t n = r->line.number;; n++) { /* more than one with multiline */
        const char *nl = memchr(text, '\n', (size_t)(end - text));

        size_t len = (size_t)((nl ? nl : end) - text);

        if (t->crlf && t->multiline && (nl || ends) && len && text[len - 1] == '\r')
            len--;
        if (!(t->alone && t->multiline && len == 0))
            add_line(out, path, ':', n, text, len);
        if (!nl)
            break;
        text = nl + 1;
    }
    for (size_t i = 0; i < r->n_after; i++)
        add_line(out, path, '-', r->after[i].number, r->after[i].text, r->after[i].len);
}

static int take_result(void *arg, const char *path, const struct grep_result *r, struct err *e)
{
    const struct taker *t = arg;

    if (t->mode == GREP_FILES || t->mode == GREP_FILES_WITHOUT)
        return buf_addf(t->out, e, "%s\n", path);
    if (t->mode != GREP_LINES)
        return buf_addf(t->out, e, "%s%c%" PRIu64 "\n", path, '\0', r->count);
    take_lines(t, path, r);
    return 0;
}

static int run_files(struct question *q, int fd, struct notes *notes, struct buf *out,
                     struct err *e)
{
    const struct glob_sink sink = {.found = take_path, .arg = out};
    struct glob_result res;
    int r;

    q->glob.tree = q->o.tree;
    q->glob.order = q->o.order;
    q->glob.extensions = q->extensions;
    r = glob_run(fd, &q->glob, &plain, &sink, notes, &res, e);
    free(res.last.below);
    return r;
}

static int run_lines(struct question *q, int fd, struct notes *notes, struct buf *out,
                     struct err *e)
{
    struct taker taker = {out, q->o.grep.mode, q->o.grep.only_matching, q->o.grep.multiline,
                          q->o.grep.crlf};
    const struct search_sink sink = {.result = take_result, .arg = &taker};
    struct search_result res;
    int r;

    q->o.match.more = (char *const *)(uintptr_t)q->more;
    q->o.match.groups = q->o.grep.replace;
    r = search_run(fd, &q->o, &plain, &sink, notes, &res, e);
    free(res.last.below);
    return r;
}

static void run_own(struct question *q, bool grep, struct buf *out)
{
    static struct notes notes;
    _cleanup_close_ int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err e = {0};

    T_OK(fd >= 0);
    notes_init(&notes);
    q->o.tree.globs = q->globs;
    q->o.tree.iglobs = q->iglobs;
    q->o.tree.exclude = q->exclude;
    q->o.tree.types = q->types;
    q->o.tree.type_not = q->type_not;
    if (grep)
        (void)run_lines(q, fd, &notes, out, &e); /* a glob that is not valid is refused by both */
    else
        (void)run_files(q, fd, &notes, out, &e);
    notes_done(&notes);
}
