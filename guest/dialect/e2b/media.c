#include "dialect/e2b/media.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "api/files/files.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

static const struct {
    const char *extension;
    const char *type;
} media_types[] = {
    {"avif", "image/avif"},
    {"css", "text/css; charset=utf-8"},
    {"csv", "text/csv; charset=utf-8"},
    {"gif", "image/gif"},
    {"gz", "application/gzip"},
    {"htm", "text/html; charset=utf-8"},
    {"html", "text/html; charset=utf-8"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"js", "text/javascript; charset=utf-8"},
    {"json", "application/json"},
    {"md", "text/markdown; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"pdf", "application/pdf"},
    {"png", "image/png"},
    {"py", "text/x-python; charset=utf-8"},
    {"sh", "application/x-sh"},
    {"svg", "image/svg+xml"},
    {"tar", "application/x-tar"},
    {"txt", "text/plain; charset=utf-8"},
    {"wasm", "application/wasm"},
    {"webp", "image/webp"},
    {"xml", "text/xml; charset=utf-8"},
    {"zip", "application/zip"},
};

const char *media_type(const char *path)
{
    const char *dot = strrchr(path_name(path), '.');

    for (size_t i = 0; dot && i < N_ELEMENTS(media_types); i++)
        if (strcasecmp(dot + 1, media_types[i].extension) == 0)
            return media_types[i].type;
    return FILES_TYPE;
}

static bool is_printable(const char *s)
{
    for (; *s; s++)
        if ((*s < ' ' || *s > '~') && *s != '\t')
            return false;
    return true;
}

/* RFC 2045's: it stands without quotes. */
static bool is_token(const char *s)
{
    return *s && !s[strcspn(s, " \t()<>@,;:\\\"/[]?=")];
}

static int add_quoted(struct buf *b, const char *name)
{
    int r = buf_adds(b, "filename=\"", NULL);

    for (; *name && r == 0; name++)
        r = buf_addf(b, NULL, "%s%c", *name == '"' || *name == '\\' ? "\\" : "", *name);
    return r < 0 ? r : buf_adds(b, "\"", NULL);
}

static int add_encoded(struct buf *b, const char *name)
{
    int r = buf_adds(b, "filename*=utf-8''", NULL);

    for (; *name && r == 0; name++) {
        bool is_plain = (*name >= '0' && *name <= '9') ||
                        ((*name | 32) >= 'a' && (*name | 32) <= 'z') ||
                        strchr("!#$&+-.^_`{|}~", *name);

        r = buf_addf(b, NULL, is_plain ? "%c" : "%%%02X", (unsigned char)*name);
    }
    return r;
}

char *media_disposition(const char *name)
{
    struct buf b;
    int r;

    buf_init(&b, 4096);
    r = buf_adds(&b, "inline; ", NULL);
    if (r == 0 && !is_printable(name))
        r = add_encoded(&b, name);
    else if (r == 0)
        r = is_token(name) ? buf_addf(&b, NULL, "filename=%s", name) : add_quoted(&b, name);
    if (r < 0) {
        buf_done(&b);
        return NULL;
    }
    return buf_take(&b);
}

/* ---- the coding of a reply -------------------------------------------------------------------- */

#define Q_ONE 1000
#define Q_NONE (-1) /* not named */

struct wishes {
    int gzip;
    int identity;
    int any;
    int others; /* the best of the codings that there are not here */
};

/* "0.5" -> 500; what is no number counts as 1, as with envd. */
static int parse_q(const char *p, size_t len)
{
    int q = 0, unit = Q_ONE;

    if (!len || (*p != '0' && *p != '1'))
        return Q_ONE;
    q = (*p - '0') * Q_ONE;
    for (size_t i = 2; i < len && p[1] == '.' && p[i] >= '0' && p[i] <= '9' && unit > 1; i++)
        q += (p[i] - '0') * (unit /= 10);
    return q > Q_ONE ? Q_ONE : q;
}

static int find_q(const char *params, size_t len)
{
    const char *end = params + len;

    for (const char *p = params; p < end;) {
        size_t n;

        p += strspn(p, "; \t");
        n = strcspn(p, "; \t,");
        if (p < end && n > 2 && strncasecmp(p, "q=", 2) == 0)
            return parse_q(p + 2, n - 2);
        p += n ? n : 1;
    }
    return Q_ONE;
}

static void note_wish(struct wishes *w, const char *name, size_t len, int q)
{
    int *at = &w->others;

    if (len == 4 && strncasecmp(name, "gzip", len) == 0)
        at = &w->gzip;
    else if (len == 8 && strncasecmp(name, "identity", len) == 0)
        at = &w->identity;
    else if (len == 1 && *name == '*')
        at = &w->any;
    *at = q > *at ? q : *at;
}

static struct wishes parse_wishes(const char *header)
{
    struct wishes w = {Q_NONE, Q_NONE, Q_NONE, Q_NONE};

    for (const char *p = header; *p;) {
        size_t len = strcspn(p, ",");
        size_t n;

        while (len && (*p == ' ' || *p == '\t')) {
            p++;
            len--;
        }
        n = strcspn(p, "; \t,");
        if (n)
            note_wish(&w, p, n < len ? n : len, find_q(p + n, n < len ? len - n : 0));
        p += len + (p[len] == ',');
    }
    return w;
}

enum coding accept_coding(const char *header, bool is_whole)
{
    struct wishes w = parse_wishes(header ? header : "");
    bool takes_identity = w.identity > 0 || (w.identity == Q_NONE && w.any != 0);
    int gzip = w.gzip == Q_NONE ? w.any : w.gzip;

    if (!is_whole)
        return takes_identity ? CODING_IDENTITY : CODING_NONE;
    if (!takes_identity)
        return gzip > 0 ? CODING_GZIP : CODING_NONE;
    return w.gzip > 0 && w.gzip > w.identity && w.others <= 0 && w.any <= 0 ? CODING_GZIP
                                                                            : CODING_IDENTITY;
}
