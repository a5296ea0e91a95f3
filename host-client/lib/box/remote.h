#pragma once
/*
 * remote: the boxes of a daemon (bh_options.daemon). A handle has what the daemon said last; a call of the
 * life cycle is one request, and the guest agent's API goes through the daemon's gateway (box->url). What the
 * daemon says is checked here as the answers of a guest agent are.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/buf.h"
#include "common/err.h"
#include "lib/agent/client.h"

#define REMOTE_LONG_MS (31 * 60 * 1000) /* for a snapshot: the daemon gives up after 30 minutes */

struct bh_ctx;
struct bh_box;

/* Opens the context's daemon. "auto" without one that answers: ctx->daemon stays NULL. */
int remote_open(struct bh_ctx *ctx, struct err *e);
/*
 * Before work that a daemon has no way for; what: "removing images". ERR_UNIMPLEMENTED with the field "daemon" if the
 * caller named the daemon. One that "auto" found has the same store, which is open after that.
 */
int remote_leave(struct bh_ctx *ctx, const char *what, struct err *e);
/*
 * After a first call that ended with r: true if the caller asks the store in the place of a daemon that "auto" found. It is
 * gone, and then the context goes on without a daemon; or *box (box may be NULL) is an attached one, and is freed.
 */
bool remote_leaves_it(struct bh_ctx *ctx, int r, struct bh_box **box);

/* By its name or its id. */
int remote_get(struct bh_ctx *ctx, const char *name, struct bh_box **ret, struct err *e);
int remote_get_by_key(struct bh_ctx *ctx, const char *key, struct bh_box **ret, struct err *e);
int remote_attach(struct bh_ctx *ctx, const struct bh_connect_options *o, struct bh_box **ret,
                  struct err *e);
int remote_list(struct bh_ctx *ctx, int (*fn)(void *arg, struct bh_box *box), void *arg,
                struct err *e);
int remote_create(struct bh_ctx *ctx, const struct bh_create_options *o, struct bh_box **ret,
                  struct err *e);
/* Like bh_list_records(), bh_list_events() and bh_list_snapshots(). A result above 0 is fn's. */
int remote_list_records(struct bh_ctx *ctx, int (*fn)(void *arg, const struct bh_record *record),
                        void *arg, struct err *e);
int remote_list_events(struct bh_ctx *ctx, const struct bh_event_options *o,
                       int (*fn)(void *arg, const struct bh_event *event), void *arg,
                       struct err *e);
int remote_list_snapshots(struct bh_ctx *ctx,
                          int (*fn)(void *arg, const struct bh_snapshot_info *info), void *arg,
                          struct err *e);
int remote_remove_snapshot(struct bh_ctx *ctx, const char *name, struct err *e);
int remote_verify_snapshot(struct bh_ctx *ctx, const char *name, int64_t timeout_ms, struct err *e);

/* ---- a box: box->remote is not NULL ---- */

int remote_reload(struct bh_box *box, struct err *e);
/* POST .../STEP with body_take (NULL: {}); the handle has the answer. timeout_ms 0: five minutes. */
int remote_step_take(struct bh_box *box, const char *step, json_t *body, int64_t timeout_ms,
                     struct err *e);
int remote_destroy(struct bh_box *box, int64_t timeout_ms, struct err *e);
int remote_snapshot(struct bh_box *box, const struct bh_snapshot_options *o,
                    int (*fn)(void *arg, const struct bh_snapshot_info *info), void *arg,
                    struct err *e);
int remote_fork(struct bh_box *box, const struct bh_fork_options *o, struct bh_box **ret,
                struct err *e);
int remote_health(struct bh_box *box, int64_t timeout_ms, struct err *e);
/* The limits and isolation that the kernel reports (bh_inspect). */
int remote_inspect(struct bh_box *box, json_t **ret, struct err *e);
int remote_get_url(struct bh_box *box, uint16_t port, char **ret, struct err *e);
/* The gateway wakes the box; this only sees to bh_options.no_resume. */
int remote_wake(struct bh_box *box, struct err *e);
void remote_client_options(struct bh_box *box, int cancel_fd, struct client_options *ret);
/* Of struct agent_ops. A lease that the daemon does not extend is no error: a limit may forbid it. */
int remote_check_gone(struct bh_box *box, struct err *e);
int remote_extend(struct bh_box *box, int64_t lease_ms);
/* The variables of its commands as an object. */
int remote_environment(struct bh_box *box, json_t **ret, struct err *e);
/* The login of its coding agent, and the API that it takes prompts by: {"name","port","username","password",
 * "conversation"}. */
int remote_agent_login(struct bh_box *box, json_t **ret, struct err *e);
/* An event of the box: a turn of the agent is silent. kind: "turn_warning", "turn_stale". */
void remote_note_silence(struct bh_box *box, const char *kind, const char *session,
                         int64_t silent_ms);
/* bh_box_info.json, as box_write_json(); the coding agent's password takes a request. */
int remote_write_json(const struct bh_box *box, bool with_password, struct buf *out, struct err *e);
