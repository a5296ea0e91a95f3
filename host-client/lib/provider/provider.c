#include "lib/provider/provider.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"

#define POINTER(name) &provider_##name,
#define NAME(name) #name,
static const struct provider *const provider_rows[] = {PROVIDERS(POINTER)};
static const struct provider *const provider_elsewhere[] = {PROVIDERS_ELSEWHERE(POINTER)};
const char *const provider_names[] = {PROVIDERS(NAME) NULL};

const struct provider *provider_at(size_t i)
{
    return i < N_ELEMENTS(provider_rows) ? provider_rows[i] : NULL;
}

const struct provider *provider_find(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(provider_rows); i++)
        if (strcmp(provider_rows[i]->name, name) == 0)
            return provider_rows[i];
    for (size_t i = 0; i < N_ELEMENTS(provider_elsewhere); i++)
        if (strcmp(provider_elsewhere[i]->name, name) == 0)
            return provider_elsewhere[i];
    return NULL;
}

enum bh_state provider_state(const struct provider *p, const char *word)
{
    for (const struct provider_state *s = p->states; s && s->word; s++)
        if (str_eq(s->word, word))
            return s->state;
    return BH_STATE_UNKNOWN;
}

int64_t provider_deadline(const struct provider_box *b)
{
    return b->deadline_mono_ms ? b->deadline_mono_ms : clock_mono_ms() + PROVIDER_MS;
}

void provider_report(const struct provider *p, const struct bh_ctx *ctx, const char *call,
                     const char *box, int64_t begun_ms, int r)
{
    debug_line(&ctx->debug, "provider", "%s %s%s%s: %s %lld ms", p->name, call, *box ? " " : "",
               box, r < 0 ? err_wire_name(r) : "ok", (long long)(clock_mono_ms() - begun_ms));
}

/* ---- the spec against the capabilities ---- */

/* In the order in which a provider's own network is chosen. */
static const struct {
    const char *name;
    unsigned bit;
} network_names[] = {
    {"user", PROVIDER_NETWORK_USER},
    {"none", PROVIDER_NETWORK_NONE},
    {"host", PROVIDER_NETWORK_HOST},
};

static bool provider_has_network(const struct provider *p, const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(network_names); i++)
        if (strcmp(network_names[i].name, name) == 0)
            return p->networks & network_names[i].bit;
    return false;
}

static int check_capabilities(const struct provider *p, const struct spec *s, struct err *e)
{
    bool is_host_image = str_eq(s->image, SPEC_IMAGE_HOST);
    const struct {
        const char *field;
        bool is_asked, is_possible;
    } options[] = {
        {"image", s->asked & SPEC_ASKED_IMAGE,
         is_host_image ? p->has_host_image : p->image != PROVIDER_IMAGE_NONE},
        {"runtime", s->asked & SPEC_ASKED_RUNTIME, p->has_runtimes},
        {"read-only", s->read_only, p->has_read_only},
        {"pool", *s->pool, p->has_pools},
        {"network", s->asked & SPEC_ASKED_NETWORK, provider_has_network(p, s->network)},
        {"privilege", s->asked & SPEC_ASKED_PRIVILEGE, p->has_privileges},
        {"allow-missing", s->allow_missing && s->allow_missing[0], p->has_allow_missing},
        {"cpus", s->cpu_millis, p->limits & PROVIDER_LIMIT_CPUS},
        {"memory", s->memory_bytes, p->limits & PROVIDER_LIMIT_MEMORY},
        {"disk", s->disk_bytes, p->limits & PROVIDER_LIMIT_DISK},
        {"pids", s->asked & SPEC_ASKED_PIDS, p->limits & PROVIDER_LIMIT_PIDS},
    };

    for (size_t i = 0; i < N_ELEMENTS(options); i++)
        if (options[i].is_asked && !options[i].is_possible)
            return err_field(e, ERR_UNIMPLEMENTED, options[i].field,
                             "%s: the provider '%s' %scannot honour it", options[i].field, p->name,
                             p->isolates ? "" : "has no isolation and ");
    return 0;
}

