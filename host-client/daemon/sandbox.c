/*
 * sandbox: the routes that CortexPrism has, with its names: code that runs in a box of its own, which is destroyed
 * afterwards; settings; backends; the debug log. The settings are a file of the state directory.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "daemon/answers.h"
#include "daemon/daemon.h"
#include "daemon/sandbox.h"
#include "lib/provider/provider.h"
#include "lib/util/debug.h"

#define FILE_NAME "sandbox.json"
#define FILE_BYTES (64 * 1024)
#define CODE_NAME_BYTES 24
#define DESTROY_MS (2 * 60 * 1000)
#define DESTROY_TRIES 3
#define DESTROY_RETRY_MS 500 /* doubled with each */
#define OUTPUT_MOST (16 * 1024 * 1024)
#define TIMEOUT_MOST_MS (60 * 60 * 1000)
#define GRACE_MS (5 * 60 * 1000) /* the box's time to live beyond its command's */

/* ---- settings ---- */

struct sandbox_config {
    char *runtime; /* a provider, or an OCI runtime: "gvisor" is runsc */
    char *memory_limit;
    uint64_t memory_bytes;
    int64_t timeout;
    uint64_t output_limit;
};

static const struct jx_field config_fields[] = {
    JX(struct sandbox_config, runtime, jx_str_copy, 0),
    JX(struct sandbox_config, timeout, jx_i64, 0),
    JX_AS("memoryLimit", struct sandbox_config, memory_limit, jx_str_copy, 0),
    JX_RANGE("outputLimit", struct sandbox_config, output_limit, jx_u64, 0, 1, OUTPUT_MOST),
    {0},
};

static const struct {
    const char *name, *interpreter;
} code_languages[] = {
    {"bash", "bash"}, {"javascript", "node"}, {"python", "python3"}, {"ruby", "ruby"}, {"sh", "sh"},
};

static const struct {
    const char *name, *provider, *runtime;
    bool limits; /* it can limit the memory */
} code_backends[] = {
    {"oci", "oci", NULL, true},
    {"runc", "oci", "runc", true},
    {"crun", "oci", "crun", true},
    {"gvisor", "oci", "runsc", false},
    {"subprocess", "process", NULL, false},
};

static void config_done(struct sandbox_config *c)
{
    free(c->runtime);
    free(c->memory_limit);
}
#define _cleanup_config_ _cleanup_(config_done)

static int backend_index(const char *name, struct err *e)
{
    for (size_t i = 0; i < N_ELEMENTS(code_backends); i++)
        if (str_eq(code_backends[i].name, name))
            return (int)i;
    return err_field(e, ERR_INVALID, "runtime", "runtime: there is no backend '%.60s'", name);
}

static int config_check(struct sandbox_config *c, struct err *e)
{
    int r = backend_index(c->runtime, e);

    if (r >= 0 && (c->timeout < 1 || c->timeout > TIMEOUT_MOST_MS))
        r = err_field(e, ERR_INVALID, "timeout", "timeout: must be from 1 ms to an hour");
    if (r >= 0)
        r = err_at(e, str_parse_size(c->memory_limit, &c->memory_bytes, e), "memoryLimit");
    return r < 0 ? r : 0;
}

/* Replaces a text by a later one of the same field: the decoder does not free. */
static int config_merge(json_t *v, struct sandbox_config *c, struct err *e)
{
    struct sandbox_config later = {.timeout = c->timeout, .output_limit = c->output_limit};
    int r = jx_decode(v, config_fields, &later, e);

    if (!later.runtime)
        later.runtime = TAKE(c->runtime);
    if (!later.memory_limit)
        later.memory_limit = TAKE(c->memory_limit);
    config_done(c);
    *c = later;
    return r < 0 ? r : config_check(c, e);
}

static int config_load(const struct job *j, struct sandbox_config *c, struct err *e)
{
    _cleanup_free_ char *path = path_join(j->daemon->options.state_dir, FILE_NAME);
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *v = NULL;
    size_t len;

    *c = (struct sandbox_config){.runtime = strdup("oci"),
                                 .memory_limit = strdup("512m"),
                                 .timeout = 30000,
                                 .output_limit = 102400};
    if (!path || !c->runtime || !c->memory_limit)
        return err_oom(e);
    if (io_read_file(AT_FDCWD, path, FILE_BYTES, &text, &len, NULL) == 0 &&
        jx_parse_object(text, len, &v, NULL) == 0)
        return config_merge(v, c, e);
    return config_check(c, e);
}

static json_t *config_json(const struct sandbox_config *c)
{
    return json_pack("{s:s, s:I, s:s, s:I}", "runtime", c->runtime, "timeout",
                     (json_int_t)c->timeout, "memoryLimit", c->memory_limit, "outputLimit",
                     (json_int_t)c->output_limit);
}

