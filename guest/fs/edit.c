#include "fs/edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "fs/open.h"
#include "fs/write.h"

struct text {
    char *data;
    size_t len;
};

static void text_done(struct text *t)
{
    free(t->data);
}
#define _cleanup_text_ __attribute__((cleanup(text_done)))

/* ---- one replacement ------------------------------------------------------------------------- */

static int bad_edit(struct err *e, enum err_code code, size_t i, const char *part,
                    const char *message)
{
    char field[ERR_FIELD_BYTES];

    (void)snprintf(field, sizeof(field), "edits[%zu]%s", i, part);
    return err_field(e, code, field, "%s: %s", field, message);
}

static uint64_t count_in(const struct text *t, const struct fs_edit *ed)
{
    const char *p = t->data, *end = t->data + t->len;
    uint64_t n = 0;

    while ((p = memmem(p, (size_t)(end - p), ed->old_data, ed->old_len))) {
        n++;
        p += ed->old_len;
    }
    return n;
}

static int check_count(const struct text *t, const struct fs_edit *ed, size_t i, uint64_t *ret_n,
                       struct err *e)
{
    uint64_t n = count_in(t, ed);
    uint64_t want = ed->count ? ed->count : 1;
    char message[160];

    *ret_n = n;
    if (n == 0)
        return bad_edit(e, ERR_NOT_FOUND, i, ".old", "this text is not in the file");
    if ((ed->all && !ed->count) || n == want)
        return 0;
    (void)snprintf(message, sizeof(message), "this text is in the file %llu times, not %llu",
                   (unsigned long long)n, (unsigned long long)want);
    return bad_edit(e, ERR_PRECONDITION, i, ".old", message);
}

/* Every occurrence, n of them, goes. */
static int edit_replace(struct text *t, const struct fs_edit *ed, uint64_t n, struct err *e)
{
    size_t removed = (size_t)n * ed->old_len;
    size_t len = t->len - removed;
    const char *p = t->data, *end = t->data + t->len, *hit;
    char *out, *to;

    if (ed->new_len && n > (FS_EDIT_MAX_FILE - len) / ed->new_len)
        return err_set(e, ERR_EXHAUSTED, "the file would be larger than %u bytes",
                       FS_EDIT_MAX_FILE);
    len += (size_t)n * ed->new_len;
    out = to = malloc(len + 1);
    if (!out)
        return err_oom(e);
    while ((hit = memmem(p, (size_t)(end - p), ed->old_data, ed->old_len))) {
        (void)memcpy(to, p, (size_t)(hit - p));
        to += hit - p;
        (void)memcpy(to, ed->new_data, ed->new_len);
        to += ed->new_len;
        p = hit + ed->old_len;
    }
    (void)memcpy(to, p, (size_t)(end - p));
    free(t->data);
    t->data = out;
    t->len = len;
    return 0;
}

static int fill_empty(struct text *t, const struct fs_edit *ed, size_t i, struct err *e)
{
    char *copy;

    if (t->len)
        return bad_edit(e, ERR_INVALID, i, ".old",
                        "the text to replace may be empty only where the file is");
    if (ed->new_len > FS_EDIT_MAX_FILE)
        return err_set(e, ERR_EXHAUSTED, "the file would be larger than %u bytes",
                       FS_EDIT_MAX_FILE);
    copy = malloc(ed->new_len + 1);
    if (!copy)
        return err_oom(e);
    (void)memcpy(copy, ed->new_data, ed->new_len);
    free(t->data);
    t->data = copy;
    t->len = ed->new_len;
    return 0;
}

static int edit_apply(struct text *t, const struct fs_edit_options *o, uint64_t *replaced,
                      struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < o->n_edits && r == 0; i++) {
        const struct fs_edit *ed = &o->edits[i];
        uint64_t n = 1;

        if (ed->old_len == 0) {
            r = fill_empty(t, ed, i, e);
        } else {
            r = check_count(t, ed, i, &n, e);
            if (r == 0)
                r = edit_replace(t, ed, n, e);
        }
        *replaced += n;
    }
    return r;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* *ret_tag "": there is none, and it may be made. */
