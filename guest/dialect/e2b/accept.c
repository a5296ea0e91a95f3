#include "dialect/e2b/accept.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

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
