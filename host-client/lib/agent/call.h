#pragma once
/*
 * call: the steps that the bh_ calls of this folder have in common: start the box if it is stopped,
 * get a client of its guest agent, build a request field by field, read the reply. A field that is
 * not set is left out.
 *
 * A box's life is the business of lib/box. A struct bh_box begins with a struct agent, through
 * which lib/box hands in the operations that a call needs, so that this folder knows nothing of
 * stores, providers or monitors.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "common/jsonx.h"
#include "lib/agent/client.h"

struct agent_ops {
    /* Starts a stopped box unless the context forbids it, and counts as use of the box. */
    int (*wake)(struct bh_box *box, struct err *e);
    /* ERR_PRECONDITION if the box does not run; starts nothing and is no use of the box. */
    int (*check_live)(struct bh_box *box, struct err *e);
    /* ERR_ABORTED if the box was stopped or removed since get_mark(), also if it runs again: no
     * retry can succeed. */
    int (*check_gone)(struct bh_box *box, int64_t mark, struct err *e);
    int64_t (*get_mark)(struct bh_box *box);
    /* The box counts as used while *ret_fd is open; -1 for a box that has no lease. */
    int (*hold)(struct bh_box *box, int *ret_fd, struct err *e);
    /* The box lives at least as long as a command with this timeout; 0: no timeout, no change. */
    int (*extend_lease)(struct bh_box *box, int64_t timeout_ms, struct err *e);
    /* The box's own client, with the context's cancel descriptor; freed with the box. */
    int (*get_client)(struct bh_box *box, struct client **ret, struct err *e);
    /* A client for another thread or for cleaning up; the caller frees it. */
    int (*new_client)(struct bh_box *box, int cancel_fd, struct client **ret, struct err *e);
    int (*get_cancel_fd)(const struct bh_box *box);
    /* The directory in which commands start; free() it. NULL: out of memory. */
    char *(*new_workdir)(const struct bh_box *box);
    /* The environment of a command as a JSON object, with more ("K=V", or NULL) on top. */
    int (*new_environment)(struct bh_box *box, const char *const *more, json_t **ret,
                           struct err *e);
};

struct agent {
    const struct agent_ops *ops;
};

static inline const struct agent_ops *agent_ops(const struct bh_box *box)
{
    return ((const struct agent *)(const void *)box)->ops;
}

/* Wakes the box and gets its client. */
int agent_begin(struct bh_box *box, struct client **ret, struct err *e);
/* A path relative to the workdir becomes absolute; free() *ret. key: the field that an error
 * names. */
int agent_resolve(const struct bh_box *box, const char *key, const char *path, char **ret,
                  struct err *e);
/* Checks the path, wakes the box and gets its client. A box that was recreated by that may have
 * another working directory: the path is resolved afterwards. */
int agent_begin_on_path(struct bh_box *box, const char *path, struct client **ret_client,
                        char **ret_path, struct err *e);
/* A stored deadline for the waits of a call that takes timeout_ms; 0: none. */
int64_t agent_deadline(int64_t timeout_ms);

/* ---- requests ---- */

/*
 * Fields are set one after the other; the first that cannot be set fills *e, and agent_call_take()
 * then fails with that. NULL, false and 0 leave a field out.
 */
void params_set_take(json_t *p, const char *key, json_t *value, struct err *e);
/* Relative to the workdir; made absolute. */
void params_set_path(json_t *p, const struct bh_box *box, const char *key, const char *path,
                     struct err *e);
void params_set_text(json_t *p, const char *key, const char *s, struct err *e);
void params_set_flag(json_t *p, const char *key, bool on, struct err *e);
void params_set_count(json_t *p, const char *key, uint64_t n, struct err *e);
void params_set_list(json_t *p, const char *key, const char *const *list, struct err *e);
void params_set_mode(json_t *p, const char *key, uint32_t mode, struct err *e); /* "0644" */

/* Wakes the box and calls. timeout_ms 0: none. Fails at once if *e is set or params is NULL. */
int agent_call_take(struct bh_box *box, enum rpc_method method, json_t *params, int64_t timeout_ms,
                    json_t **ret, struct err *e);

/* ---- replies ---- */

/* Fields of a reply; "" and 0 if missing. */
const char *reply_text(const json_t *obj, const char *key);
int64_t reply_count(const json_t *obj, const char *key);
/* The bytes of an object {"text"} or {"b64"} that has other fields too; jx_bytes_done(). */
int reply_bytes(json_t *obj, struct jx_bytes *ret, struct err *e);
