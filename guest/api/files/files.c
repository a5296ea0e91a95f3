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
};

static int add_header_line(void *arg, const char *name, const char *value)
{
    struct header *h = arg;
    int r = 0;

    if (strcasecmp(name, h->name) != 0)
        return 0;
    if (h->is_there)
        r = buf_add(&h->text, ", ", 2, NULL);
    h->is_there = true;
    return r < 0 ? r : buf_adds(&h->text, value, NULL);
}

int files_header(struct request *q, const char *name, char **ret, struct err *e)
{
    struct header h = {.name = name};
    int r;

    buf_init(&h.text, SERVER_POOL_BYTES); /* where the library has them all */
    r = request_each_header(q, add_header_line, &h);
    if (!h.is_there)
        return 0;
    if (r < 0) {
        buf_done(&h.text);
        return err_oom(e);
    }
    *ret = buf_take(&h.text);
    return 0;
}

int files_add_tag(struct request *q, int r, const char *tag, const struct err *e)
{
    char text[FS_ETAG_BYTES + 4];

    if (r != -ERR_ABORTED || !tag[0] || respond_bytes_status(e) != HTTP_PRECONDITION_FAILED)
        return r;
    (void)snprintf(text, sizeof(text), "\"%s\"", tag);
    (void)request_reply_header(q, "ETag", text, NULL);
    return r;
}
