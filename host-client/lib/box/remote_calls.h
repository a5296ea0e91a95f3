#pragma once
/* remote_calls: what remote.c and remote_lists.c share. */
#include <jansson.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

struct bh_ctx;
struct bh_box;

/* timeout_ms 0: five minutes. */
int remote_call(struct bh_ctx *ctx, const char *method, const char *path, const json_t *body,
                int64_t timeout_ms, json_t **ret, struct err *e);
int remote_get_page(struct bh_ctx *ctx, json_t **ret, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A box of the daemon's JSON. */
int remote_new_box_take(struct bh_ctx *ctx, json_t *v, struct bh_box **ret, struct err *e);
/* A member of a page; ERR_DATA_LOSS if it is no list. */
int remote_page_list(const json_t *page, const char *key, json_t **ret, struct err *e);
/* ERR_DATA_LOSS, with the decoder's reason. */
int remote_bad_answer(struct err *e, const struct err *why);
int remote_tell_snapshot(json_t *v, int (*fn)(void *arg, const struct bh_snapshot_info *info),
                         void *arg, struct err *e);
