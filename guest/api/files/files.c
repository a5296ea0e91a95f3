#include "api/files/files.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent.h"
#include "api/dialect.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "fs/etag.h"
#include "http/respond.h"
#include "http/server.h"
#include "http/route.h"

int files_caller_new(struct request *q, const char *user, const char *cwd, struct fs_caller **ret,
                     struct err *e)
{
    const struct agent *a = request_agent(q);

    return fs_caller_new(a->root, user ? user : a->default_user, cwd ? cwd : a->workdir, ret, e);
}

int files_check_query(struct request *q, const char *const *known, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r;

    r = uri_query_unknown(q->query, known, &name, e);
    if (r < 0 || !name)
        return r;
    return err_field(e, ERR_INVALID, name, "unknown parameter '%.60s'", name);
}

/* The header that shows that a proxy passed the request on, or NULL. */
static const char *proxy_header(struct request *q)
{
    static const char *const names[] = {"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Uri"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (request_header(q, names[i]))
            return names[i];
    return NULL;
}

/*
 * Many proxies make one slash of two: "/v1/files//etc/x" arrives as "/v1/files/etc/x", which nothing tells from a
 * relative path. Behind a proxy a relative path needs its base.
 */
static int refuse_ambiguous(struct request *q, const char *cwd, struct err *e)
{
    const char *header = q->rest[0] != '/' && !cwd ? proxy_header(q) : NULL;

    if (!header)
        return 0;
    return err_field(e, ERR_INVALID, "path",
                     "the request came through a proxy (%s), which may have made '%.200s' of "
                     "'/%.200s': use /v1/files?path=, or say ?cwd=",
                     header, q->rest, q->rest);
}

int files_take_path(struct request *q, const char *cwd, struct err *e)
{
    int r = q->route->flags & ROUTE_REST ? 0 : request_query(q, "path", &q->rest, e);

    if (r < 0)
        return r;
    if (q->route->flags & ROUTE_REST && !*q->rest && q->verb & (VERB_GET | VERB_HEAD)) {
        free(q->rest);
        q->rest = strdup("."); /* its entries, if a dialect lists them */
        if (!q->rest)
            return err_oom(e);
    }
    if (q->rest && *q->rest)
        return q->route->flags & ROUTE_REST && request_dialect(q) == &native_dialect
                   ? refuse_ambiguous(q, cwd, e)
                   : 0;
    return err_field(e, ERR_INVALID, "path",
                     "a path is needed: /v1/files/{path} or /v1/files?path=");
}

int files_check_file_query(struct request *q, const char *const *known, struct err *e)
{
    return files_check_query(q, known + (q->route->flags & ROUTE_REST ? 1 : 0), e);
}

struct header {
    const char *name;
    struct buf text;
    bool is_there;
};

static int add_header_line(void *arg, const char *name, const char *value)
{
    struct header *h = arg;
    int r = 0;

    if (strcasecmp(name, h->name) != 0)
        return 0;
    if (h->is_there)
        r = buf_add(&h->text, ", ", 2, NULL);
    h->is_there = true;
    return r < 0 ? r : buf_adds(&h->text, value, NULL);
}

int files_header(struct request *q, const char *name, char **ret, struct err *e)
{
    struct header h = {.name = name};
    int r;

    buf_init(&h.text, SERVER_POOL_BYTES); /* where the library has them all */
    r = request_each_header(q, add_header_line, &h);
    if (!h.is_there)
        return 0;
    if (r < 0) {
        buf_done(&h.text);
        return err_oom(e);
    }
    *ret = buf_take(&h.text);
    return 0;
}

int files_add_tag(struct request *q, int r, const char *tag, const struct err *e)
{
    char text[FS_ETAG_BYTES + 4];

    if (r != -ERR_ABORTED || !tag[0] || respond_bytes_status(e) != HTTP_PRECONDITION_FAILED)
        return r;
    (void)snprintf(text, sizeof(text), "\"%s\"", tag);
    (void)request_reply_header(q, "ETag", text, NULL);
    return r;
}

int fs_json_caller(const struct rpc_call *call, const char *user, struct fs_caller **ret,
                   struct err *e)
{
    const struct agent *a = call->agent;

    return fs_caller_new(a->root, user ? user : a->default_user, a->workdir, ret, e);
}

int jx_fs_mode(json_t *v, void *out, struct err *e)
{
    const char *s = json_is_string(v) ? json_string_value(v) : NULL;
    struct fs_mode *m = out;
    mode_t mode = 0;
    size_t n = s ? strlen(s) : 0;

    if (!s || n < 3 || n > 5 || strspn(s, "01234567") != n)
        return err_set(e, ERR_INVALID, "must be an octal mode in a string, as \"0644\"");
    for (; *s; s++)
        mode = (mode << 3) | (mode_t)(*s - '0');
    if (mode > 07777)
        return err_set(e, ERR_INVALID, "must be at most \"7777\"");
    *m = (struct fs_mode){true, mode};
    return 0;
}

/* The digits after the point as nanoseconds; -1 when it is not a "Z" that ends them. */
static long parse_fraction(const char *p)
{
    long ns = 0;
    int digits = 0;

    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9'; p++, digits++)
            ns = digits < 9 ? ns * 10 + (*p - '0') : ns;
        if (!digits)
            return -1;
        for (; digits < 9; digits++)
            ns *= 10;
    }
    return strcmp(p, "Z") == 0 ? ns : -1;
}

