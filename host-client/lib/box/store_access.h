#pragma once
/*
 * store_access: who may use the daemon of a store, and how much: tokens, of which the store has the hashes alone, the
 * quotas of their owners, and how far each webhook has come. Every function is one transaction.
 */
#include <stdint.h>

#include "lib/box/store.h"

#define TOKEN_HASH_BYTES 32  /* SHA-256 */
#define TOKEN_TEXT_BYTES 68  /* "bh_", 256 random bits in hex, NUL */
#define ACCESS_NAME_BYTES 65 /* of a token or an owner, with its NUL */
#define TOKENS_MAX 1000
#define TOKEN_EXPIRES_MAX_MS (INT64_C(10) * 366 * 24 * 3600 * 1000)
#define QUOTAS_MAX 1000

/* The rights of a token; each has those before it. */
enum token_scope { TOKEN_READ = 1, TOKEN_USE, TOKEN_ADMIN };

const char *token_scope_name(enum token_scope scope); /* "read" */
int token_scope_parse(const char *name, enum token_scope *ret, struct err *e);
/* 1 to 64 of letters, digits and "._@-"; field is for the error. */
int access_check_name(const char *field, const char *name, struct err *e);

struct store_token {
    char id[BOX_ID_BYTES]; /* 16 hex digits; no secret */
    uint8_t hash[TOKEN_HASH_BYTES];
    char name[ACCESS_NAME_BYTES];  /* or "" */
    char owner[ACCESS_NAME_BYTES]; /* "": of all boxes */
    enum token_scope scope;
    int64_t created_ms;
    int64_t expires_ms; /* 0: never */
    int64_t used_ms;    /* the last known use; 0: none */
};

/* Checks the facts of a new token and copies them; name and owner may be NULL. */
int token_describe(struct store_token *t, const char *scope, const char *name, const char *owner,
                   struct err *e);
void token_hash(const char *text, size_t len, uint8_t ret[TOKEN_HASH_BYTES]);
/* Makes a token of name, owner, scope and expires_ms; fills in the rest. ret_text is told once, and kept nowhere. */
int store_make_token(struct store *s, struct store_token *t, char ret_text[TOKEN_TEXT_BYTES],
                     struct err *e);
/* Oldest first. fn may not use the store. */
int store_list_tokens(struct store *s, int (*fn)(void *arg, const struct store_token *t), void *arg,
                      struct err *e);
/* By its id, or by a name that one token alone has. */
int store_revoke_token(struct store *s, const char *id_or_name, struct err *e);
int store_set_token_used(struct store *s, const char *id, int64_t used_ms, struct err *e);
json_t *store_token_json(const struct store_token *t); /* without its hash; NULL: no memory */

/* 0: no bound. */
struct store_quota {
    char owner[ACCESS_NAME_BYTES];
    uint32_t boxes;
    uint32_t cpu_millis;
    uint64_t memory_bytes;
    uint64_t disk_bytes;
};
int store_set_quota(struct store *s, const struct store_quota *q, struct err *e); /* all 0: none */
int store_get_quota(struct store *s, const char *owner, struct store_quota *ret, struct err *e);
json_t *store_quota_json(const struct store_quota *q); /* NULL: no memory */
int store_list_quotas(struct store *s, int (*fn)(void *arg, const struct store_quota *q), void *arg,
                      struct err *e);

/* A port of a box that the daemon leads everybody to. At most OPEN_PORTS_MAX. */
#define OPEN_PORTS_MAX 1000
struct store_open_port {
    char box_id[BOX_ID_BYTES];
    uint16_t port;
};
int store_set_open_port(struct store *s, const struct store_open_port *p, bool is_open,
                        struct err *e);
int store_list_open_ports(struct store *s, int (*fn)(void *arg, const struct store_open_port *p),
                          void *arg, struct err *e);

/* The owner of a box that is there, or whose record is: "" if it has none, or is not known. */
int store_owner_of(struct store *s, const char *box_id, char ret[ACCESS_NAME_BYTES], struct err *e);

/* The position (history.h) of the last event that a webhook has taken. 1: found; 0: it is new. */
int store_get_webhook(struct store *s, const char *url, int64_t *ret_position, struct err *e);
int store_set_webhook(struct store *s, const char *url, int64_t position, struct err *e);
