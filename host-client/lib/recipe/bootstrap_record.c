#include "lib/recipe/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"

#define RECORD_MAX_BYTES (2 * RECIPE_MAX_BYTES)
#define PASSWORD_BYTES 24
#define PASSWORD_MAX_BYTES 256

static int save_json(const char *box_dir, const char *name, const json_t *v, struct err *e)
{
    _cleanup_free_ char *path = path_join(box_dir, name);
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r = path ? jx_dump(v, &text, &len, e) : err_oom(e);

    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

static int load_json(const char *box_dir, const char *name, json_t **ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(box_dir, name);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, RECORD_MAX_BYTES, &text, &len, e) : err_oom(e);

    if (r == 0)
        r = jx_parse(text, len, ret, e);
    return r;
}

struct stored {
    const char *agent, *dir, *version, *session;
    uint32_t port;
    json_t *recipe;
};

static const struct jx_field stored_fields[] = {
    JX(struct stored, agent, jx_str, JX_REQUIRED),
    JX(struct stored, dir, jx_str, JX_REQUIRED),
    JX(struct stored, version, jx_str, JX_REQUIRED),
    JX(struct stored, session, jx_str, JX_NULLABLE),
    JX(struct stored, port, jx_u32, 0),
    JX(struct stored, recipe, jx_object, JX_REQUIRED),
    {0},
};

int bootstrap_record_load(const char *box_dir, struct bootstrap_record *ret, struct err *e)
{
    struct bootstrap_record rec = {0};
    _cleanup_json_ json_t *doc = NULL;
    struct stored s = {0};
    int r = load_json(box_dir, "agent.json", &doc, e);

    if (r == 0)
        r = jx_decode_lax(doc, stored_fields, &s, e);
    if (r == 0)
        r = recipe_from_json(s.recipe, s.dir, s.version, &rec.recipe, e);
    if (r < 0)
        return err_wrap(e, r, "the record of the coding agent");
    rec.agent = strdup(s.agent);
    rec.session = s.session ? strdup(s.session) : NULL;
    rec.port = (uint16_t)s.port;
    if (!rec.agent || (s.session && !rec.session)) {
        bootstrap_record_done(&rec);
        return err_oom(e);
    }
    *ret = rec;
    return 0;
}

int bootstrap_record_save(const char *box_dir, const struct bootstrap_record *rec, struct err *e)
{
    _cleanup_json_ json_t *doc =
        json_pack("{s:s, s:s, s:s, s:s?, s:i, s:O}", "agent", rec->agent, "dir", rec->recipe.dir,
                  "version", rec->recipe.version, "session", rec->session, "port", (int)rec->port,
                  "recipe", rec->recipe.doc);

    return doc ? save_json(box_dir, "agent.json", doc, e) : err_oom(e);
}

void bootstrap_record_done(struct bootstrap_record *rec)
{
    if (!rec)
        return;
    free(rec->agent);
    free(rec->session);
    recipe_done(&rec->recipe);
    *rec = (struct bootstrap_record){0};
}

int bootstrap_password(const char *box_dir, bool make, char **ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(box_dir, "agent-password");
    char fresh[2 * PASSWORD_BYTES + 1];
    struct err why = {0};
    int r;

    if (!path)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, path, PASSWORD_MAX_BYTES, ret, NULL, &why);
    if (r == 0)
        return 0;
    if (r != -ERR_NOT_FOUND) {
        if (e)
            *e = why;
        return r;
    }
    if (make) {
        r = io_random_hex(PASSWORD_BYTES, fresh, e);
        if (r == 0)
            r = io_write_file(AT_FDCWD, path, fresh, strlen(fresh), 0600, true, e);
        if (r < 0)
            return r;
    }
    *ret = strdup(make ? fresh : "");
    return *ret ? 0 : err_oom(e);
}

int bootstrap_start_save(const char *box_dir, const json_t *request, struct err *e)
{
    _cleanup_free_ char *path = path_join(box_dir, "agent-start.json");

    if (request)
        return save_json(box_dir, "agent-start.json", request, e);
    if (!path)
        return err_oom(e);
    return unlink(path) < 0 && errno != ENOENT ? err_sys(e, errno, "remove '%s'", path) : 0;
}