/* The engine makes a pool's boxes beforehand. */
static int check_pool_options(const struct spec *s, struct err *e)
{
    const struct {
        const char *field;
        bool is_asked;
    } options[] = {
        {"image", s->asked & SPEC_ASKED_IMAGE},
        {"runtime", s->asked & SPEC_ASKED_RUNTIME},
        {"read-only", s->read_only},
        {"network", s->asked & SPEC_ASKED_NETWORK},
        {"privilege", s->asked & SPEC_ASKED_PRIVILEGE},
        {"cpus", s->cpu_millis},
        {"memory", s->memory_bytes},
        {"disk", s->disk_bytes},
        {"pids", s->asked & SPEC_ASKED_PIDS},
    };

    for (size_t i = 0; *s->pool && i < N_ELEMENTS(options); i++)
        if (options[i].is_asked)
            return err_field(e, ERR_UNIMPLEMENTED, options[i].field,
                             "%s: the template of the pool '%.64s' decides it", options[i].field,
                             s->pool);
    return 0;
}

static int replace_text(char **text, const char *value, struct err *e)
{
    char *copy = strdup(value);

    if (!copy)
        return err_oom(e);
    free(*text);
    *text = copy;
    return 0;
}

static int fill_defaults(const struct provider *p, struct spec *s, struct err *e)
{
    bool has_image = p->image != PROVIDER_IMAGE_NONE && !*s->pool;
    int r = has_image ? 0 : replace_text(&s->image, "", e);

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(network_names); i++)
        if (!provider_has_network(p, s->network) && p->networks & network_names[i].bit)
            r = replace_text(&s->network, network_names[i].name, e);
    return r;
}

int provider_check(const struct provider *p, struct bh_ctx *ctx, struct spec *spec, struct err *e)
{
    int r = check_capabilities(p, spec, e);

    if (r == 0)
        r = check_pool_options(spec, e);
    if (r == 0)
        r = fill_defaults(p, spec, e);
    return r < 0 ? r : p->check(ctx, spec, e);
}

char *provider_workdir(const struct provider *p, const char *dir, const struct spec *spec)
{
    if (p->shares_machine && strcmp(spec->dest, SPEC_DEST) == 0)
        return path_join(dir, "workspace");
    return strdup(spec->dest);
}

/* ---- the layer ---- */

#define LAYER_FILE_BYTES 16384

static const struct jx_field layer_fields[] = {
    JX(struct provider_layer, source, jx_str_copy, JX_REQUIRED),
    JX(struct provider_layer, target, jx_str_copy, JX_REQUIRED),
    JX(struct provider_layer, label, jx_str_copy, JX_REQUIRED),
    {0},
};

int provider_layer_load(const char *box_dir, struct provider_layer *ret, struct err *e)
{
    _cleanup_free_ char *path = path_join(box_dir, PROVIDER_LAYER_FILE);
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *doc = NULL;
    struct provider_layer l = {0};
    struct err why = {0};
    size_t len = 0;
    int r =
        path ? io_read_file(AT_FDCWD, path, LAYER_FILE_BYTES, &text, &len, &why) : err_oom(&why);

    if (r == 0)
        r = jx_parse(text, len, &doc, &why);
    if (r == 0)
        r = jx_decode_lax(doc, layer_fields, &l, &why);
    if (r < 0)
        provider_layer_done(&l);
    if (r < 0 && r != -ERR_NOT_FOUND) {
        if (e)
            *e = why;
        return err_wrap(e, r, "the layer of the box");
    }
    *ret = l;
    return 0;
}

int provider_layer_save(const struct provider *p, const char *box_dir, const char *source,
                        const char *label, struct err *e)
{
    _cleanup_free_ char *path = path_join(box_dir, PROVIDER_LAYER_FILE);
    _cleanup_free_ char *target = NULL, *text = NULL;
    _cleanup_json_ json_t *doc = NULL;
    size_t len;
    int r;

    if (!path)
        return err_oom(e);
    if (!source)
        return unlink(path) < 0 && errno != ENOENT ? err_sys(e, errno, "remove '%s'", path) : 0;
    target =
        p->layers == PROVIDER_LAYERS_SHARED ? strdup(source) : path_join(PROVIDER_LAYER_DIR, label);
    doc = target ? json_pack("{s:s, s:s, s:s}", "source", source, "target", target, "label", label)
                 : NULL;
    r = doc ? jx_dump(doc, &text, &len, e) : err_oom(e);
    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

void provider_layer_done(struct provider_layer *l)
{
    free(l->source);
    free(l->target);
    free(l->label);
    *l = (struct provider_layer){0};
}

json_t *provider_unknown_isolation(void)
{
    json_t *obj = json_object();

    for (size_t i = 0; i < SPEC_N_OF_PROCESS; i++)
        (void)json_object_set_new(obj, spec_pieces[i], json_string("unknown"));
    return obj;
}
