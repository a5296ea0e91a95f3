#include "dialect/e2b/timetext.h"

#include <stdio.h>
#include <time.h>

#define NS_PER_S 1000000000LL

int timetext_parse(const char *s, int64_t *ret_ns, struct err *e)
{
    struct tm tm = {0};
    char sign = 'Z';
    int n = 0, hours = 0, minutes = 0;
    int64_t ns = 0, unit = NS_PER_S / 10, zone_s, whole;

    if (sscanf(s, "%4d-%2d-%2d%*1[Tt]%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 6 ||
        !n)
        return err_set(e, ERR_INVALID, "must be a time as RFC 3339 has it");
    s += n;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10)
            ns += unit * (*s - '0');
    n = 0;
    if ((*s == '+' || *s == '-') && sscanf(s, "%c%2d:%2d%n", &sign, &hours, &minutes, &n) == 3)
        s += n;
    else if (*s == 'Z' || *s == 'z')
        s++;
    else
        return err_set(e, ERR_INVALID, "must be a time with its zone");
    if (*s)
        return err_set(e, ERR_INVALID, "must be a time, and nothing behind it");
    tm.tm_year -= 1900;
    tm.tm_mon--;
    zone_s = (sign == '-' ? -1 : 1) * ((int64_t)hours * 3600 + (int64_t)minutes * 60);
    if (__builtin_mul_overflow((int64_t)timegm(&tm) - zone_s, NS_PER_S, &whole) ||
        __builtin_add_overflow(whole, ns, &whole))
        return err_set(e, ERR_INVALID, "must be a time between 1678 and 2262");
    *ret_ns = whole;
    return 0;
}
