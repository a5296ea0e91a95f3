#pragma once
/* below: opens paths beneath a directory without following any symbolic link on the way. */

/* path: relative, of any length. Returns a descriptor (O_CLOEXEC, O_NOCTTY and O_NONBLOCK are
 * added to flags) or -errno; -ELOOP for a link. */
int below_open(int dirfd, const char *path, int flags);
