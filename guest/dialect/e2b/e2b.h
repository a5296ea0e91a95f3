#pragma once
/*
 * e2b: what the E2B dialect keeps for all of its requests: the settings, and POST /init, which may change them.
 * Made by main before there are threads. Thread-safe.
 */
#include <stdbool.h>
#include <stdint.h>

#include "api/rpc.h"
#include "common/err.h"

#define E2B_VERSION "0.6.13" /* the envd whose behaviour this is; SDKs turn features on by it */

struct agent;
struct dialect;
struct e2b;
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

/* Replies of methods: {}; and {NAME: list}, or {} if the list is empty, as protobuf's JSON has it. */
int e2b_reply_empty(json_t **ret, struct err *e);
int e2b_reply_list(const char *name, json_t *list, json_t **ret, struct err *e);

/* user, workdir: the agent's options, or NULL. They are copied. */
int e2b_new(const char *user, const char *workdir, struct e2b **ret, struct err *e);
struct e2b *e2b_free(struct e2b *s); /* accepts NULL; returns NULL */

struct watchers; /* made by CreateWatcher (watchers.c) */
struct watchers *e2b_watchers(struct e2b *s);
int watchers_new(struct watchers **ret, struct err *e);
struct watchers *watchers_free(struct watchers *all); /* drops each; accepts NULL; returns NULL */

/* Copies, the caller's to free; *ret is NULL when none is set. */
int e2b_default_user(struct e2b *s, char **ret, struct err *e);
int e2b_default_workdir(struct e2b *s, char **ret, struct err *e);

/*
 * Adds the variables of every command that is started by E2B's API, whatever /init and the native API say:
 * E2B_SANDBOX, and after an /init with an address for events E2B_EVENTS_ADDRESS. "NAME=VALUE"s at the end of the list.
 */
struct strv_list;
int e2b_add_variables(struct e2b *s, struct strv_list *list, struct err *e);

#define INIT_MAX_BYTES (1024 * 1024)
/*
 * Runs an /init; its body may be empty. -ERR_UNAUTHENTICATED: its token is not the one that is set. On failure nothing
 * has changed. An /init that is older than the newest one seen succeeds and is ignored. Blocks.
 */
int e2b_init(struct agent *a, const char *body, size_t len, struct err *e);
/*
 * The bodies of all /init requests have a budget of their own, for whoever sends one need not have the
 * token. -ERR_EXHAUSTED: it is used up.
 */
int e2b_charge_init(struct e2b *s, size_t len, struct err *e);
void e2b_discharge_init(struct e2b *s, size_t len);

/* For /metrics: what the call before has seen. */
struct usage_clock *e2b_usage_clock(struct e2b *s);

/* The handlers of methods.def, as those of api/rpc.h. */
#define UNARY(fn) int e2b_##fn(const struct rpc_call *call, json_t **ret, struct err *e);
#define SOURCE(fn) int e2b_##fn(const struct rpc_call *call, struct source **ret, struct err *e);
#define INFLOW(fn) int e2b_##fn(const struct rpc_call *call, struct inflow **ret, struct err *e);
#define R(service, method, fn, kind, flags) kind(fn)
#include "dialect/e2b/methods.def"
#undef R
#undef INFLOW
#undef SOURCE
#undef UNARY
