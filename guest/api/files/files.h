#pragma once
/* files: functions that the routes for bytes by path share. */
#include "fs/root.h"
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

int files_check_path(struct request *q, struct err *e);
/* All lines of a request header as one list, or NULL when there is none; owned: free(). */
int files_header(struct request *q, const char *name, char **ret, struct err *e);
/* A condition that failed (r) tells the tag there is, "" for none, as the ETag header too.
 * Returns r. */
int files_add_tag(struct request *q, int r, const char *tag, const struct err *e);
