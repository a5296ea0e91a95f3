#pragma once
/* sandbox: the debug log of the daemon's work with boxes, which PUT /sandbox/debug switches. */

/* bh_options.debug of all contexts: to standard error, while it is on. Thread-safe. */
void sandbox_debug(void *arg, const char *part, const char *text);
