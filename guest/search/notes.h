#pragma once
/*
 * notes: the paths that a search could not read, and the reasons. A bounded list and an exact count.
 * Thread-safe. Embedded: notes_init()/notes_done().
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NOTES_MAX 100 /* kept; more are only counted */

struct note {
    char *path;
    char *error;
};

struct notes {
    pthread_mutex_t lock;
    struct note list[NOTES_MAX]; /* guarded by lock */
    size_t n;                    /* guarded by lock: in the list */
    uint64_t total;              /* guarded by lock: ever added */
};

void notes_init(struct notes *n);
void notes_done(struct notes *n);
void notes_add(struct notes *n, const char *path, const char *error);
void notes_add_errno(struct notes *n, const char *path, int sys);