#define TIME_BYTES 19 /* without the fraction */

/* Digits where they have to be, and a day that its month has. */
static bool parse_time(const char *s, time_t *ret)
{
    static const char form[TIME_BYTES + 1] = "dddd-dd-ddTdd:dd:dd";
    struct tm tm = {0}, same;

    for (size_t i = 0; form[i]; i++)
        if (form[i] == 'd' ? s[i] < '0' || s[i] > '9' : s[i] != form[i])
            return false;
    (void)sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                 &tm.tm_min, &tm.tm_sec);
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    same = tm;
    *ret = timegm(&same);
    /* A leap second is the first one of the next minute. */
    return tm.tm_sec <= 60 && tm.tm_min <= 59 && tm.tm_hour <= 23 && tm.tm_mon >= 0 &&
           tm.tm_mon <= 11 && tm.tm_mday >= 1 && tm.tm_mday <= 31 &&
           (tm.tm_sec == 60 || same.tm_mday == tm.tm_mday);
}

int jx_fs_time(json_t *v, void *out, struct err *e)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    struct fs_time *t = out;
    time_t seconds;
    long ns;

    if (!parse_time(s, &seconds) || (ns = parse_fraction(s + TIME_BYTES)) < 0)
        return err_set(e, ERR_INVALID,
                       "must be a time as \"2026-11-22T01:35:00Z\", with a fraction or without");
    *t = (struct fs_time){true, {.tv_sec = seconds, .tv_nsec = ns}};
    return 0;
}

void fs_json_time(const struct timespec *t, char out[FS_JSON_TIME_BYTES])
{
    struct tm tm;

    (void)gmtime_r(&t->tv_sec, &tm);
    (void)snprintf(out, FS_JSON_TIME_BYTES, "%04d-%02d-%02dT%02d:%02d:%02d.%09ldZ",
                   tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                   t->tv_nsec);
}

static json_t *new_known(const struct fs_info *i)
{
    char mode[8], mtime[FS_JSON_TIME_BYTES];

    (void)snprintf(mode, sizeof(mode), "%04o", (unsigned)(i->st.st_mode & 07777));
    fs_json_time(&i->st.st_mtim, mtime);
    return json_pack("{s:o, s:o, s:s, s:I, s:s, s:I, s:I, s:s, s:s, s:s, s:I}", "path",
                     jx_new_path(i->path), "name", jx_new_path(path_name(i->path)), "type",
                     fs_type_name(i->st.st_mode), "size", (json_int_t)i->st.st_size, "mode", mode,
                     "uid", (json_int_t)i->st.st_uid, "gid", (json_int_t)i->st.st_gid, "user",
                     i->user, "group", i->group, "mtime", mtime, "links",
                     (json_int_t)i->st.st_nlink);
}

json_t *fs_json_info(const struct fs_info *i)
{
    _cleanup_json_ json_t *obj = NULL;
    int r = 0;

    if (i->st.st_mode)
        obj = new_known(i);
    else
        obj = json_pack("{s:o, s:o}", "path", jx_new_path(i->path), "name",
                        jx_new_path(path_name(i->path)));
    if (i->st.st_mode && i->target)
        r = json_object_set_new(obj, "target", jx_new_path(i->target));
    if (r == 0 && i->st.st_mode && i->etag[0])
        r = json_object_set_new(obj, "etag", json_string(i->etag));
    if (r == 0 && i->error.code)
        r = json_object_set_new(obj, "error", jx_new_error(&i->error));
    return r == 0 ? json_incref(obj) : NULL;
}
