#pragma once
/*
 * store: the boxes of one state directory (SQLite, WAL). The intent is written before the provider
 * is asked. Commands and monitors use it at once: every function is one transaction. A change of a
 * box's state and its event (history.h) are one transaction too.
 *
 * The file store.reserve keeps room on the disk. If the disk is full, it is spent on what frees
 * room: boxes that are stopped and removed. Without it such a change is ERR_EXHAUSTED too.
 *
 * The times of a box never run backwards: where the clock does, the last time is used again.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

struct store;

#define BOX_ID_BYTES 17

#define STORE_KEY_BYTES 512 /* without a NUL */
#define STORE_KEYS_MAX 1000 /* of a box */

/* 0: it has not happened. */
struct box_times {
    int64_t created_ms;
    int64_t updated_ms; /* the last change of its state, its project or its coding agent */
    int64_t paused_ms;
    int64_t resumed_ms;
    int64_t used_ms; /* the last known use */
};

struct box_row {
    char id[BOX_ID_BYTES]; /* 16 hex digits */
    char *name;
    enum bh_state state;
    char *cause;
    struct box_times times;
    int64_t state_since_ms;
    int64_t deadline_ms; /* 0 unless it has a running lease */
    bool made;           /* it ran once: its disk is worth keeping */
    json_t *spec;        /* spec_to_json() */
    json_t *agent;       /* {} or {"name","version","port","username","exec_id"} */
    /* its project's directory; "": none. NULL: an older store did not record it */
    char *project;
    char *remote;     /* its git remote, or the cloned repository; or "" */
    json_t *ports;    /* {"7777": 40123}: the monitor's forwards; "0" is the guest agent */
    char *keys;       /* as the database has them: for store_keys_json() */
    char *transcript; /* a reference to what its coding agent said, or NULL */
    char *snapshot;   /* {"name","id"} of its last one, as text, or NULL */
};
void box_row_done(struct box_row *row);
/* Are its processes frozen, or about to be, or about to run again? */
bool box_row_is_paused(const struct box_row *row);
/* Should its processes exist? It is running, or paused, or in error with its lease still on. A box
 * whose start failed is in error without a lease. */
bool box_row_is_live(const struct box_row *row);

int store_open(const char *state_dir, struct store **ret, struct err *e);
struct store *store_close(struct store *s);

/* The author of all events from now on: "bellhop rm", "monitor", "janitor". Copied. "library" unless
 * told. */
struct debug;
/* Gets a line for each change of state; it outlives the store. */
void store_set_debug(struct store *s, const struct debug *d);
void store_set_actor(struct store *s, const char *actor);
const char *store_actor(const struct store *s);
/* Takes the time from fn instead of the real clock (tests). NULL: the real clock. */
void store_set_clock(struct store *s, int64_t (*now_ms)(void *arg), void *arg);
int64_t store_now_ms(const struct store *s); /* since 1970 */
/* How long the records of destroyed boxes are kept; 30 days unless told. */
void store_set_records_for(struct store *s, int64_t keep_ms);
int64_t store_records_for(const struct store *s);

/* Adds a row in state requested, with a key unless it is NULL. ERR_EXISTS: the name, or the key
 * (field key), is taken. Fills row->id and times. */
int store_add(struct store *s, const char *name, const json_t *spec, const char *key,
              struct box_row *ret, struct err *e);
/* ERR_NOT_FOUND: if the box was destroyed, the error has the facts of its record
 * (ctx_gone_error()). */
int store_find(struct store *s, const char *name, struct box_row *ret, struct err *e); /* by name */
int store_get(struct store *s, const char *id, struct box_row *ret, struct err *e);
int store_find_key(struct store *s, const char *key, struct box_row *ret, struct err *e);
/*
 * Calls fn for each box, by name; a non-zero result ends the list and is returned. The rows are read in batches, each before
 * its first call: fn may use the store, and may take a row's content over (and zero it). A box that comes or goes
 * meanwhile may be listed or not.
 */
int store_list(struct store *s, int (*fn)(void *arg, struct box_row *row), void *arg,
               struct err *e);
