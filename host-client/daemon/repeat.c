#include "daemon/repeat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/list.h"
#include "common/path.h"
#include "common/str.h"
#include "daemon/access.h"
#include "daemon/daemon.h"
#include "daemon/job.h"

#define FOLDER "answers"
#define FIELD "Idempotency-Key"
#define ANSWER_BYTES (1024 * 1024)
#define HASH_BYTES (2 * SHA256_DIGEST_SIZE + 1)

/* A request at work. On the stack of its thread. */
struct at_work {
    char key[HASH_BYTES];
    struct at_work *next;
};

struct repeats {
    char *dir;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct at_work *first;
    unsigned n; /* files at most; those that are too old are removed when there are REPEAT_MAX */
};

/* ---- the files ---- */

static int count_answers(struct repeats *s, struct err *e)
{
    _cleanup_closedir_ DIR *dir = opendir(s->dir);
    time_t oldest = (time_t)((clock_real_ms() - REPEAT_KEPT_MS) / 1000);
    struct dirent *entry;

    if (!dir)
        return err_sys(e, errno, "'%s'", s->dir);
    s->n = 0;
    while ((entry = readdir(dir))) {
        struct stat st;

        if (entry->d_name[0] == '.' || fstatat(dirfd(dir), entry->d_name, &st, 0) < 0)
            continue;
        if (st.st_mtime < oldest)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        else
            s->n++;
    }
    return 0;
}

int repeats_new(const char *state_dir, struct repeats **ret, struct err *e)
{
    struct repeats *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return err_oom(e);
    (void)pthread_mutex_init(&s->lock, NULL);
    s->dir = path_join(state_dir, FOLDER);
    r = s->dir ? io_mkdir_p(s->dir, 0700, e) : err_oom(e);
    if (r == 0)
        r = count_answers(s, e);
    if (r < 0) {
        (void)repeats_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct repeats *repeats_free(struct repeats *s)
{
    if (!s)
        return NULL;
    (void)pthread_mutex_destroy(&s->lock);
    free(s->dir);
    free(s);
    return NULL;
}

static char *answer_path(const struct repeats *s, const char *key)
{
    return path_join(s->dir, key);
}

/* ---- keys ---- */

static void hash_text(const char *label, const char *data, size_t len, char out[HASH_BYTES])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;

    sha256_init(&sha);
    sha256_update(&sha, strlen(label) + 1, (const uint8_t *)label);
    sha256_update(&sha, len, (const uint8_t *)data);
    sha256_digest(&sha, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), out);
}

/* The keys of two senders do not meet: an answer may hold what another must not see. */
static void hash_key(const struct job *j, const char *label, char out[HASH_BYTES])
{
    char whole[64];

    (void)snprintf(whole, sizeof(whole), "%s %s", label, access_principal(j->q)->token);
    hash_text(whole, j->repeat_key, strlen(j->repeat_key), out);
}

static int check_repeat_key(const char *key, struct err *e)
{
    size_t n = strlen(key);

    for (size_t i = 0; i < n; i++)
        if (key[i] < ' ' || key[i] > '~')
            n = 0;
    return n && n <= REPEAT_KEY_BYTES
               ? 0
               : err_field(e, ERR_INVALID, FIELD, FIELD ": a key has 1 to %d characters of ASCII",
                           REPEAT_KEY_BYTES);
}

/* The body is the request, and the target, whose query may have options. */
static void hash_request(const struct job *j, char out[HASH_BYTES])
{
    hash_text(j->q->target, j->text ? j->text : "", j->text_len, out);
}

int repeat_name(const struct job *j, const char *prefix, char out[REPEAT_NAME_BYTES], struct err *e)
{
    char digits[HASH_BYTES];
    int r = 0;

    if (j->repeat_key)
        hash_key(j, "name", digits);
    else
        r = io_random_hex(8, digits, e);
    if (r == 0)
        (void)snprintf(out, REPEAT_NAME_BYTES, "%s%.12s", prefix, digits);
    return r;
}

