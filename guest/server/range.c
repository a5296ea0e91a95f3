#include "server/range.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/str.h"

#include "common/banned.h"

#define NUMBER_BYTES 24

/* One number of "first-last"; false when it is not one. *ret_is_there: it is not empty. */
static bool scan(const char *s, size_t len, uint64_t *ret, bool *ret_is_there)
{
    char text[NUMBER_BYTES];

    *ret_is_there = len > 0;
    if (!len)
        return true;
    if (len >= sizeof(text))
        return false;
    memcpy(text, s, len);
    text[len] = '\0';
    return str_parse_u64(text, 0, UINT64_MAX, ret, NULL) == 0;
}

enum range_kind range_parse(const char *header, uint64_t size, struct range *ret)
{
    uint64_t first = 0, last = 0;
    bool has_first, has_last;
    const char *dash;

    if (!header || strncasecmp(header, "bytes=", 6) != 0 || strchr(header, ','))
        return RANGE_WHOLE;
    header += 6;
    header += strspn(header, " ");
    dash = strchr(header, '-');
    if (!dash || !scan(header, (size_t)(dash - header), &first, &has_first) ||
        !scan(dash + 1, strcspn(dash + 1, " "), &last, &has_last) || (!has_first && !has_last) ||
        (has_first && has_last && last < first))
        return RANGE_WHOLE;
    if (!has_first) { /* the last so many bytes */
        if (!last || !size)
            return RANGE_NONE;
        first = last < size ? size - last : 0;
        last = size - 1;
    } else {
        if (first >= size)
            return RANGE_NONE;
        if (!has_last || last >= size)
            last = size - 1;
    }
    *ret = (struct range){.first = first, .len = last - first + 1};
    return RANGE_PART;
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
