#include "dialect/e2b/puts.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "dialect/e2b/file_paths.h"
#include "dialect/e2b/put.h"

#define NAMED_BYTES 256 /* of the other files, in an error */

struct puts {
    struct files_call call;
    uint64_t announced;
    struct put *put; /* the file that is being written */
    char *path;      /* its path */
    json_t *entries;
    json_t *paths; /* the set of paths that were begun */
    size_t reply_bytes;
};

int puts_new(const struct agent *a, const char *user, uint64_t announced, struct puts **ret,
             struct err *e)
{
    struct puts *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_oom(e);
    p->announced = announced;
    p->entries = json_array();
    p->paths = json_object();
    r = p->entries && p->paths ? files_rest_init(&p->call, a, user, e) : err_oom(e);
    if (r < 0) {
        puts_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

/* Names the other files of the upload in an error. */
static int refuse_again(const struct puts *p, const char *path, struct err *e)
{
    _cleanup_buf_ struct buf others;
    size_t n = 0;
    json_t *entry;
    size_t i;

    buf_init(&others, NAMED_BYTES);
    json_array_foreach (p->entries, i, entry) {
        const char *other = json_string_value(json_object_get(entry, "path"));

        if (!other || strcmp(other, path) == 0)
            continue;
        if (buf_addf(&others, NULL, "%s%s", n ? ", " : "", other) < 0)
            break;
        n++;
    }
    return err_set(e, ERR_INVALID,
                   "you cannot upload multiple files to the same path '%.200s' in one upload "
                   "request, only the first specified file was uploaded%s%s",
                   path, n > 1 ? ", also the following files were uploaded: " : "",
                   n > 1 ? others.data : "");
}

static int note_path(struct puts *p, const char *path, struct err *e)
{
    p->reply_bytes += strlen(path);
    if (p->reply_bytes > PUTS_REPLY_BYTES)
        return err_set(e, ERR_INVALID,
                       "the paths and metadata of one upload have more than %u bytes",
                       PUTS_REPLY_BYTES);
    if (json_object_get(p->paths, path))
        return refuse_again(p, path, e);
    /* Unchecked: a path may be no text. */
    return json_object_set_new_nocheck(p->paths, path, json_true()) < 0 ? err_oom(e) : 0;
}

int puts_begin(struct puts *p, const char *path, struct err *e)
{
    int r;

    free(p->path);
    p->path = NULL;
    r = files_call_path(&p->call, path, &p->path, e);
    if (r < 0)
        return err_wrap(e, r, "error resolving path");
    r = note_path(p, p->path, e);
    if (r < 0)
        return r;
    return put_begin(p->call.caller, p->path, &p->call.owner, p->announced, &p->put, e);
}

int puts_data(struct puts *p, const void *data, size_t len, struct err *e)
{
    return put_data(p->put, data, len, e);
}

int puts_end(struct puts *p, const struct meta *m, struct err *e)
{
    json_t *entry = NULL;
    int r = put_finish(p->put, m, &entry, e);

    if (r < 0)
        return r;
    p->put = put_free(p->put);
    p->reply_bytes += meta_bytes(m);
    return json_array_append_new(p->entries, entry) < 0 ? err_oom(e) : 0;
}

const json_t *puts_entries(const struct puts *p)
{
    return p->entries;
}

void puts_close(struct puts *p)
{
    if (!p || !p->put)
        return;
    put_keep(p->put);
    p->put = put_free(p->put);
}

struct puts *puts_free(struct puts *p)
{
    if (!p)
        return NULL;
    put_free(p->put);
    json_decref(p->entries);
    json_decref(p->paths);
    files_call_done(&p->call);
    free(p->path);
    free(p);
    return NULL;
}
