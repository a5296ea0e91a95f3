#include "lib/box/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nettle/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/box/signature.h"

#define AUDIT_FILE "audit.jsonl"
#define LINK_BYTES (2 * SHA256_DIGEST_SIZE + 1)
#define LINK_FIELD ",\"chain\":\""
/* The end of each line: the field, its value, "\"}" */
#define LINK_TAIL_BYTES (sizeof(LINK_FIELD) - 1 + LINK_BYTES - 1 + 2)

struct audit {
    char *path;
    uint8_t key[SIGNATURE_KEY_BYTES];
    pthread_mutex_t lock;
    /* guarded by lock: */
    int fd;
    off_t size;
    uint64_t seq; /* of the last line */
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

/* ---- verifying ---- */

struct audit_chain {
    uint8_t key[SIGNATURE_KEY_BYTES];
    char link[LINK_BYTES];
    bool has_link; /* false: the line before is not there any more */
    uint64_t seq;
    uint64_t n;
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
    if (c->n ? seq != c->seq + 1 : !c->has_link && seq == 0)
        return refuse_line(c, line, "a line before this one is missing");
    if (!c->n && seq == 1)
        c->has_link = true; /* the first of all: of the empty link */
    make_link(c->key, c->link, line->text, line->len - LINK_TAIL_BYTES, expected);
    if (c->has_link && !str_secret_eq(expected, strlen(expected), own, strlen(own)))
        return refuse_line(c, line,
                           "the chain is broken here: this line, or one before it, was changed");
    memcpy(c->link, own, LINK_BYTES);
    c->has_link = true;
    c->seq = seq;
    c->n++;
    return 0;
}

static int walk_chain(const char *state_dir, struct audit_chain *c, struct err *e)
{
    int r = signature_read_key(state_dir, c->key, e);

    c->e = e;
    return r < 0 ? r : read_files(state_dir, check_line, c, e);
}

int audit_verify(const char *state_dir, uint64_t *ret_n, struct err *e)
{
    struct audit_chain c = {0};
    int r = walk_chain(state_dir, &c, e);

    if (r == 0)
        *ret_n = c.n;
    return r;
}

/* ---- writing ---- */

/* Finds where the chain goes on, and the end of the last whole line. */
static int note_line(void *arg, const struct audit_line *line)
{
    struct audit *a = arg;
    _cleanup_json_ json_t *entry = json_loadb(line->text, line->len, 0, NULL);
    const char *own = json_string_value(json_object_get(entry, "chain"));

    if (own && strlen(own) == LINK_BYTES - 1) {
        memcpy(a->link, own, LINK_BYTES);
        a->seq = (uint64_t)json_integer_value(json_object_get(entry, "seq"));
    }
    if (str_eq(line->file, AUDIT_FILE))
        a->size += (off_t)line->len + 1;
    return 0;
}

static int open_file(struct audit *a, struct err *e)
{
    a->fd = open(a->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return a->fd < 0 ? err_sys(e, errno, "open '%s'", a->path) : 0;
}

int audit_open(const char *state_dir, struct audit **ret, struct err *e)
{
    struct audit *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return err_oom(e);
    a->fd = -1;
    (void)pthread_mutex_init(&a->lock, NULL);
    r = asprintf(&a->path, "%s/" AUDIT_FILE, state_dir) < 0 ? (a->path = NULL, err_oom(e)) : 0;
    if (r == 0)
        r = signature_read_key(state_dir, a->key, e);
    if (r == 0)
        r = read_files(state_dir, note_line, a, e);
    if (r == 0)
        r = open_file(a, e);
    if (r == 0 && ftruncate(a->fd, a->size) < 0)
        r = err_sys(e, errno, "truncate '%s'", a->path);
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
    fd_close(a->fd);
    free(a->path);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}

static int rotate_file(struct audit *a, struct err *e)
{
    _cleanup_free_ char *old = NULL;

    if (a->size < AUDIT_MAX_BYTES)
        return 0;
    if (asprintf(&old, "%s.1", a->path) < 0)
        return err_oom(e);
    if (rename(a->path, old) < 0)
        return err_sys(e, errno, "rename '%s'", a->path);
    fd_close(TAKE_FD(a->fd));
    a->size = 0;
    return open_file(a, e);
}

/* With the lock. A line that does not fit on the disk is not there in part. */
static int write_line(struct audit *a, const char *text, size_t len, struct err *e)
{
    ssize_t n = pwrite(a->fd, text, len, a->size);

    if (n != (ssize_t)len) {
        int sys = n < 0 ? errno : ENOSPC;

        (void)ftruncate(a->fd, a->size);
        return err_sys(e, sys, "write '%s'", a->path);
    }
    a->size += n;
    return 0;
}

int audit_append(struct audit *a, json_t *entry, struct err *e)
{
    _cleanup_unlock_ pthread_mutex_t *locked = mutex_lock(&a->lock);
    _cleanup_free_ char *text = NULL;
    _cleanup_free_ char *line = NULL;
    char link[LINK_BYTES];
    size_t len = 0;
    int n, r = rotate_file(a, e);

    if (r < 0)
        return r;
    if (json_object_set_new(entry, "seq", json_integer((json_int_t)a->seq + 1)) < 0)
        return err_oom(e);
    r = jx_dump(entry, &text, &len, e);
    if (r < 0)
        return r;
    make_link(a->key, a->link, text, len - 1, link); /* without the last brace */
    n = asprintf(&line, "%.*s" LINK_FIELD "%s\"}\n", (int)len - 1, text, link);
    if (n < 0) {
        line = NULL;
        return err_oom(e);
    }
    r = write_line(a, line, (size_t)n, e);
    if (r == 0) {
        memcpy(a->link, link, LINK_BYTES);
        a->seq++;
    }
    return r;
}
