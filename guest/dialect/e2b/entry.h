#pragma once
/*
 * entry: a file as E2B's EntryInfo message, in JSON. Blocks. The caller is the agent
 * itself: everything is looked at with its rights.
 */
#include <jansson.h>

#include "common/err.h"
#include "fs/root.h"
#include "fs/stat.h"

/* The entry itself: links are not followed. path: absolute, and shown as it is. -ERR_NOT_FOUND or
 * -ERR_INTERNAL in the words that clients know. */
int entry_stat(const struct fs_caller *c, const char *path, struct fs_owners *owners, json_t **ret,
               struct err *e);

/* The same of a name in an open directory; path is only shown, and where a link is followed. */
int entry_at(const struct fs_caller *c, int dirfd, const char *name, const char *path,
             struct fs_owners *owners, json_t **ret, struct err *e);

/* Leaves name, type and path: the fields that E2B's first SDKs know. */
void entry_simplify(json_t *entry);

/* A JSON string from bytes that may not be UTF-8. */
json_t *entry_new_text(const char *s);
