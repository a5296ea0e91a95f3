#include "lib/util/debug.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"

#define DEBUG_LINE_BYTES 1024

void debug_line(const struct debug *d, const char *part, const char *fmt, ...)
{
    char text[DEBUG_LINE_BYTES];
    va_list ap;

    if (!d || !d->fn)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    d->fn(d->arg, part, text);
}

const char *debug_url(const char *url, char *out, uint32_t size)
{
    const char *host = strstr(url, "://");
    size_t scheme, n;
    const char *at;

    host = host ? host + 3 : url;
    scheme = (size_t)(host - url);
    n = strcspn(host, "?#");
    at = scheme ? memrchr(host, '@', strcspn(host, "/?#")) : NULL;
    if (at) {
        n -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    (void)snprintf(out, size, "%.*s%.*s", (int)scheme, url, (int)n, host);
    return out;
}

char *debug_format(const char *part, const char *text)
{
    _cleanup_free_ char *clean = str_escape(text, strlen(text), "", NULL);
    char now[CLOCK_TEXT_BYTES];
    char *line = NULL;

    clock_text(clock_real_ms(), now);
    if (!clean || asprintf(&line, "%s [%d] %s: %s\n", now, (int)getpid(), part, clean) < 0)
        return NULL;
    return line;
}
