#include "http/range.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DIGITS "0123456789"

/* Reads a number at *p, and moves *p behind it. A number that is too large is saturated. */
static bool scan_number(const char **p, uint64_t *ret)
{
    size_t n = strspn(*p, DIGITS);
    uint64_t v = 0;

    if (!n)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned digit = (unsigned)((*p)[i] - '0');

        v = v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : v * 10 + digit;
    }
    *p += n;
    *ret = v;
    return true;
}

/* "FIRST-LAST", "FIRST-" or "-COUNT" at *p. 1: *ret is in the file; 0: it is not; -1: no range. */
static int scan_range(const char **p, uint64_t size, struct range *ret)
{
    uint64_t first = 0, last = 0;
    bool has_first = scan_number(p, &first);
    bool has_last;

    if (*(*p)++ != '-')
        return -1;
    has_last = scan_number(p, &last);
    if ((!has_first && !has_last) || (has_first && has_last && last < first))
        return -1;
    if (!has_first) {
        if (!last || !size)
            return 0;
        first = last < size ? size - last : 0;
        last = size - 1;
    }
    if (first >= size)
        return 0;
    if (!has_last || last >= size)
        last = size - 1;
    *ret = (struct range){.first = first, .len = last - first + 1};
    return 1;
}

static uint64_t end_of(const struct range *r)
{
    return r->first + r->len;
}

static bool ranges_touch(const struct range *a, const struct range *b)
{
    uint64_t gap = a->first > b->first ? a->first : b->first;
    uint64_t end = end_of(a) < end_of(b) ? end_of(a) : end_of(b);

    return gap <= end || gap - end < RANGE_JOIN_BYTES;
}

/* Adds a range, joined with those that it touches, in the place of the first of them. */
static void add_range(struct range *v, size_t *n, struct range r)
{
    size_t at = *n;

    for (size_t i = 0; i < *n;) {
        uint64_t end;

        if (!ranges_touch(&v[i], &r)) {
            i++;
            continue;
        }
        end = end_of(&r) > end_of(&v[i]) ? end_of(&r) : end_of(&v[i]);
        r.first = r.first < v[i].first ? r.first : v[i].first;
        r.len = end - r.first;
        at = i < at ? i : at;
        (*n)--;
        (void)memmove(&v[i], &v[i + 1], (*n - i) * sizeof(*v));
        i = 0; /* it has grown: compare with all again */
    }
    at = at < *n ? at : *n;
    (void)memmove(&v[at + 1], &v[at], (*n - at) * sizeof(*v));
    v[at] = r;
    (*n)++;
}

enum range_kind range_parse(const char *header, uint64_t size, struct range_set *ret)
{
    struct range v[RANGE_MAX_ASKED + 1];
    size_t n = 0, n_asked = 0;
    const char *p;

    if (!header || strncasecmp(header, "bytes=", 6) != 0)
        return RANGE_WHOLE;
    for (p = header + 6; *p;) {
        struct range r;
        int is_in;

        p += strspn(p, " \t");
        if (*p == ',') {
            p++;
            continue;
        }
        if (!*p)
            break;
        is_in = scan_range(&p, size, &r);
        p += is_in < 0 ? 0 : strspn(p, " \t");
        if (is_in < 0 || (*p && *p != ',') || ++n_asked > RANGE_MAX_ASKED)
            return RANGE_WHOLE;
        if (is_in)
            add_range(v, &n, r);
    }
    if (!n_asked || n > RANGE_MAX_PARTS)
        return RANGE_WHOLE;
    if (!n)
        return RANGE_NONE;
    ret->n = n;
    (void)memcpy(ret->v, v, n * sizeof(*v));
    return RANGE_PART;
}

static bool scan_place(const char *p, struct range_place *ret)
{
    uint64_t first, last;

    if (strncasecmp(p, "bytes ", 6) != 0)
        return false;
    p += 6;
    p += strspn(p, " ");
    if (!scan_number(&p, &first) || *p++ != '-' || !scan_number(&p, &last) || *p++ != '/' ||
        last < first || last >= INT64_MAX)
        return false;
    *ret = (struct range_place){.range = {.first = first, .len = last - first + 1}};
    ret->has_size = *p != '*';
    if (ret->has_size && (!scan_number(&p, &ret->size) || ret->size <= last))
        return false;
    p += !ret->has_size;
    return !p[strspn(p, " ")];
}

int range_parse_place(const char *header, struct range_place *ret, struct err *e)
{
    struct range_place place;

    if (!scan_place(header, &place))
        return err_field(e, ERR_INVALID, "Content-Range",
                         "must be as \"bytes 0-99/1000\" or \"bytes 0-99/*\"");
    *ret = place;
    return 0;
}

void range_format_date(time_t t, char out[RANGE_DATE_BYTES])
{
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm tm = {0};

    (void)gmtime_r(&t, &tm);
    (void)snprintf(out, RANGE_DATE_BYTES, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday],
                   tm.tm_mday, months[tm.tm_mon], (tm.tm_year + 1900) % 10000, tm.tm_hour,
                   tm.tm_min, tm.tm_sec);
}

bool range_parse_date(const char *text, time_t *ret)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                        "%a %b %e %H:%M:%S %Y"};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);

        if (end && !*end) {
            *ret = timegm(&tm);
            return true;
        }
    }
    return false;
}