static int reply_config(struct job *j, const struct sandbox_config *c, struct err *e)
{
    json_t *names = json_array();
    int r = job_reply_take(j, config_json(c), e);

    for (size_t i = 0; i < N_ELEMENTS(code_languages); i++)
        (void)json_array_append_new(names, json_string(code_languages[i].name));
    if (r < 0) {
        json_decref(names);
        return r;
    }
    return json_object_set_new(j->reply, "languages", names) < 0 ? err_oom(e) : 0;
}

int answer_sandbox_config(struct job *j, struct err *e)
{
    _cleanup_config_ struct sandbox_config c = {0};
    int r = config_load(j, &c, e);

    return r < 0 ? r : reply_config(j, &c, e);
}

int answer_set_sandbox_config(struct job *j, struct err *e)
{
    _cleanup_config_ struct sandbox_config c = {0};
    _cleanup_free_ char *path = path_join(j->daemon->options.state_dir, FILE_NAME);
    _cleanup_json_ json_t *v = NULL;
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r = path ? config_load(j, &c, e) : err_oom(e);

    if (r == 0)
        r = config_merge(j->body, &c, e);
    if (r == 0)
        r = jx_dump(v = config_json(&c), &text, &len, e);
    if (r == 0)
        r = io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
    return r < 0 ? r : reply_config(j, &c, e);
}

/* ---- backends: available if the probe that makes boxes has passed ---- */

static int add_backend(struct job *j, size_t i, json_t *list, struct err *e)
{
    const struct provider *p = provider_find(code_backends[i].provider);
    struct provider_facts facts = {0};
    struct err why = {0};
    bool usable = p &&
                  p->probe(j->ctx, code_backends[i].runtime ? code_backends[i].runtime : "", &facts,
                           &why) == 0 &&
                  facts.usable;
    const char *reason = usable ? "" : *facts.why ? facts.why : why.message;

    return json_array_append_new(list, json_pack("{s:s, s:b, s:s}", "name", code_backends[i].name,
                                                 "available", usable, "reason", reason)) < 0
               ? err_oom(e)
               : 0;
}

int answer_backends(struct job *j, struct err *e)
{
    json_t *list = json_array();
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(code_backends); i++)
        r = add_backend(j, i, list, e);
    if (r < 0) {
        json_decref(list);
        return r;
    }
    return job_reply_take(j, json_pack("{s:o}", "backends", list), e);
}

/* ---- code ---- */

struct code_body {
    const char *code, *language;
    int64_t timeout;
};

static const struct jx_field code_fields[] = {
    JX(struct code_body, code, jx_str, JX_REQUIRED),
    JX(struct code_body, language, jx_str, JX_REQUIRED),
    JX(struct code_body, timeout, jx_i64, 0),
    {0},
};

struct code_output {
    struct buf out[3]; /* by stream: 1, 2 */
    uint64_t limit;    /* of both */
    bool is_truncated;
};

static int take_output(void *arg, int stream, const char *data, size_t len)
{
    struct code_output *o = arg;
    size_t left = o->limit - o->out[1].len - o->out[2].len;

    o->is_truncated |= len > left;
    return buf_add(&o->out[stream], data, len < left ? len : left, NULL);
}

/* As UTF-8: a character that the limit has cut is dropped, every other wrong byte becomes '?'. */
static const char *output_text(struct code_output *o, int stream)
{
    struct buf *b = &o->out[stream];

    if (o->is_truncated)
        b->len = str_utf8_whole(b->data ? b->data : "", b->len);
    for (size_t i = 0; i < b->len; i++)
        if (!b->data[i])
            b->data[i] = '?';
    if (buf_add(b, "", 1, NULL) < 0)
        return "";
    str_make_utf8(b->data);
    return b->data;
}

static json_t *code_reply(struct code_output *o, const struct bh_run_result *result,
                          const struct code_body *body, const struct sandbox_config *c)
{
    bool is_timeout = str_eq(result->reason, "timeout");
    json_t *v = json_pack("{s:s, s:s, s:b, s:b, s:I, s:s, s:s}", "stdout", output_text(o, 1),
                          "stderr", output_text(o, 2), "timedOut", is_timeout, "truncated",
                          o->is_truncated, "durationMs", (json_int_t)result->wall_ms, "language",
                          body->language, "runtime", c->runtime);

    (void)json_object_set_new(
        v, "exitCode", str_eq(result->reason, "exited") ? json_integer(result->code) : json_null());
    return v;
}

