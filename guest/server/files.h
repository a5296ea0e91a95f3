#pragma once
/* files: what the routes that move bytes by path share. */
#include "fs/root.h"
#include "server/request.h"

/* Who acts, and where relative paths start: ?user= (default: --user) and ?cwd= (default:
 * --workdir). May block. */
int files_caller_new(struct request *q, const char *user, const char *cwd, struct fs_caller **ret,
                     struct err *e);
/* Parameters that are not in the NULL-terminated list are refused by name. */
int files_check_query(struct request *q, const char *const *known, struct err *e);

/* file_get.c, file_put.c: files_ops chooses by verb. */
extern const struct request_ops file_get_ops;
extern const struct request_ops file_put_ops;
extern const struct request_ops archive_get_ops;
extern const struct request_ops archive_put_ops;