static int read_old(struct fs_caller *c, const char *path, bool create, struct text *ret,
                    char tag[FS_ETAG_BYTES], struct err *e)
{
    struct err inner = {0};
    struct fs_file f;
    int r;

    tag[0] = '\0';
    r = fs_file_open(c, path, true, &f, &inner);
    if (r < 0 && inner.sys == ENOENT && create) {
        ret->data = calloc(1, 1);
        return ret->data ? 0 : err_oom(e);
    }
    if (r < 0) {
        if (e)
            *e = inner;
        return r;
    }
    if (f.st.st_size > (off_t)FS_EDIT_MAX_FILE)
        r = err_field(e, ERR_EXHAUSTED, "path", "'%s' is larger than %u bytes", path,
                      FS_EDIT_MAX_FILE);
    ret->data = r == 0 ? malloc((size_t)f.st.st_size + 1) : NULL;
    if (r == 0 && !ret->data)
        r = err_oom(e);
    if (r == 0)
        r = io_read_full(f.fd, ret->data, (size_t)f.st.st_size, &ret->len, e);
    (void)memcpy(tag, f.etag, FS_ETAG_BYTES);
    fs_file_done(&f);
    return r;
}

/* Only if the file is still the one that was read. */
static int write_new(struct fs_caller *c, const char *path, const struct text *t, const char *tag,
                     struct fs_edit_result *res, struct err *e)
{
    struct fs_write_options wo = {
        .condition = {.if_match = tag[0] ? tag : NULL, .if_none_match = tag[0] ? NULL : "*"},
        .max_bytes = FS_EDIT_MAX_FILE,
    };
    struct fs_write_result written;
    struct fs_write *w = NULL;
    int r;

    r = fs_write_begin(c, path, &wo, &w, e);
    if (r == 0)
        r = fs_write_data(w, t->data, t->len, e);
    if (r == 0)
        r = fs_write_commit(w, &written, e);
    fs_write_free(w);
    if (r < 0)
        return r;
    res->created = written.created;
    res->in_place = written.in_place;
    (void)memcpy(res->etag, written.etag, FS_ETAG_BYTES);
    return 0;
}

static int make_diff(const char *path, const struct text *before, const struct text *after,
                     struct fs_edit_result *res, struct err *e)
{
    const char *name = path_is_absolute(path) ? path + strspn(path, "/") : path;
    int r = fs_diff(name, before->data, before->len, after->data, after->len, FS_EDIT_DIFF_MAX,
                    &res->diff, &res->diff_len, e);

    if (r == -ERR_EXHAUSTED) { /* too long: the reply says so by leaving it out */
        res->diff = NULL;
        return 0;
    }
    return r;
}

int fs_edit_file(struct fs_caller *c, const char *path, const struct fs_edit_options *o,
                 struct fs_edit_result *ret, struct err *e)
{
    _cleanup_text_ struct text before = {0};
    _cleanup_text_ struct text after = {0};
    struct fs_edit_result res = {0};
    char tag[FS_ETAG_BYTES];
    int r;

    if (o->n_edits == 0 || o->n_edits > FS_EDIT_MAX_EDITS)
        return err_field(e, ERR_INVALID, "edits", "from 1 to %d edits", FS_EDIT_MAX_EDITS);
    r = read_old(c, path, o->create, &before, tag, e);
    if (r == 0)
        r = fs_check_tag(&o->condition, tag[0], tag, e);
    if (r < 0)
        return r;
    after.data = malloc(before.len + 1);
    if (!after.data)
        return err_oom(e);
    (void)memcpy(after.data, before.data, before.len);
    after.len = before.len;
    r = edit_apply(&after, o, &res.replaced, e);
    if (r == 0)
        r = make_diff(path, &before, &after, &res, e);
    res.bytes = after.len;
    (void)memcpy(res.etag, tag, FS_ETAG_BYTES);
    if (r == 0 && !o->dry_run)
        r = write_new(c, path, &after, tag, &res, e);
    if (r < 0) {
        free(res.diff);
        return r;
    }
    *ret = res;
    return 0;
}
