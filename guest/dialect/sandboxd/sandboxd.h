#pragma once
/*
 * sandboxd: agent-sandbox's runtime API as a dialect: one row of dialect/dialects.c, and what its files share.
 */
#include <jansson.h>

#include "api/dialect.h"
#include "api/rpc.h"
#include "common/err.h"

extern const struct dialect sandboxd_dialect;

/*
 * A path of a client, which is one below the workdir, also with slashes in front: without these; "." for none.
 * It points into path. -ERR_DENIED: its ".." lead out.
 */
int sandboxd_path(const char *path, const char **ret, struct err *e);

/* dialect.list_directory */
int sandboxd_list_directory(struct fs_caller *c, const char *path, json_t **ret, struct err *e);

int sandboxd_execute(const struct rpc_call *call, struct source **ret, struct err *e);

extern const struct request_ops sandboxd_list_ops;     /* sandboxd_files.c */
extern const struct request_ops sandboxd_exists_ops;   /* sandboxd_files.c */
extern const struct request_ops sandboxd_download_ops; /* sandboxd_files.c */
extern const struct request_ops sandboxd_upload_ops;   /* sandboxd_upload.c */