/* ---- answers ---- */

/* With the lock. */
static int begin_work(struct repeats *s, struct at_work *w, struct err *e)
{
    int r = 0;

    for (const struct at_work *p = s->first; p; p = p->next)
        if (strcmp(p->key, w->key) == 0)
            return err_field(e, ERR_ABORTED, FIELD, "the first request with this key is at work");
    if (s->n >= REPEAT_MAX)
        r = count_answers(s, e);
    if (r == 0 && s->n >= REPEAT_MAX)
        r = err_field(e, ERR_EXHAUSTED, FIELD, "%d answers are kept already", REPEAT_MAX);
    if (r < 0)
        return r;
    w->next = s->first;
    s->first = w;
    s->n++;
    return 0;
}

static void end_work(struct repeats *s, const struct at_work *w, bool is_kept)
{
    WITH_LOCK (&s->lock) {
        struct at_work **at = &s->first;

        while (*at != w)
            at = &(*at)->next;
        *at = w->next;
        s->n -= !is_kept;
    }
}

/* 1: replied with the answer that is kept. One that is too old or cannot be read counts as none. */
static int reply_kept(struct job *j, const char *path, const char *request, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *v = NULL;
    const char *kept;
    int64_t age_ms;
    size_t len;

    if (io_read_file(AT_FDCWD, path, ANSWER_BYTES, &text, &len, NULL) < 0 ||
        jx_parse_object(text, len, &v, NULL) < 0)
        return 0;
    kept = json_string_value(json_object_get(v, "request"));
    age_ms = clock_real_ms() - json_integer_value(json_object_get(v, "made_ms"));
    if (!kept || age_ms >= REPEAT_KEPT_MS)
        return 0;
    if (strcmp(kept, request) != 0)
        return err_field(e, ERR_ABORTED, FIELD, "another request had this key");
    j->status = (int)json_integer_value(json_object_get(v, "status"));
    if (!j->status) { /* it never ended */
        j->begun_ms = json_integer_value(json_object_get(v, "made_ms"));
        return 0;
    }
    j->reply = json_incref(json_object_get(v, "reply"));
    return 1;
}

/* Before the work, without a status, and after it. A restart goes on with the time of the first begin. */
static int keep_reply(const struct job *j, const char *path, const char *request, struct err *e)
{
    _cleanup_json_ json_t *v =
        json_pack("{s:s, s:I, s:i, s:O?}", "request", request, "made_ms",
                  (json_int_t)(!j->status && j->begun_ms ? j->begun_ms : clock_real_ms()), "status",
                  j->status, "reply", j->reply);
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r = jx_dump(v, &text, &len, e);

    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, false, e);
}

int repeat_answer(struct job *j, int (*fn)(struct job *j, struct err *e), struct err *e)
{
    struct repeats *s = j->daemon->repeats;
    _cleanup_free_ char *path = NULL;
    char request[HASH_BYTES];
    struct at_work w = {0};
    int r;

    if (!j->repeat_key)
        return fn(j, e);
    r = check_repeat_key(j->repeat_key, e);
    if (r < 0)
        return r;
    hash_key(j, "key", w.key);
    hash_request(j, request);
    path = answer_path(s, w.key);
    if (!path)
        return err_oom(e);
    WITH_LOCK (&s->lock) {
        r = begin_work(s, &w, e);
    }
    if (r < 0)
        return r;
    r = reply_kept(j, path, request, e);
    if (r == 0) {
        (void)keep_reply(j, path, request, NULL);
        r = fn(j, e);
        if (r == 0) /* the box is there all the same; the next one finds it by its name */
            (void)keep_reply(j, path, request, NULL);
        else
            (void)unlink(path);
    }
    end_work(s, &w, r == 0);
    return r < 0 ? r : 0;
}
