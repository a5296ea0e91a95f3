#pragma once
/* hosts: a name's address in /etc/hosts, which is where /init has E2B's events go. */
#include "common/buf.h"
#include "common/err.h"
#include "fs/root.h"

#define HOSTS_MAX_BYTES (1024 * 1024)

/* An address of either family, as it is written: numbers alone. ERR_INVALID: it is none. */
int hosts_check_address(const char *text, struct err *e);

/*
 * The file's text with the name at this address, and at no other of its family. Lines that do not
 * have the name stay as they are. Pure.
 */
int hosts_edit(const char *text, const char *name, const char *address, struct buf *out,
               struct err *e);

/* The same to the file, below the root, with the agent's rights. Blocks. */
int hosts_set(struct fs_root *root, const char *name, const char *address, struct err *e);
