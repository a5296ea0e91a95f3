#pragma once
/*
 * auth: the one secret that clients must know, or none (--auth=open). It is given at the start, or
 * set once later by whoever comes first to an open agent (E2B's /init); from then on it stays.
 * Thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define AUTH_TOKEN_MAX_BYTES 4096

struct auth;

/* token NULL: open. It is copied. */
int auth_new(const char *token, size_t len, struct auth **ret, struct err *e);
struct auth *auth_free(struct auth *a); /* wipes it; accepts NULL; returns NULL */

bool auth_is_open(struct auth *a);
/* In constant time. false when it is open, or given is NULL. */
bool auth_matches(struct auth *a, const char *given);
/* Whether a header can carry it: -ERR_INVALID. */
int auth_check_token(const char *token, struct err *e);
/*
 * Closes an open agent with this token (1 to AUTH_TOKEN_MAX_BYTES printable characters), or finds
 * that it is the one already. -ERR_UNAUTHENTICATED: another one is set; nothing has changed.
 */
int auth_claim(struct auth *a, const char *token, struct err *e);
/* A copy for the caller to wipe and free, or NULL: open, or out of memory. */
char *auth_copy(struct auth *a);
