/*
 * fuzz-flags: -max_len=2048
 * Requests of Exec/Run and Start: an accepted request is a whole spec within its bounds; an error
 * names the field. A repeated request has the same digest, whatever the order of its fields, also
 * with another id.
 */
#include "fuzz.h"

#include "common/jsonx.h"
#include "common/str.h"
#include "proc/journal.h"
#include "api/exec/exec_json.h"

static const struct agent agent;

static void check_spec(const struct proc_spec *s)
{
    CHECK((s->argv != NULL) != (s->script != NULL));
    CHECK(!s->argv || (s->argv[0] && *s->argv[0]));
    CHECK(s->head_bytes <= JOURNAL_MAX_BYTES && s->tail_bytes <= JOURNAL_MAX_BYTES);
    CHECK(s->spill_bytes <= SPILL_MAX_BYTES);
    CHECK(s->umask >= -1 && s->umask <= 0777);
    CHECK(s->n_limits <= SPAWN_MAX_LIMITS);
    CHECK(s->cols >= 1 && s->cols <= PTY_MAX_SIDE && s->rows >= 1 && s->rows <= PTY_MAX_SIDE);
    for (char **at = s->env; at && *at; at++)
        CHECK(strchr(*at, '=') > *at);
    for (size_t i = 0; i < s->n_limits; i++)
        CHECK(str_has_prefix(s->limits[i].field, "rlimits."));
}

/* The same fields in reverse order. */
static json_t *reversed(const json_t *v)
{
    json_t *out = json_object();
    const char *names[64];
    json_t *value;
    const char *name;
    size_t n = 0;

    json_object_foreach ((json_t *)v, name, value)
        if (n < 64)
            names[n++] = name;
    while (n--)
        CHECK(json_object_set(out, names[n], json_object_get(v, names[n])) == 0);
    return out;
}

static void check_digest(const json_t *v, const struct proc_spec *s)
{
    json_t *other = reversed(v);
    struct exec_request t = {0};

    CHECK(json_object_set_new(other, "id", json_string("another")) == 0);
    proc_spec_init(&t.spec);
    CHECK(exec_decode_request(other, &agent, &t, NULL) == 0);
    CHECK(!s->id || memcmp(s->digest, t.spec.digest, SPEC_DIGEST_BYTES) == 0);
    proc_spec_done(&t.spec);
    json_decref(other);
}

FUZZ(data, size)
{
    struct exec_request rq = {0};
    struct err e = {0};
    json_t *v;
    int r;

    if (jx_parse((const char *)data, size, &v, &e) < 0) {
        CHECK(e.code == ERR_INVALID);
        return 0;
    }
    proc_spec_init(&rq.spec);
    r = exec_decode_request(v, &agent, &rq, &e);
    if (r == 0) {
        check_spec(&rq.spec);
        check_digest(v, &rq.spec);
    } else {
        CHECK(r == -e.code && e.message[0]);
        CHECK(e.field[0] || !json_is_object(v) || json_object_get(v, ""));
    }
    proc_spec_done(&rq.spec);
    json_decref(v);
    return 0;
}
