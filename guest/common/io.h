#pragma once
/* io: whole reads and writes on descriptors, small files, random bytes, unix sockets. EINTR is retried. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

int io_write_all(int fd, const void *data, size_t len, struct err *e);
/* Reads len bytes, or up to the end of the file; *ret_len: bytes read. */
int io_read_full(int fd, void *data, size_t len, size_t *ret_len, struct err *e);

/* Reads a whole file of at most max bytes (else ERR_EXHAUSTED); a NUL follows. */
int io_read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len,
                 struct err *e);
/* Writes a temp file and renames it. The mode is exact, regardless of the umask. With sync, the file
 * and the directory are fsynced: the new content lasts over a power cut. */
int io_write_file(int dirfd, const char *path, const void *data, size_t len, mode_t mode, bool sync,
                  struct err *e);
/* Makes what was linked or renamed to the path last over a power cut: fsyncs the directory that holds it. */
int io_sync_parent(int dirfd, const char *path, struct err *e);

int io_set_nonblock(int fd, bool on, struct err *e);
int io_random(void *data, size_t len, struct err *e);
/* Writes 2 * n_bytes lower-case hex digits and a NUL. */
int io_random_hex(size_t n_bytes, char *out, struct err *e);
int io_mkdir_p(const char *path, mode_t mode, struct err *e); /* existing directories are fine */

/* ---- unix sockets ---- */

/* The socket is bound, not listening, non-blocking; its file has this mode. A stale socket is replaced; any other
 * file at the path is ERR_EXISTS. Before there are threads (umask). */
int unixsock_bind(const char *path, mode_t mode, int *ret_fd, struct err *e);

/* The socket is blocking. */
int unixsock_connect(const char *path, int *ret_fd, struct err *e);
