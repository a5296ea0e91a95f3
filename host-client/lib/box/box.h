#pragma once
/*
 * box: struct bh_box from the inside: a row of the store, its spec, its directory, and a client of
 * its guest agent, made on first use.
 *
 * The box's directory, <state_dir>/boxes/<id>/ (0700):
 *   token              the guest agent's token
 *   run/               agent.sock; the box sees this directory as /run/bellhop
 *   monitor.sock .lock .log, exit.json
 *   agent-password, agent-start.json   of the coding agent (bootstrap.h)
 *   secrets/K, env.json                for commands in the box (box_environment.h)
 * The provider keeps its own files beside them.
 */
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/buf.h"
#include "common/err.h"
#include "lib/agent/call.h"
#include "lib/agent/client.h"
#include "lib/util/context.h"
#include "lib/provider/provider.h"
#include "lib/provider/spec.h"
#include "lib/box/store.h"

#define BOX_NAME_BYTES 64 /* spec_is_name(), and a NUL */
#define BOX_TOKEN_BYTES 24
#define BOX_STOP_GRACE_MS 5000
#define BOX_RESUME_MS 90000         /* until a paused box answers again */
#define BOX_WAIT_MS (5 * 60 * 1000) /* for another command that starts or stops the box */

/* In the directory of a box of bh_attach(), beside its token: {"url"}. */
#define BOX_ATTACHED_FILE "attached.json"

struct bh_box {
    struct agent agent; /* first member: lib/agent sees this part of a box */
    struct bh_ctx *ctx;
    struct box_row row;
    struct spec spec;
    const struct provider *provider;
    char *dir;
    const struct snapshot_row *from; /* while it is made from a snapshot; else NULL */
    struct client *client;
    struct bh_box_info info; /* its strings belong to info_json, info_text and the row */
    json_t *info_json;
    char *info_text;
    json_t *remote;       /* a box of a daemon: what that said last (remote.h); else NULL */
    char *url;            /* of a daemon, bh_connect() or bh_attach(): its agent's; else NULL */
    char *token;          /* with url; may be NULL */
    bool is_handle_only;  /* of bh_connect(): it has no row */
    const char *replaces; /* the id of the gone box whose place it takes once it runs; or NULL */
    const char *replaces_why;
};

extern const struct agent_ops box_agent_ops;

int box_check_key(const char *key, struct err *e); /* bh_create_options.key */
void box_clear_info(struct bh_box *box);           /* of bh_box_info(): it is made anew */
/* Takes over the row's content, also on failure. */
int box_new_take(struct bh_ctx *ctx, struct box_row *row, struct bh_box **ret, struct err *e);
/* Opens the context's store, if it is not open. */
int ctx_open_store(struct bh_ctx *ctx, struct err *e);
/* bh_list() of some. */
int box_list(struct bh_ctx *ctx, const struct store_filter *f,
             int (*fn)(void *arg, struct bh_box *box), void *arg, struct bh_error *err);
/* Reads the row anew; drops the client if the box was restarted. */
int box_reload(struct bh_box *box, struct err *e);
void box_view(struct bh_box *box, struct provider_box *ret);

/* Appends bh_box_info.json, with the coding agent's password or without. */
int box_write_json(const struct bh_box *box, bool with_password, struct buf *out, struct err *e);
json_t *box_new_json(const struct bh_box *box, bool with_password); /* NULL: out of memory */
char *box_workdir(const struct bh_box *box);                        /* provider_workdir() of it */
char *box_path(const struct bh_box *box, const char *name);         /* in its directory */
bool box_has_agent(const struct bh_box *box);
bool box_agent_was_started(const struct bh_box *box); /* since the box was made */

/* The client with the context's cancel descriptor. The box owns it. */
int box_client(struct bh_box *box, struct client **ret, struct err *e);
/* A second client, for another thread or for cleaning up. The caller owns it. */
int box_new_client(struct bh_box *box, int cancel_fd, struct client **ret, struct err *e);
int box_client_options(struct bh_box *box, int cancel_fd, struct client_options *ret,
                       char **ret_socket, char **ret_token, struct err *e);

/* Makes sure that the box runs with its monitor, and counts as a use of the box. Starts a
 * stopped box again unless the context forbids that. Every call on a box begins with this. */
int box_wake(struct bh_box *box, struct err *e);
/* The same, but refuses a box that somebody else runs. */
int box_wake_own(struct bh_box *box, struct err *e);
/* The box counts as used while *ret_fd is open. A box attached by bh_connect() has no lease:
 * -1. */
int box_hold(struct bh_box *box, int *ret_fd, struct err *e);
/* ERR_PRECONDITION for a box of bh_connect() or bh_attach(). */
int box_refuse_elsewhere(const struct bh_box *box, struct err *e);
