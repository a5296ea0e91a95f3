#include "lib/box/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/hmac.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/box/signature.h"

#define AUDIT_FILE "audit.jsonl"
#define AUDIT_HEAD "audit.head"
#define LINK_BYTES (2 * SHA256_DIGEST_SIZE + 1)
#define LINK_FIELD ",\"chain\":\""
/* The end of each line: the field, its value, "\"}" */
#define LINK_TAIL_BYTES (sizeof(LINK_FIELD) - 1 + LINK_BYTES - 1 + 2)

/* audit.head: the number and the link of the last line. */
#define HEAD_MAX_BYTES (20 + 1 + LINK_BYTES)

#define LOCK_MS 2000 /* for the other writers: each needs less than a millisecond */
#define LOCK_POLL_MS 2

struct audit {
    char *dir;
    uint8_t key[SIGNATURE_KEY_BYTES];
    pthread_mutex_t lock; /* of this process's threads; audit.lock is every process's */
    int lock_fd;
};

struct audit_end {
    uint64_t seq;
    char link[LINK_BYTES];
};

/* text: the line without its link, "{...". */
static void make_link(const uint8_t key[SIGNATURE_KEY_BYTES], const char *before, const char *text,
                      size_t len, char ret[LINK_BYTES])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct hmac_sha256_ctx mac;

    hmac_sha256_set_key(&mac, SIGNATURE_KEY_BYTES, key);
    hmac_sha256_update(&mac, 6, (const uint8_t *)"audit ");
    hmac_sha256_update(&mac, strlen(before), (const uint8_t *)before);
    hmac_sha256_update(&mac, 1, (const uint8_t *)" ");
    hmac_sha256_update(&mac, len, (const uint8_t *)text);
    hmac_sha256_digest(&mac, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), ret);
}

/* ---- reading ---- */

struct audit_line {
    const char *file; /* its name */
    unsigned number;
    const char *text;
    size_t len; /* without the line feed */
};

static int read_lines(FILE *f, const char *name,
                      int (*fn)(void *arg, const struct audit_line *line), void *arg, struct err *e)
{
    struct audit_line line = {.file = name};
    _cleanup_free_ char *text = NULL;
    size_t size = 0;
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = getline(&text, &size, f)) > 0) {
        line.number++;
        if (text[n - 1] != '\n') /* it is being written, or a crash has cut it */
            return 0;
        text[--n] = '\0';
        line.text = text;
        line.len = (size_t)n;
        r = fn(arg, &line);
    }
    return r == 0 && ferror(f) ? err_sys(e, errno, "read '%s'", name) : r;
}

/* The file before and the present one. */
static int read_files(const char *state_dir, int (*fn)(void *arg, const struct audit_line *line),
                      void *arg, struct err *e)
{
    static const char *const names[] = {AUDIT_FILE ".1", AUDIT_FILE};
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(names); i++) {
        _cleanup_free_ char *path = NULL;
        _cleanup_fclose_ FILE *f = NULL;

        if (asprintf(&path, "%s/%s", state_dir, names[i]) < 0)
            return err_oom(e);
        f = fopen(path, "re");
        if (!f && errno != ENOENT)
            return err_sys(e, errno, "open '%s'", path);
        r = f ? read_lines(f, names[i], fn, arg, e) : 0;
    }
    return r;
}

struct audit_list {
    int (*fn)(void *arg, json_t *entry);
    void *arg;
};

static int list_line(void *arg, const struct audit_line *line)
{
    const struct audit_list *l = arg;
    _cleanup_json_ json_t *entry = json_loadb(line->text, line->len, 0, NULL);

    return entry ? l->fn(l->arg, entry) : 0;
}

int audit_list(const char *state_dir, int (*fn)(void *arg, json_t *entry), void *arg, struct err *e)
{
    struct audit_list l = {.fn = fn, .arg = arg};

    return read_files(state_dir, list_line, &l, e);
}

/* ---- the head ---- */

/* False: there is none, or it is no head. */
static bool read_head(const char *state_dir, struct audit_end *ret)
{
    _cleanup_free_ char *path = path_join(state_dir, AUDIT_HEAD);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    char *space;

    if (!path || io_read_file(AT_FDCWD, path, HEAD_MAX_BYTES, &text, &len, NULL) < 0 ||
        !(space = strchr(text, ' ')) || strlen(space) != LINK_BYTES + 1)
        return false;
    *space = '\0';
    (void)snprintf(ret->link, sizeof(ret->link), "%s", space + 1); /* without the line feed */
    return str_parse_u64(text, 1, UINT64_MAX, &ret->seq, NULL) == 0;
}

