#pragma once
/* hosts: sets a name's address in /etc/hosts, for the event address of E2B's /init. */
#include "common/buf.h"
#include "common/err.h"
#include "fs/root.h"

#define HOSTS_MAX_BYTES (1024 * 1024)

/* ERR_INVALID: text is not a numeric address of either family. */
int hosts_check_address(const char *text, struct err *e);

/*
 * Writes the file's text with the name at this address, and at no other of its family. Lines without the name are
 * unchanged. Pure.
 */
int hosts_edit(const char *text, const char *name, const char *address, struct buf *out,
               struct err *e);

/* Edits the file below the root, with the agent's rights. Blocks. */
int hosts_set(struct fs_root *root, const char *name, const char *address, struct err *e);
