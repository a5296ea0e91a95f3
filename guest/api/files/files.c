#include "api/files/files.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "fs/etag.h"
#include "api/service.h"
#include "http/respond.h"
#include "http/server.h"
#include "http/uri.h"

int files_caller_new(struct request *q, const char *user, const char *cwd, struct fs_caller **ret,
                     struct err *e)
{
    const struct agent *a = request_agent(q);

    return fs_caller_new(a->root, user ? user : a->default_user, cwd ? cwd : a->workdir, ret, e);
}

int files_check_query(struct request *q, const char *const *known, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r;

    r = uri_query_unknown(q->query, known, &name, e);
    if (r < 0 || !name)
        return r;
    return err_field(e, ERR_INVALID, name, "unknown parameter '%.60s'", name);
}

int files_check_path(struct request *q, struct err *e)
{
    if (*q->rest)
        return 0;
    return err_field(e, ERR_INVALID, "path", "a path is needed: /v1/files/{path}");
}

struct header {
    const char *name;
    struct buf text;
    bool is_there;
    int r;
};

static enum MHD_Result add_line(void *cls, enum MHD_ValueKind kind, const char *name,
                                const char *value)
{
    struct header *h = cls;

    (void)kind;
    if (strcasecmp(name, h->name) != 0)
        return MHD_YES;
    if (h->is_there)
        h->r = buf_add(&h->text, ", ", 2, NULL);
    if (h->r == 0 && value)
        h->r = buf_add(&h->text, value, strlen(value), NULL);
    h->is_there = true;
    return h->r < 0 ? MHD_NO : MHD_YES;
}

int files_header(struct request *q, const char *name, char **ret, struct err *e)
{
    struct header h = {.name = name};

    buf_init(&h.text, SERVER_POOL_BYTES); /* where the library has them all */
    (void)MHD_get_connection_values(q->mhd, MHD_HEADER_KIND, add_line, &h);
    if (!h.is_there)
        return 0;
    if (h.r < 0) {
        buf_done(&h.text);
        return err_oom(e);
    }
    *ret = buf_take(&h.text);
    return 0;
}

int files_add_tag(struct request *q, int r, const char *tag, const struct err *e)
{
    char text[FS_ETAG_BYTES + 4];

    if (r != -ERR_ABORTED || !tag[0] || respond_bytes_status(e) != MHD_HTTP_PRECONDITION_FAILED)
        return r;
    (void)snprintf(text, sizeof(text), "\"%s\"", tag);
    (void)request_reply_header(q, "ETag", text, NULL);
    return r;
}