static int run_code(struct job *j, struct bh_box *box, const struct code_body *body,
                    const struct sandbox_config *c, const char *interpreter, struct err *e)
{
    struct code_output o = {.limit = c->output_limit};
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_error error = {0};
    _cleanup_free_ char *script = NULL;
    struct bh_run_options run = {.size = sizeof(run),
                                 .stdin_fd = -1,
                                 .timeout_ms = body->timeout ? body->timeout : c->timeout,
                                 .output = take_output,
                                 .output_arg = &o};
    int r = 0;

    if (asprintf(&script, "#!/usr/bin/env %s\n%s\n", interpreter, body->code) < 0)
        return err_oom(e);
    run.shell = script;
    buf_init(&o.out[1], c->output_limit + 1);
    buf_init(&o.out[2], c->output_limit + 1);
    r = job_fail(e, bh_run(box, &run, &result, &error), &error);
    if (r == 0)
        r = job_reply_take(j, code_reply(&o, &result, body, c), e);
    buf_done(&o.out[1]);
    buf_done(&o.out[2]);
    return r;
}

/* Without a network, and nothing of the project: as CortexPrism's. */
static int make_code_box(struct job *j, const struct sandbox_config *c, int64_t timeout_ms,
                         struct bh_box **ret, struct err *e)
{
    int i = backend_index(c->runtime, e);
    const struct provider *p = i < 0 ? NULL : provider_find(code_backends[i].provider);
    bool isolates = p && p->isolates;
    char digits[17], name[CODE_NAME_BYTES];
    struct bh_create_options o = {.size = sizeof(o),
                                  .name = name,
                                  .agent = "none",
                                  .on_timeout = "rm",
                                  .no_upload = true,
                                  .timeout_ms = timeout_ms + GRACE_MS};
    struct bh_error error = {0};
    int r = i < 0 ? i : io_random_hex(6, digits, e);

    if (r < 0)
        return r;
    if (!isolates && !j->is_admin)
        return err_field(e, ERR_DENIED, "runtime",
                         "runtime: '%s' isolates nothing: it needs the scope 'admin'", c->runtime);
    (void)snprintf(name, sizeof(name), "code-%s", digits);
    o.provider = code_backends[i].provider;
    o.runtime = code_backends[i].runtime;
    o.network = isolates ? "none" : NULL;
    o.memory_bytes = code_backends[i].limits ? c->memory_bytes : 0;
    return job_fail(e, bh_create(j->ctx, &o, ret, &error), &error);
}

static const char *interpreter_of(const char *language)
{
    for (size_t i = 0; i < N_ELEMENTS(code_languages); i++)
        if (str_eq(code_languages[i].name, language))
            return code_languages[i].interpreter;
    return NULL;
}

/* A removal that was refused has ended the box's monitor, and with it the time to live: it is tried again. */
static void destroy_code_box(struct bh_box *box)
{
    int r = -BH_UNAVAILABLE;

    for (int i = 0; i < DESTROY_TRIES && r < 0 && r != -BH_NOT_FOUND; i++) {
        if (i)
            (void)poll(NULL, 0, DESTROY_RETRY_MS << i);
        r = bh_destroy(box, DESTROY_MS, NULL);
    }
}

int answer_code(struct job *j, struct err *e)
{
    _cleanup_config_ struct sandbox_config c = {0};
    struct code_body body = {0};
    struct bh_box *box _cleanup_box_ = NULL;
    const char *interpreter;
    int r = config_load(j, &c, e);

    if (r == 0)
        r = job_decode(j, code_fields, &body, e);
    if (r < 0)
        return r;
    interpreter = interpreter_of(body.language);
    if (!interpreter)
        return err_field(e, ERR_INVALID, "language", "language: there is no '%.60s'",
                         body.language);
    if (body.timeout < 0 || body.timeout > TIMEOUT_MOST_MS)
        return err_field(e, ERR_INVALID, "timeout", "timeout: must be from 1 ms to an hour");
    r = make_code_box(j, &c, body.timeout ? body.timeout : c.timeout, &box, e);
    if (r < 0)
        return r;
    r = run_code(j, box, &body, &c, interpreter, e);
    destroy_code_box(box);
    return r;
}

/* ---- the debug log ---- */

static _Atomic bool debug_on;

/* bh_options.debug of all contexts. */
void sandbox_debug(void *arg, const char *part, const char *text)
{
    _cleanup_free_ char *line = atomic_load(&debug_on) ? debug_format(part, text) : NULL;

    (void)arg;
    if (line)
        (void)io_write_all(STDERR_FILENO, line, strlen(line), NULL);
}

int answer_debug(struct job *j, struct err *e)
{
    return job_reply_take(j, json_pack("{s:b}", "enabled", (int)atomic_load(&debug_on)), e);
}

struct debug_body {
    bool enabled;
};

static const struct jx_field debug_fields[] = {
    JX(struct debug_body, enabled, jx_bool, JX_REQUIRED),
    {0},
};

int answer_set_debug(struct job *j, struct err *e)
{
    struct debug_body body = {0};
    int r = job_decode(j, debug_fields, &body, e);

    if (r < 0)
        return r;
    atomic_store(&debug_on, body.enabled);
    return answer_debug(j, e);
}