/* Does a box, or the record of one, have that provider? 1, 0 or an error. */
int store_knows_provider(struct store *s, const char *name, struct err *e);
/* NULL: any. */
struct store_filter {
    const char *after;  /* the names behind this one */
    const char *states; /* with commas between */
    const char *label;  /* "K" or "K=V" */
};
int store_list_some(struct store *s, const struct store_filter *f,
                    int (*fn)(void *arg, struct box_row *row), void *arg, struct err *e);
/* Gives a box one more key. ERR_EXISTS: the key is another box's. ERR_EXHAUSTED: STORE_KEYS_MAX. */
int store_add_key(struct store *s, const char *id, const char *key, struct err *e);
/* The keys of a row as an array of jx_new_path(): a key is any bytes but NUL. NULL text: none. The
 * caller owns it; NULL: out of memory. */
json_t *store_keys_json(const char *text);
/* Changes the state and writes the event. ERR_PRECONDITION: lifecycle.c has no such transition. */
int store_set_state(struct store *s, const char *id, enum bh_state state, const char *cause,
                    struct err *e);
/* The same with an event id of the caller's, of up to 64 bytes: if the box has that event, nothing
 * changes. Boxes may have events with the same id. */
int store_set_state_once(struct store *s, const char *id, const char *event_id, enum bh_state state,
                         const char *cause, struct err *e);
/* used_ms: the last known use; a box's time never runs backwards. */
int store_set_deadline(struct store *s, const char *id, int64_t deadline_ms, int64_t used_ms,
                       struct err *e);
int store_set_agent(struct store *s, const char *id, const json_t *agent, struct err *e);
int store_set_project(struct store *s, const char *id, const char *path, const char *remote,
                      struct err *e);
int store_set_port(struct store *s, const char *id, uint16_t port, uint16_t host_port,
                   struct err *e);
int store_set_transcript(struct store *s, const char *id, const char *reference, struct err *e);

/* How a box ended, for its record. */
struct store_end {
    const char *cause;
    const json_t *exit; /* {"code","signal"}, or NULL */
    const char *logs;   /* or NULL; the last HISTORY_LOGS_BYTES are kept */
    size_t n_logs;
};
/*
 * Destroys the row: its name and its keys are free, and a record of it (history.h) stays. The
 * variables of its spec are overwritten in the file. A row that is not there is no error.
 */
int store_remove(struct store *s, const char *id, const struct store_end *end, struct err *e);
/*
 * A box that is gone is recreated in two transactions. The first adds a row with the name and the
 * project of the old box, whose own name gets the suffix STORE_ASIDE, which no box's name has. If
 * the new row is removed before it ran once, the old box has its name again, as if nothing had been
 * done. The second makes the new box running, with the keys of the old one and the event "recreated", and
 * destroys the old row.
 */
#define STORE_ASIDE ".gone"
int store_set_aside(struct store *s, const char *old_id, const json_t *spec, struct box_row *ret,
                    struct err *e);
int store_take_place(struct store *s, const char *id, const char *old_id,
                     const struct store_end *end, struct err *e);
/* Forgets one record and the events of its box. */
int store_forget_record(struct store *s, const char *id, struct err *e);
/* Truncates the write-ahead log, which has what was overwritten. Another process that reads at this
 * moment prevents it. */
void store_forget_log(struct store *s);

/* A holder of claims: this process and a random text, "PID:START:RANDOM". */
#define STORE_HOLDER_BYTES 72
void store_make_holder(char ret[STORE_HOLDER_BYTES], const char *random);

/*
 * For the janitor: claims up to max boxes that have been stopped (or in error, with nothing running)
 * since before_ms or earlier. Nobody else gets them for claim_ms, unless the holder releases them or
 * its process ends.
 */
struct store_claim {
    const char *holder; /* of store_make_holder() */
    int64_t before_ms;
    int64_t claim_ms;
    size_t max;
};
int store_claim_stopped(struct store *s, const struct store_claim *c, char (*ret_ids)[BOX_ID_BYTES],
                        size_t *ret_n, struct err *e);
void store_release_claims(struct store *s, const char *holder);

/* Takes an exclusive lock on a name across processes, by flock on <state_dir>/locks/NAME;
 * close() releases it. Waits until the deadline or the cancel descriptor. */
int store_lock_name(struct store *s, const char *name, int64_t deadline_mono_ms, int cancel_fd,
                    int *ret_fd, struct err *e);
/* Removes the lock's file; call it only with the lock held. */
void store_forget_lock(struct store *s, const char *name);
