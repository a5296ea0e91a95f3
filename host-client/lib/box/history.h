#pragma once
/*
 * history: the events of the boxes of a store, and the records of boxes that are destroyed. An
 * event is written in the transaction of the change that it tells of. A record is written when the
 * row of its box goes; it has no secrets.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "bellhop/bellhop.h"
#include "common/err.h"
#include "lib/box/store.h"

#define HISTORY_EVENTS_MAX 10000 /* of a box; the oldest are forgotten */
#define HISTORY_RECORDS_MAX 10000
#define HISTORY_RECORDS_FOR_MS (30LL * 24 * 3600 * 1000)
#define HISTORY_LOGS_BYTES (64 * 1024) /* of a record */
#define HISTORY_CAUSE_BYTES 512        /* of an event; a longer cause is cut */
#define HISTORY_BATCH 50
/* Characters of the summaries of events and records, for places with little room: a list, a chat's thread. */
#define HISTORY_TITLE_CHARS 60
#define HISTORY_STATUS_CHARS 49
#define HISTORY_DETAILS_CHARS 180
#define HISTORY_OUTPUT_CHARS 260
#define EVENT_ID_BYTES 65 /* with its NUL; ours have 32 hex digits */

struct event_row {
    int64_t position; /* in the store, from 1; never used twice */
    int64_t seq;      /* of its box, from 1 */
    char id[EVENT_ID_BYTES];
    char box_id[BOX_ID_BYTES];
    char *box_name;
    char *kind; /* "state", or a fact that changes no state */
    int64_t time_ms;
    enum bh_state before; /* BH_STATE_UNKNOWN: the box was new */
    enum bh_state after;
    char *cause;
    char *actor;
};

struct record_row {
    char id[BOX_ID_BYTES];
    char *name;
    char *cause;
    struct box_times times;
    int64_t destroyed_ms;
    json_t *spec; /* without variables */
    json_t *agent;
    char *project; /* as in struct box_row */
    char *remote;
    json_t *keys;     /* of jx_new_path() */
    json_t *exit;     /* {"code":0,"signal":null}; null: not known */
    char *logs;       /* the end of what its first process printed; UTF-8 */
    char *transcript; /* a reference, or NULL */
};
void record_row_done(struct record_row *row);

/* A fact about a box that changes no state. An event with an id that the box has already is ignored.
 * event_id NULL: random. */
int store_add_event(struct store *s, const char *box_id, const char *event_id, const char *kind,
                    const char *cause, struct err *e);
/* The same of kind "fault", unless the box's last event is that fault by this actor already: whoever
 * tries again and again fills no history. */
int store_add_fault(struct store *s, const char *box_id, const char *cause, struct err *e);
/* The number of the box's last event; 0: it has none. */
int store_last_event(struct store *s, const char *box_id, int64_t *ret_seq, struct err *e);
/* The first stop of the box after the event `since`: 1 and its cause, or 0. */
int store_find_stop(struct store *s, const char *box_id, int64_t since, char **ret_cause,
                    struct err *e);
/*
 * Calls fn for each event of a box whose seq is greater than since; with box_id NULL, of all boxes,
 * whose position is. In order. fn may use the store. A non-zero result ends the list and is
 * returned.
 */
int store_list_events(struct store *s, const char *box_id, int64_t since,
                      int (*fn)(void *arg, const struct event_row *event), void *arg,
                      struct err *e);

/* Calls fn for each record, newest first, as store_list_events() does. */
int store_list_records(struct store *s, int (*fn)(void *arg, const struct record_row *row),
                       void *arg, struct err *e);
/* The record of the box of that id, or of the last one that had the name or the key. what: "name",
 * "id" or "key". */
int store_find_record(struct store *s, const char *what, const char *value, struct record_row *ret,
                      struct err *e);
/* The error -ERR_NOT_FOUND of a box; if it was destroyed, with its record's facts (context.h). what:
 * as above. */
int store_not_found(struct store *s, const char *what, const char *value, struct err *e);
/* Forgets the records of boxes that were destroyed at least keep_ms ago, and their events; 0:
 * all of them. With dry_run only counts them. */
int store_prune_records(struct store *s, int64_t keep_ms, bool dry_run, int64_t *ret_n,
                        struct err *e);
