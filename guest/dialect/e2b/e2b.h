#pragma once
/*
 * e2b: what the E2B dialect keeps for all of its requests: the settings that POST /init may change.
 * Made by main before there are threads. Thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define E2B_VERSION "0.6.13" /* the envd whose behaviour this is; SDKs turn features on by it */

struct agent;
struct dialect;
struct e2b;
struct rpc_call;
struct usage_clock;

extern const struct dialect e2b_dialect; /* e2b_dialect.c */
struct e2b *e2b_of(const struct agent *a);

/* The headers of a method's request: rpc_call.headers. */
struct e2b_headers {
    char *user;           /* owned; NULL: none is named */
    int64_t keepalive_ms; /* of silence, before a sign of life */
    bool wants_replay;    /* send earlier output too */
    bool is_legacy;       /* a client that fails on fields that it does not know */
};
const struct e2b_headers *e2b_headers(const struct rpc_call *call);

/* Sets the error of a call past the client's deadline, in Connect's own words. */
int e2b_set_late(struct err *e);

/* user, workdir: the agent's options, or NULL. They are copied. */
int e2b_new(const char *user, const char *workdir, struct e2b **ret, struct err *e);
struct e2b *e2b_free(struct e2b *s); /* accepts NULL; returns NULL */
struct watchers;
struct watchers *e2b_watchers(struct e2b *s); /* made by CreateWatcher */

/* Copies, the caller's to free; *ret is NULL when none is set. */
int e2b_default_user(struct e2b *s, char **ret, struct err *e);
int e2b_default_workdir(struct e2b *s, char **ret, struct err *e);
/* NULL or "": leave it as it is. */
int e2b_set_defaults(struct e2b *s, const char *user, const char *workdir, struct err *e);

/*
 * Variables of every command that is started by E2B's API, whatever /init and the native API say:
 * E2B_SANDBOX, and after e2b_set_events() E2B_EVENTS_ADDRESS. "NAME=VALUE"s at the end of the list.
 */
struct strv_list;
int e2b_add_variables(struct e2b *s, struct strv_list *list, struct err *e);
bool e2b_has_variable(const char *name); /* whether it is one of these, set or not */
/* address: of IPv4 or IPv6, as text. */
int e2b_set_events(struct e2b *s, const char *address, struct err *e);

/*
 * The bodies of all /init requests have a budget of their own, for whoever sends one need not have the
 * token. -ERR_EXHAUSTED: it is used up.
 */
int e2b_charge_init(struct e2b *s, size_t len, struct err *e);
void e2b_discharge_init(struct e2b *s, size_t len);

/* For /metrics: what the call before has seen. */
struct usage_clock *e2b_usage_clock(struct e2b *s);
/* One /init at a time: what it is allowed, it must still be allowed when it is done. */
void e2b_begin_init(struct e2b *s);
void e2b_end_init(struct e2b *s);
/* Within an /init: whether no newer one was done before; and that this one was. */
bool e2b_is_news(const struct e2b *s, int64_t real_ns);
void e2b_note_news(struct e2b *s, int64_t real_ns);
