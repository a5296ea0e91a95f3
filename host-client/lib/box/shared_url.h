#pragma once
/*
 * shared_url: URLs at the daemon: signed ones, which lead to one port of a box or to one file until their time is over
 * and need no token, those of ports that are open to everybody, and those for other machines. The daemon of the state
 * directory must listen on TCP, where who asks reaches it: ERR_PRECONDITION.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define SHARED_URL_FOR_MS (3600 * 1000) /* if the caller names no time */

struct store;

struct shared_target {
    const char *box_id;
    uint16_t port;
    const char *file; /* an absolute path in the box; NULL: the port */
    bool is_lan;      /* the URL is for other machines */
};

/* for_ms: 0: SHARED_URL_FOR_MS; at most SIGNATURE_MAX_MS. ret_until_ms may be NULL. *ret is the caller's. */
int shared_url_sign(const char *state_dir, const struct shared_target *t, int64_t for_ms,
                    char **ret, int64_t *ret_until_ms, struct err *e);
/* The URL of a port without a signature. */
int shared_url_port(const char *state_dir, const struct shared_target *t, char **ret,
                    struct err *e);

/* Opens a port to everybody who reaches the daemon. */
int shared_open_port(struct store *store, const char *state_dir, const struct shared_target *t,
                     char **ret_url, struct err *e);
/* One that is closed is no error. */
int shared_close_port(struct store *store, const char *box_id, uint16_t port, struct err *e);
