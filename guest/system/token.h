#pragma once
/*
 * token: reads the agent's token at its start, from a file or an inherited descriptor. A file counts only if
 * nobody but its owner can use it, or if root owns it, the agent's group reads it, and the agent can replace
 * neither the file nor its name (a Secret of Kubernetes). Before there are threads.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "common/err.h"

#define TOKEN_MAX_BYTES 4096
#define TOKEN_MIN_BYTES 8

/* fd: read to its end; stays open. name: of the source, for messages. The caller wipes out. */
int token_read_fd(int fd, const char *name, char out[TOKEN_MAX_BYTES], size_t *ret_len,
                  struct err *e);

/* *ret: of the file that was read, which need not be a regular one. -ERR_DENIED: others can use it. */
int token_read_file(const char *path, char out[TOKEN_MAX_BYTES], size_t *ret_len, struct stat *ret,
                    struct err *e);
