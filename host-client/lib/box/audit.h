#pragma once
/*
 * audit: the record of calls that change something: <state_dir>/audit.jsonl, a JSON object a line, appended to alone. Each
 * line ends with its link of a chain: HMAC-SHA-256 of the link before and the line, with the key of the state directory
 * (signature.h). A line that is changed, moved or removed breaks it. At AUDIT_MAX_BYTES the file becomes audit.jsonl.1,
 * in the place of the one before, and the chain goes on. <state_dir>/audit.head has number and link of the last line: it
 * tells when lines at the end are gone. Both put back to an older state together tell nothing.
 */
#include <jansson.h>
#include <stdint.h>

#include "common/err.h"

#define AUDIT_MAX_BYTES (64 * 1024 * 1024)
#define AUDIT_LINE_BYTES 65536
#define AUDIT_TARGET_BYTES 8192 /* of an entry's "target": its escapes have six times that */

struct audit;

/* Any number of processes may write. A last line that is incomplete, of a crash, is removed by the next append. */
int audit_open(const char *state_dir, struct audit **ret, struct err *e);
struct audit *audit_close(struct audit *a); /* accepts NULL; returns NULL */
/* Adds "seq" and the chain to entry, and writes it. Thread-safe. Does not wait for the disk. */
int audit_append(struct audit *a, json_t *entry, struct err *e);

/* Calls fn for each line, oldest first: {..., "chain"}. fn's non-zero result ends it and is returned. */
int audit_list(const char *state_dir, int (*fn)(void *arg, json_t *entry), void *arg,
               struct err *e);
/* *ret_n: lines that are whole. ERR_DATA_LOSS names the file and the first line that is not, or says how many are missing
 * at the end. */
int audit_verify(const char *state_dir, uint64_t *ret_n, struct err *e);
