#pragma once
/*
 * debug: the lines of the debug log, which the caller of the library takes (bh_options.debug). A
 * line has no token, password or value of a variable; a URL has neither user nor query.
 */
#include <stdint.h>

struct debug {
    void (*fn)(void *arg, const char *part, const char *text); /* NULL: nobody listens */
    void *arg;
};

/* `part` is "provider", "state", "http" or "host". d may be NULL. */
void debug_line(const struct debug *d, const char *part, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A line of a log: time, process, part and text, with its control characters escaped and a line feed.
 * free() it; NULL: out of memory. */
char *debug_format(const char *part, const char *text);
/* A URL without user, query and fragment, cut to the buffer. Returns out. */
const char *debug_url(const char *url, char *out, uint32_t size);