/* In place: it only grows. A crash before it leaves the head one line behind. */
static int write_head(const struct audit *a, const struct audit_end *end, struct err *e)
{
    _cleanup_free_ char *path = path_join(a->dir, AUDIT_HEAD);
    _cleanup_close_ int fd =
        path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    char text[HEAD_MAX_BYTES + 1];
    int n = snprintf(text, sizeof(text), "%" PRIu64 " %s\n", end->seq, end->link);

    return fd < 0 || pwrite(fd, text, (size_t)n, 0) != n
               ? err_sys(e, errno, "write '" AUDIT_HEAD "'")
               : 0;
}

/* ---- verifying ---- */

struct audit_chain {
    uint8_t key[SIGNATURE_KEY_BYTES];
    struct audit_end end; /* the line before */
    bool has_link;        /* false: the line before is not there any more */
    uint64_t n;
    struct audit_end head;
    bool has_head;
    struct err *e;
};

static int refuse_line(const struct audit_chain *c, const struct audit_line *line, const char *why)
{
    return err_set(c->e, ERR_DATA_LOSS, "%s:%u: %s", line->file, line->number, why);
}

static int check_line(void *arg, const struct audit_line *line)
{
    struct audit_chain *c = arg;
    _cleanup_json_ json_t *entry = json_loadb(line->text, line->len, 0, NULL);
    const char *own = json_string_value(json_object_get(entry, "chain"));
    uint64_t seq = (uint64_t)json_integer_value(json_object_get(entry, "seq"));
    char expected[LINK_BYTES];

    if (!own || line->len < LINK_TAIL_BYTES || strlen(own) != LINK_BYTES - 1)
        return refuse_line(c, line, "this is no line of the record");
    if (c->n ? seq != c->end.seq + 1 : !c->has_link && seq == 0)
        return refuse_line(c, line, "a line before this one is missing");
    if (!c->n && seq == 1)
        c->has_link = true; /* the first of all: of the empty link */
    make_link(c->key, c->end.link, line->text, line->len - LINK_TAIL_BYTES, expected);
    if (c->has_link && !str_secret_eq(expected, strlen(expected), own, strlen(own)))
        return refuse_line(c, line,
                           "the chain is broken here: this line, or one before it, was changed");
    memcpy(c->end.link, own, LINK_BYTES);
    c->has_link = true;
    c->end.seq = seq;
    c->n++;
    if (c->has_head && seq == c->head.seq && !str_eq(own, c->head.link))
        return refuse_line(c, line, "this is not the line that " AUDIT_HEAD " has");
    return 0;
}

/* The head is written after its line: it may be one behind, of a crash, and is never ahead. */
static int check_end(const struct audit_chain *c, struct err *e)
{
    if (!c->has_head && c->end.seq > 1)
        return err_set(e, ERR_DATA_LOSS,
                       AUDIT_HEAD " is missing, which tells whether lines at the end are");
    if (c->has_head && c->head.seq > c->end.seq)
        return err_set(e, ERR_DATA_LOSS,
                       AUDIT_FILE ": lines at its end are missing: it ends with call %" PRIu64
                                  ", and had %" PRIu64,
                       c->end.seq, c->head.seq);
    return 0;
}

int audit_verify(const char *state_dir, uint64_t *ret_n, struct err *e)
{
    struct audit_chain c = {.e = e};
    int r = signature_read_key(state_dir, c.key, e);

    /* First: a call that comes meanwhile only makes the file longer than the head. */
    c.has_head = read_head(state_dir, &c.head);
    if (r == 0)
        r = read_files(state_dir, check_line, &c, e);
    if (r == 0)
        r = check_end(&c, e);
    if (r == 0)
        *ret_n = c.n;
    return r;
}

/* ---- writing ---- */

int audit_open(const char *state_dir, struct audit **ret, struct err *e)
{
    struct audit *a = calloc(1, sizeof(*a));
    _cleanup_free_ char *path = NULL;
    int r;

    if (!a)
        return err_oom(e);
    a->lock_fd = -1;
    (void)pthread_mutex_init(&a->lock, NULL);
    a->dir = strdup(state_dir);
    r = !a->dir || asprintf(&path, "%s/audit.lock", state_dir) < 0
            ? err_oom(e)
            : signature_read_key(state_dir, a->key, e);
    if (r == 0) {
        a->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        r = a->lock_fd < 0 ? err_sys(e, errno, "open '%s'", path) : 0;
    }
    if (r < 0) {
        (void)audit_close(a);
        return r;
    }
    *ret = a;
    return 0;
}

struct audit *audit_close(struct audit *a)
{
    if (!a)
        return NULL;
    fd_close(a->lock_fd);
    free(a->dir);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}

static int lock_file(const struct audit *a, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + LOCK_MS;

    while (flock(a->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, errno, "lock the audit record");
        if (!clock_until_ms(deadline_ms))
            return err_set(e, ERR_UNAVAILABLE, "another process writes the audit record");
        (void)poll(NULL, 0, LOCK_POLL_MS);
    }
    return 0;
}

