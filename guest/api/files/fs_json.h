#pragma once
/*
 * fs_json: conversions between JSON and guest/fs that the Fs methods share: the user, modes
 * ("0644"), times ("2026-11-22T01:35:00.123456789Z"), and the attributes of a file.
 */
#include <jansson.h>
#include <sys/types.h>
#include <time.h>

#include "common/err.h"
#include "fs/root.h"
#include "fs/stat.h"
#include "api/rpc.h"

/* user: the request's, or NULL for the agent's default. */
int fs_json_caller(const struct rpc_call *call, const char *user, struct fs_caller **ret,
                   struct err *e);

/* Decoders for jx tables. `out` is struct fs_mode and struct fs_time. */
struct fs_mode {
    bool is_set;
    mode_t mode;
};
struct fs_time {
    bool is_set;
    struct timespec t;
};
int jx_fs_mode(json_t *v, void *out, struct err *e);
int jx_fs_time(json_t *v, void *out, struct err *e);

#define FS_JSON_TIME_BYTES 64
void fs_json_time(const struct timespec *t, char out[FS_JSON_TIME_BYTES]);

/* {"path","name","type","size","mode","uid","gid","user","group","mtime",...}; NULL: no memory. */
json_t *fs_json_info(const struct fs_info *i);
