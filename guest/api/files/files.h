#pragma once
/* files: functions that the routes for bytes by path share. */
#include <jansson.h>
#include <sys/types.h>
#include <time.h>

#include "api/rpc.h"
#include "common/err.h"
#include "fs/change.h"
#include "fs/root.h"
#include "fs/stat.h"
#include "http/request.h"

/* The user who acts and the start of relative paths: ?user= (default: --user) and ?cwd= (default:
 * --workdir). May block. */
int files_caller_new(struct request *q, const char *user, const char *cwd, struct fs_caller **ret,
                     struct err *e);
/* Parameters that are not in the NULL-terminated list are refused by name. */
int files_check_query(struct request *q, const char *const *known, struct err *e);

#define FILES_TYPE "application/octet-stream"
#define UPLOADS_PREFIX "/v1/uploads/"
#define UPLOADS_TYPE "application/partial-upload"

/* The path of a file's request, in q->rest: behind the route's prefix, or ?path= of one without. cwd: ?cwd=, or NULL. */
int files_take_path(struct request *q, const char *cwd, struct err *e);
/* As files_check_query(); the first of known is "path", which only a route without a path of its own takes. */
int files_check_file_query(struct request *q, const char *const *known, struct err *e);
/* All lines of a request header as one list, or NULL when there is none; owned: free(). */
int files_header(struct request *q, const char *name, char **ret, struct err *e);
/* A condition that failed (r) tells the tag there is, "" for none, as the ETag header too.
 * Returns r. */
int files_add_tag(struct request *q, int r, const char *tag, const struct err *e);

/*
 * fs_json: conversions between JSON and guest/fs that the Fs methods share: the user, modes
 * ("0644"), times ("2026-11-22T01:35:00.123456789Z"), and the attributes of a file.
 */

/* user: the request's, or NULL for the agent's default. */
int fs_json_caller(const struct rpc_call *call, const char *user, struct fs_caller **ret,
                   struct err *e);

/* Decoders for jx tables. `out` is struct fs_mode and struct fs_time. */
int jx_fs_mode(json_t *v, void *out, struct err *e);
int jx_fs_time(json_t *v, void *out, struct err *e);

#define FS_JSON_TIME_BYTES 64
void fs_json_time(const struct timespec *t, char out[FS_JSON_TIME_BYTES]);

/* {"path","name","type","size","mode","uid","gid","user","group","mtime",...}; NULL: no memory. */
json_t *fs_json_info(const struct fs_info *i);
