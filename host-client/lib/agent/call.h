#pragma once
/* params: JSON requests of the guest agent, field by field: what is not set is left out. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

/* A request with this path, made absolute; NULL with *e set. */
json_t *params_new(struct bh_box *box, const char *key, const char *path, struct err *e);
void params_text(json_t *p, const char *key, const char *s);
void params_flag(json_t *p, const char *key, bool on);
void params_count(json_t *p, const char *key, uint64_t n);
void params_list(json_t *p, const char *key, const char *const *list);
void params_mode(json_t *p, const char *key, uint32_t mode); /* "0644" */
int params_path(json_t *p, struct bh_box *box, const char *key, const char *path, struct err *e);

/* Wakes the box and calls; takes params, which may be NULL after an error. */
int params_call_take(struct bh_box *box, const char *method, json_t *params, json_t **ret,
                     struct err *e);

/* "" when it is not there. */
const char *params_get(json_t *obj, const char *key);
