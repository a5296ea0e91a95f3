#pragma once
/*
 * auth: the token that clients must present, or none (--auth=open). It is given at the start, or set once
 * later by the first caller of an open agent (E2B's /init); it never changes after that. Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define AUTH_TOKEN_MAX_BYTES 4096

struct auth;

/* token: copied; NULL: open. */
int auth_new(const char *token, size_t len, struct auth **ret, struct err *e);
struct auth *auth_free(struct auth *a); /* wipes it; accepts NULL; returns NULL */

bool auth_is_open(struct auth *a);
/* In constant time. False if the agent is open or given is NULL. */
bool auth_matches(struct auth *a, const char *given);
/* -ERR_INVALID: a header can't carry this token. */
int auth_check_token(const char *token, struct err *e);
/*
 * Sets the token of an open agent (1 to AUTH_TOKEN_MAX_BYTES printable characters); succeeds also if this token
 * is set already. -ERR_UNAUTHENTICATED: another token is set; nothing has changed.
 */
int auth_claim(struct auth *a, const char *token, struct err *e);
/* A copy, which the caller wipes and frees. NULL: open, or out of memory. */
char *auth_copy(struct auth *a);
