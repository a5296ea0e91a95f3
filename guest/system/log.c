#include "system/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum log_level max_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    max_level = level;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "info", "debug"};
    char line[1024];
    size_t n;
    va_list ap;

    if (level > max_level)
        return;
    n = (size_t)snprintf(line, sizeof(line), "bellhopd: %s: ", names[level]);
    va_start(ap, fmt);
    (void)vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
    va_end(ap);
    n = strlen(line);
    line[n] = '\n';
    if (write(STDERR_FILENO, line, n + 1) < 0)
        return; /* there is nowhere to report it */
}
