#pragma once
/*
 * file_body: a file's bytes as a reply's body: by sendfile where the disk is a local one, else
 * read ahead by a worker; one range, or several as multipart/byteranges.
 */
#include "http/range.h"
#include "http/request.h"
#include "http/respond.h"

#define FILE_BODY_MADE_UP_MAX (256ull * 1024 * 1024) /* a longer file is taken to be endless */
#define FILE_BODY_HEAD_BYTES (64 * 1024)             /* of a made-up file, read before the reply */

/* A file to be sent. A worker makes it (that blocks), the connection's thread uses it. */
struct file_body {
    int fd; /* owned */
    bool is_sized;
    uint64_t size; /* if it is_sized */
    bool is_local; /* sendfile does not wait for another machine or process */
    char *head;    /* of a made-up file: its first bytes, owned */
    size_t head_len;
    bool head_is_all;
    const char *type; /* of each part of several; static */
};

/*
 * Takes fd in any case. size UINT64_MAX: the content is made up as it is read, so that its
 * length is known only at the end. Blocks.
 */
int file_body_init_take(struct file_body *b, int fd, uint64_t size, const char *type,
                        struct err *e);
void file_body_done(struct file_body *b);
/* The next bytes of a made-up file; *ret_len 0: the end. A read that would wait
 * for an event counts as the end. Blocks. */
int file_body_read(int fd, void *data, size_t size, size_t *ret_len, struct err *e);
/* How many bytes there are, or UINT64_MAX. */
uint64_t file_body_size(const struct file_body *b);

/* The whole file. The library sets Content-Length. */
int file_body_whole(struct request *q, struct file_body *b, struct reply **ret, struct err *e);
/* One range; or several, with the Content-Type header that says so. */
int file_body_ranges(struct request *q, struct file_body *b, const struct range_set *set,
                     struct reply **ret, struct err *e);
