#pragma once
/*
 * store: the boxes of one state directory (SQLite, WAL). The intent is written before the provider
 * is asked. Commands and monitors use it at once: every function is one transaction.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

struct store;

#define BOX_ID_BYTES 17

struct box_row {
    char id[BOX_ID_BYTES]; /* 16 hex digits */
    char *name;
    enum bh_state state;
    char *cause;
    int64_t created_ms;
    int64_t state_since_ms;
    int64_t deadline_ms; /* 0 unless it has a running lease */
    bool made;           /* it ran once: its disk is worth keeping */
    json_t *spec;        /* spec_to_json() */
    json_t *agent;       /* {} or {"name","version","port","username","exec_id"} */
    /* its project's directory; "": none. NULL: an older store did not record it */
    char *project;
    char *remote;  /* its git remote, or the cloned repository; or "" */
    json_t *ports; /* {"7777": 40123}: the monitor's forwards; "0" is the guest agent */
};
void box_row_done(struct box_row *row);
/* Should its processes exist? It is running, or in error with its lease still on. A box whose
 * start failed is in error without a lease. */
bool box_row_is_live(const struct box_row *row);

int store_open(const char *state_dir, struct store **ret, struct err *e);
struct store *store_close(struct store *s);

/* Adds a row in state requested; ERR_EXISTS: the name is taken. Fills row->id and times. */
int store_add(struct store *s, const char *name, const json_t *spec, struct box_row *ret,
              struct err *e);
int store_find(struct store *s, const char *name, struct box_row *ret, struct err *e); /* by name */
int store_get(struct store *s, const char *id, struct box_row *ret, struct err *e);
int store_list(struct store *s, int (*fn)(void *arg, const struct box_row *row), void *arg,
               struct err *e);
/* ERR_PRECONDITION: lifecycle.c has no such transition. */
int store_set_state(struct store *s, const char *id, enum bh_state state, const char *cause,
                    struct err *e);
int store_set_deadline(struct store *s, const char *id, int64_t deadline_ms, struct err *e);
int store_set_agent(struct store *s, const char *id, const json_t *agent, struct err *e);
int store_set_project(struct store *s, const char *id, const char *path, const char *remote,
                      struct err *e);
int store_set_port(struct store *s, const char *id, uint16_t port, uint16_t host_port,
                   struct err *e);
int store_remove(struct store *s, const char *id, struct err *e);

/* Takes an exclusive lock on a name across processes, by flock on <state_dir>/locks/NAME;
 * close() releases it. Waits until the deadline or the cancel descriptor. */
int store_lock_name(struct store *s, const char *name, int64_t deadline_mono_ms, int cancel_fd,
                    int *ret_fd, struct err *e);
/* Removes the lock's file; call it only with the lock held. */
void store_forget_lock(struct store *s, const char *name);