/* Where the file's last whole line ends, and its seq and link, which stay as they are without one. */
static int read_end(int fd, off_t *ret_size, struct audit_end *end, struct err *e)
{
    _cleanup_free_ char *text = malloc(AUDIT_LINE_BYTES + 1);
    off_t size = lseek(fd, 0, SEEK_END),
          from = size > AUDIT_LINE_BYTES ? size - AUDIT_LINE_BYTES : 0;
    _cleanup_json_ json_t *entry = NULL;
    const char *own, *last, *begin;
    ssize_t n;

    if (!text)
        return err_oom(e);
    n = pread(fd, text, AUDIT_LINE_BYTES, from);
    if (size < 0 || n < 0)
        return err_sys(e, errno, "read the audit record");
    last = memrchr(text, '\n', (size_t)n);
    *ret_size = last ? from + (last - text) + 1 : from;
    if (!last)
        return 0;
    begin = memrchr(text, '\n', (size_t)(last - text));
    begin = begin ? begin + 1 : text;
    entry = json_loadb(begin, (size_t)(last - begin), 0, NULL);
    own = json_string_value(json_object_get(entry, "chain"));
    if (own && strlen(own) == LINK_BYTES - 1) {
        memcpy(end->link, own, LINK_BYTES);
        end->seq = (uint64_t)json_integer_value(json_object_get(entry, "seq"));
    }
    return 0;
}

/* The file to append to, and where; a file that has its size makes place. */
static int open_file(const struct audit *a, int *ret_fd, off_t *ret_size, struct audit_end *end,
                     struct err *e)
{
    _cleanup_free_ char *path = NULL, *old = NULL;
    _cleanup_close_ int fd = -1;
    struct audit_end head;
    int r;

    if (asprintf(&path, "%s/" AUDIT_FILE, a->dir) < 0 || asprintf(&old, "%s.1", path) < 0)
        return err_oom(e);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(e, errno, "open '%s'", path);
    r = read_end(fd, ret_size, end, e);
    /* Behind lines that are gone, the chain goes on as if they were there: the gap stays to be seen. */
    if (r == 0 && read_head(a->dir, &head) && head.seq > end->seq)
        *end = head;
    if (r == 0 && *ret_size >= AUDIT_MAX_BYTES) {
        if (rename(path, old) < 0)
            return err_sys(e, errno, "rename '%s'", path);
        fd_close(fd);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        r = fd < 0 ? err_sys(e, errno, "open '%s'", path) : 0;
        *ret_size = 0;
    }
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

/* Over the rest of a line that a crash has cut. One that does not fit on the disk is not there in part. */
static int write_line(int fd, off_t size, const char *text, size_t len, struct err *e)
{
    ssize_t n = ftruncate(fd, size) < 0 ? -1 : pwrite(fd, text, len, size);

    if (n == (ssize_t)len)
        return 0;
    int sys = n < 0 ? errno : ENOSPC;

    (void)ftruncate(fd, size);
    return err_sys(e, sys, "write the audit record");
}

/* The whole line of the entry, and the new end. */
static int make_line(const struct audit *a, json_t *entry, struct audit_end *end, char **ret,
                     struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char link[LINK_BYTES];
    size_t len = 0;
    int n, r;

    if (json_object_set_new(entry, "seq", json_integer((json_int_t)end->seq + 1)) < 0)
        return err_oom(e);
    r = jx_dump(entry, &text, &len, e);
    if (r < 0)
        return r;
    make_link(a->key, end->link, text, len - 1, link); /* without the last brace */
    n = asprintf(ret, "%.*s" LINK_FIELD "%s\"}\n", (int)len - 1, text, link);
    if (n < 0 || n > AUDIT_LINE_BYTES) {
        if (n >= 0)
            free(TAKE(*ret));
        return n < 0 ? err_oom(e)
                     : err_set(e, ERR_EXHAUSTED, "a line of the audit record is too long");
    }
    memcpy(end->link, link, LINK_BYTES);
    end->seq++;
    return 0;
}

static int append_locked(const struct audit *a, json_t *entry, struct err *e)
{
    _cleanup_free_ char *line = NULL;
    _cleanup_close_ int fd = -1;
    struct audit_end end = {0};
    off_t size = 0;
    int r = open_file(a, &fd, &size, &end, e);

    if (r == 0)
        r = make_line(a, entry, &end, &line, e);
    if (r == 0)
        r = write_line(fd, size, line, strlen(line), e);
    return r < 0 ? r : write_head(a, &end, e);
}

int audit_append(struct audit *a, json_t *entry, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);
    int r = lock_file(a, e);

    if (r < 0)
        return r;
    r = append_locked(a, entry, e);
    (void)flock(a->lock_fd, LOCK_UN);
    return r;
}
