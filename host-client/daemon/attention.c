#include "daemon/attention.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "event/pool.h"
#include "lib/box/box.h"
#include "lib/box/bringup.h"
#include "lib/box/lease.h"

/* A box that was checked lately. */
struct checked {
    char box_id[BOX_ID_BYTES];
    int64_t until_ms;
};

/* A box that clients follow. */
struct followed {
    char box_id[BOX_ID_BYTES];
    unsigned n;
    int64_t next_ms; /* of its lease */
    struct followed *next;
};

struct attention {
    struct daemon *daemon;
    int64_t keep_ms;
    pthread_mutex_t lock;
    /* guarded by lock: */
    struct followed *followed;
    struct checked *checked;
    size_t n_checked;
    bool is_keeping; /* a worker extends leases */
    bool is_over;
};

/* ---- boxes that should run are checked when a client connects ---- */

/* With the lock. True once in ATTENTION_CHECK_MS for each box. */
static bool take_check(struct attention *a, const char *box_id, int64_t now_ms)
{
    struct checked *grown;
    size_t n = 0;

    for (size_t i = 0; i < a->n_checked; i++) {
        if (a->checked[i].until_ms <= now_ms)
            continue;
        if (strcmp(a->checked[i].box_id, box_id) == 0)
            return false;
        a->checked[n++] = a->checked[i];
    }
    a->n_checked = n;
    grown = n < ATTENTION_MAX ? realloc(a->checked, (n + 1) * sizeof(*grown)) : NULL;
    if (!grown)
        return true;
    a->checked = grown;
    (void)snprintf(grown[n].box_id, sizeof(grown[n].box_id), "%s", box_id);
    grown[n].until_ms = now_ms + ATTENTION_CHECK_MS;
    a->n_checked = n + 1;
    return true;
}

void attention_check(struct attention *a, struct bh_box *box)
{
    bool is_due = false;

    if (!box_row_is_live(&box->row))
        return;
    WITH_LOCK (&a->lock) {
        is_due = take_check(a, box->row.id, clock_mono_ms());
    }
    if (!is_due)
        return;
    box->ctx->trusts_store = false;
    bringup_notice(box);
    box->ctx->trusts_store = true;
}

/* ---- the lease of a box that is followed ---- */

/* With the lock. The first client's box is due at once. */
static void follow_box(struct attention *a, const char *box_id)
{
    struct followed *b = a->followed;

    while (b && strcmp(b->box_id, box_id) != 0)
        b = b->next;
    if (!b && (b = calloc(1, sizeof(*b)))) {
        (void)snprintf(b->box_id, sizeof(b->box_id), "%s", box_id);
        b->next = a->followed;
        a->followed = b;
    }
    if (b)
        b->n++;
}

/* With the lock. */
static void unfollow_box(struct attention *a, const char *box_id)
{
    for (struct followed **at = &a->followed; *at; at = &(*at)->next) {
        struct followed *b = *at;

        if (strcmp(b->box_id, box_id) != 0)
            continue;
        if (--b->n == 0) {
            *at = b->next;
            free(b);
        }
        return;
    }
}

/* With the lock: a box whose lease is due. */
static bool take_due(struct attention *a, int64_t now_ms, char box_id[BOX_ID_BYTES])
{
    for (struct followed *b = a->followed; b; b = b->next) {
        if (b->next_ms > now_ms)
            continue;
        b->next_ms = now_ms + a->keep_ms;
        memcpy(box_id, b->box_id, BOX_ID_BYTES);
        return true;
    }
    return false;
}

/* Only a box that runs: to look at a box is no reason to wake it. */
static void extend_lease(struct bh_ctx *ctx, const char *box_id)
{
    struct bh_box *box = NULL;

    if (bh_get_by_id(ctx, box_id, &box, NULL) == 0 && box->row.state == BH_STATE_RUNNING)
        (void)bh_extend(box, LEASE_LIFT_MS, NULL, NULL);
    (void)bh_box_free(box);
}

static void run_keeper(void *arg)
{
    struct attention *a = arg;
    struct bh_ctx *ctx = NULL;
    bool is_due = contexts_take(a->daemon->contexts, "daemon", &ctx, NULL) == 0;

    if (is_due)
        ctx->no_resume = ctx->trusts_store = true;
    while (is_due) {
        char box_id[BOX_ID_BYTES];

        WITH_LOCK (&a->lock) {
            is_due = !a->is_over && take_due(a, clock_mono_ms(), box_id);
        }
        if (is_due)
            extend_lease(ctx, box_id);
    }
    contexts_give(a->daemon->contexts, ctx);
    WITH_LOCK (&a->lock) {
        a->is_keeping = false;
    }
}

void attention_tick(struct attention *a)
{
    bool must_start = false;

    WITH_LOCK (&a->lock) {
        for (const struct followed *b = a->followed; b; b = b->next)
            must_start |= b->next_ms <= clock_mono_ms();
        must_start = must_start && !a->is_keeping && !a->is_over;
        a->is_keeping |= must_start;
    }
    if (must_start && pool_run(a->daemon->pool, run_keeper, a, NULL) < 0)
        WITH_LOCK (&a->lock) {
            a->is_keeping = false;
        }
}

void attention_follow(struct attention *a, const char *box_id)
{
    if (!*box_id)
        return;
    WITH_LOCK (&a->lock) {
        follow_box(a, box_id);
    }
    attention_tick(a);
}

void attention_unfollow(struct attention *a, const char *box_id)
{
    WITH_LOCK (&a->lock) {
        unfollow_box(a, box_id);
    }
}

int64_t attention_tick_ms(const struct attention *a, int64_t most_ms)
{
    return a->keep_ms < most_ms ? a->keep_ms : most_ms;
}

/* ---- its life ---- */

int attention_new(struct daemon *d, int64_t keep_ms, struct attention **ret, struct err *e)
{
    struct attention *a = calloc(1, sizeof(*a));

    if (!a)
        return err_oom(e);
    a->daemon = d;
    a->keep_ms = keep_ms > 0 ? keep_ms : ATTENTION_KEEP_MS;
    (void)pthread_mutex_init(&a->lock, NULL);
    *ret = a;
    return 0;
}

void attention_quiesce(struct attention *a)
{
    if (a)
        WITH_LOCK (&a->lock) {
            a->is_over = true;
        }
}

struct attention *attention_free(struct attention *a)
{
    if (!a)
        return NULL;
    while (a->followed)
        unfollow_box(a, a->followed->box_id);
    free(a->checked);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    return NULL;
}
