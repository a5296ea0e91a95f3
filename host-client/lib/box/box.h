#pragma once
/*
 * box: struct bh_box from the inside: a row of the store, its spec, its directory, and a client of
 * its guest agent, made when it is first needed.
 *
 * The box's directory, <state_dir>/boxes/<id>/ (0700):
 *   token              the guest agent's token
 *   run/               agent.sock; what the box sees as /run/bellhop
 *   monitor.sock .lock .log, exit.json
 *   agent-password, agent-start.json   of the coding agent (bootstrap.h)
 *   secrets/K, env.json                what commands in the box get
 *   and what its provider keeps there
 */
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/agent/call.h"
#include "lib/agent/client.h"
#include "lib/util/context.h"
#include "lib/provider/provider.h"
#include "lib/provider/spec.h"
#include "lib/box/store.h"

#define BOX_TOKEN_BYTES 24
#define BOX_STOP_GRACE_MS 5000
#define BOX_WAIT_MS (5 * 60 * 1000) /* for a box that is being started or stopped */

struct bh_box {
    struct agent agent; /* first: what lib/agent knows of a box */
    struct bh_ctx *ctx;
    struct box_row row;
    struct spec spec;
    const struct provider *provider;
    char *dir;
    struct client *client;
    struct bh_box_info info; /* its strings belong to info_json, info_text and the row */
    json_t *info_json;
    char *info_text;
    char *url;   /* only connected to (connect.c): its agent's; else NULL */
    char *token; /* with url: or NULL */
};

extern const struct agent_ops box_agent_ops;

/* Takes the row's content, also on failure. */
int box_new_take(struct bh_ctx *ctx, struct box_row *row, struct bh_box **ret, struct err *e);
/* The row as it is now; drops the client when the box is another run of itself. */
int box_reload(struct bh_box *box, struct err *e);
void box_view(struct bh_box *box, struct provider_box *ret);

char *box_workdir(const struct bh_box *box);                /* provider_workdir() of it */
char *box_path(const struct bh_box *box, const char *name); /* in its directory */
bool box_has_agent(const struct bh_box *box);

/* The box's client, with the context's cancel descriptor; the box's to free. */
int box_client(struct bh_box *box, struct client **ret, struct err *e);
/* Another one, for another thread or for cleaning up; the caller's. */
int box_new_client(struct bh_box *box, int cancel_fd, struct client **ret, struct err *e);
int box_client_options(struct bh_box *box, int cancel_fd, struct client_options *ret,
                       char **ret_socket, char **ret_token, struct err *e);

/* The box runs, has its monitor, and this counts as use of it: started again when it is stopped,
 * unless the context forbids it. What every call on a box begins with. */
int box_wake(struct bh_box *box, struct err *e);
/* The same for what only a box of ours can do. */
int box_wake_own(struct bh_box *box, struct err *e);
/* While *ret_fd is open the box counts as used. One that is only connected to has no lease: -1. */
int box_hold(struct bh_box *box, int *ret_fd, struct err *e);
