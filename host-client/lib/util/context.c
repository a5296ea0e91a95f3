#include "lib/util/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/daemon_client.h"

#ifndef BELLHOP_VERSION
#define BELLHOP_VERSION "0.0.0"
#endif
#ifndef BH_PREFIX
#define BH_PREFIX "/usr/local"
#endif

/* The public codes and the internal ones are the same numbers. */
_Static_assert((int)BH_CANCELED == (int)ERR_CANCELED, "codes differ");
_Static_assert((int)BH_FAILED_PRECONDITION == (int)ERR_PRECONDITION, "codes differ");
_Static_assert((int)BH_UNAUTHENTICATED == (int)ERR_UNAUTHENTICATED, "codes differ");

const char *bh_code_name(int code)
{
    return err_wire_name(code);
}

const char *bh_version(void)
{
    return BELLHOP_VERSION;
}

/* ---- errors ---- */

#define GONE_DETAIL "gone" /* of struct err: JSON text */

/* The facts as JSON text; the cause is cut until the text has room. */
static void set_gone_detail(struct err *e, const struct ctx_gone *gone)
{
    _cleanup_free_ char *cause = strdup(gone->cause);
    size_t n = cause ? strlen(cause) : 0;

    for (;;) {
        _cleanup_json_ json_t *facts = json_pack(
            "{s:s, s:s, s:I, s:s*, s:s%}", "id", gone->id, "provider",
            gone->provider ? gone->provider : "", "destroyed_ms", (json_int_t)gone->destroyed_ms,
            "snapshot", gone->snapshot, "cause", cause ? cause : "", n);
        _cleanup_free_ char *text = facts ? json_dumps(facts, JSON_COMPACT) : NULL;

        if (!text || strlen(text) < ERR_DETAIL_BYTES || !n) {
            (void)err_detail(e, -ERR_NOT_FOUND, GONE_DETAIL, text ? text : "{}");
            return;
        }
        n = str_utf8_whole(cause, n - 1);
    }
}

int ctx_gone_error(struct err *e, const struct ctx_gone *gone)
{
    char when[CLOCK_TEXT_BYTES];

    clock_text(gone->destroyed_ms, when);
    (void)err_field(
        e, ERR_NOT_FOUND, "name",
        "there is no box with the name '%s' any more: it is gone since %s%s%.250s%s%s%s",
        gone->name, when, *gone->cause ? ": " : "", gone->cause,
        gone->snapshot ? "; 'bellhop up --from " : "", gone->snapshot ? gone->snapshot : "",
        gone->snapshot ? "' makes a box of its last snapshot" : "");
    if (e)
        set_gone_detail(e, gone);
    return -ERR_NOT_FOUND;
}

/* Fills the detail: {"gone":{...}}. */
static void tell_gone(struct bh_error *out, const struct err *e)
{
    json_t *facts = json_loads(e->detail, 0, NULL);
    _cleanup_json_ json_t *whole = facts ? json_pack("{s:o}", GONE_DETAIL, facts) : NULL;
    _cleanup_free_ char *text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;

    if (text)
        (void)snprintf(out->detail, sizeof(out->detail), "%s", text);
}

static void copy_fact(char *out, size_t size, json_t *facts, const char *key)
{
    const char *text = json_string_value(json_object_get(facts, key));

    (void)snprintf(out, size, "%s", text ? text : "");
    out[str_utf8_whole(out, strlen(out))] = '\0';
}

bool bh_error_gone(const struct bh_error *err, struct bh_gone *ret)
{
    bool is_other = !err || err->code != BH_NOT_FOUND || err->step[0];
    _cleanup_json_ json_t *detail = is_other ? NULL : json_loads(err->detail, 0, NULL);
    json_t *facts = json_object_get(detail, GONE_DETAIL);
    struct bh_gone gone = {.size = sizeof(gone)};

    if (!json_is_object(facts) || !ret)
        return json_is_object(facts);
    copy_fact(gone.id, sizeof(gone.id), facts, "id");
    copy_fact(gone.provider, sizeof(gone.provider), facts, "provider");
    copy_fact(gone.cause, sizeof(gone.cause), facts, "cause");
    copy_fact(gone.snapshot, sizeof(gone.snapshot), facts, "snapshot");
    gone.destroyed_ms = json_integer_value(json_object_get(facts, "destroyed_ms"));
    gone.size = ret->size < sizeof(gone) ? ret->size : sizeof(gone);
    memcpy(ret, &gone, gone.size);
    return true;
}

/* Copies the machine-readable detail of the agent's error. */
static void tell_detail(struct bh_error *out, const struct err *e)
{
    json_t *whole = e->detail_name[0] ? jx_new_error(e) : NULL;
    char *text = whole ? json_dumps(json_object_get(whole, "detail"), JSON_COMPACT) : NULL;

    if (text)
        (void)snprintf(out->detail, sizeof(out->detail), "%s", text);
    free(text);
    json_decref(whole);
}

int ctx_fail(struct bh_error *out, int r, const struct err *e)
{
    if (!out || r >= 0)
        return r;
    memset(out, 0, sizeof(*out));
    out->code = -r;
    (void)snprintf(out->message, sizeof(out->message), "%s",
                   e && e->message[0] ? e->message : err_wire_name(r));
    str_make_utf8(out->message); /* it may contain a file name */
    if (e) {
        out->sys = e->sys;
        (void)snprintf(out->field, sizeof(out->field), "%s", e->field);
        str_make_utf8(out->field);
        if (str_eq(e->detail_name, GONE_DETAIL))
            tell_gone(out, e);
        else
            tell_detail(out, e);
    }
    return r;
}

void ctx_progress(struct bh_ctx *ctx, const char *phase, uint64_t done, uint64_t total,
                  bool finished, const char *fmt, ...)
{
    struct bh_progress p = {.phase = phase, .done = done, .total = total, .finished = finished};
    char text[256];
    va_list ap;

    if (!ctx->progress)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    p.text = text;
    ctx->progress(ctx->progress_arg, &p);
}

void bh_get_options(const struct bh_ctx *ctx, struct bh_options *ret_opts)
{
    /* The size was not read before there was an actor: such a caller may not have set it. */
    const size_t old = offsetof(struct bh_options, actor);
    bool is_known = ret_opts->size > old && ret_opts->size <= sizeof(*ret_opts);
    const struct bh_options o = {
        .size = is_known ? ret_opts->size : old,
        .state_dir = ctx->state_dir,
        .cache_dir = ctx->cache_dir,
        .agent_path = ctx->agent_path,
        .monitor_path = ctx->monitor_path,
        .recipe_dir = ctx->recipe_dir,
        .image_dir = ctx->image_dir,
        .template_dir = ctx->template_dir,
        .image_cache_dir = ctx->image_cache_dir,
        .answer_timeout_ms = ctx->answer_timeout_ms,
        .cancel_fd = ctx->cancel_fd,
        .no_resume = ctx->no_resume,
        .npm_registry = ctx->npm_registry,
        .progress = ctx->progress,
        .progress_arg = ctx->progress_arg,
        .actor = ctx->actor,
        .records_for_ms = ctx->records_for_ms,
        .box_max_files = ctx->box_max_files,
        .limits = ctx->limits,
        .host_env = ctx->host_env,
        .debug = ctx->debug.fn,
        .debug_arg = ctx->debug.arg,
        .provider_timeout_ms = ctx->provider_timeout_ms,
        .daemon = ctx->daemon_url,
        .daemon_token = ctx->daemon_token,
        .daemon_ca = ctx->daemon_ca,
        .docker_host = ctx->docker_host,
        .kubeconfig = ctx->kubeconfig,
        .kube_context = ctx->kube_context,
        .kube_namespace = ctx->kube_namespace,
        .kube_registry = ctx->kube_registry,
    };

    memcpy(ret_opts, &o, o.size);
}

char *ctx_box_path(const struct bh_ctx *ctx, const char *id, const char *name)
{
    char *path = NULL;

    if (asprintf(&path, "%s/boxes/%s%s%s", ctx->state_dir, id, name ? "/" : "", name ? name : "") <
        0)
        return NULL;
    return path;
}

bool ctx_has_box_id(const char *text)
{
    return strspn(text, "0123456789abcdef") == CTX_BOX_ID_CHARS;
}

bool ctx_is_box_id(const char *text)
{
    return ctx_has_box_id(text) && !text[CTX_BOX_ID_CHARS];
}

int options_copy(void *dst, size_t dst_size, const void *src, struct err *e)
{
    size_t size = 0;

    if (!src)
        return err_field(e, ERR_INVALID, "size", "the options are missing");
    memcpy(&size, src, sizeof(size));
    if (size < sizeof(size) || size > 64 * 1024)
        return err_field(e, ERR_INVALID, "size",
                         "the option struct's size is not set: use .size = sizeof(options)");
    memset(dst, 0, dst_size);
    memcpy(dst, src, size < dst_size ? size : dst_size);
    memcpy(dst, &dst_size, sizeof(dst_size));
    return 0;
}

/*
 * Finds a file or directory of ours: as given, or the first place that exists: beside the running
 * program (a build tree), under its prefix, under the prefix of the build. If none exists, the
 * last place is returned, for a readable error later. A place also counts if its entry in signs
 * (or NULL) exists, for a directory that need not exist yet.
 */
static int find_ours(const char *given, const char *const *places, const char *const *signs,
                     char **ret, struct err *e)
{
    _cleanup_free_ char *exe_dir = NULL;
    char exe[4096];
    ssize_t n;

    if (given) {
        *ret = strdup(given);
        return *ret ? 0 : err_oom(e);
    }
    n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    exe_dir = path_dir(exe);
    for (size_t i = 0; exe_dir && places[i]; i++) {
        _cleanup_free_ char *joined = path_join(exe_dir, places[i]);
        _cleanup_free_ char *sign = path_join(exe_dir, signs ? signs[i] : places[i]);
        _cleanup_free_ char *path = joined ? path_clean(joined) : NULL;

        if (!path || !sign)
            return err_oom(e);
        if (!places[i + 1] || access(path, F_OK) == 0 || access(sign, F_OK) == 0) {
            *ret = TAKE(path);
            return 0;
        }
    }
    return err_oom(e);
}

/* A build tree keeps it with the other downloads, where image/'s scripts look for it; else it
 * lies beside the images. Neither need exist yet. */
static int find_image_cache(struct bh_ctx *ctx, const struct bh_options *o, struct err *e)
{
    _cleanup_free_ char *up = path_dir(ctx->image_dir);
    _cleanup_free_ char *shared = up ? path_join(up, "cache") : NULL;
    _cleanup_free_ char *joined = up ? path_join(up, "../image/build.sh") : NULL;
    _cleanup_free_ char *sign = joined ? path_clean(joined) : NULL;

    if (!shared || !sign)
        return err_oom(e);
    if (o->image_cache_dir)
        ctx->image_cache_dir = strdup(o->image_cache_dir);
    else if (access(shared, F_OK) == 0 || access(sign, F_OK) == 0)
        ctx->image_cache_dir = path_join(shared, "image");
    else
        ctx->image_cache_dir = path_join(ctx->image_dir, ".cache");
    return ctx->image_cache_dir ? 0 : err_oom(e);
}

int ctx_find_daemon(char **ret, struct err *e)
{
    static const char *const places[] = {"bellhop-daemon", "../libexec/bellhop/bellhop-daemon",
                                         BH_PREFIX "/libexec/bellhop/bellhop-daemon", NULL};

    return find_ours(NULL, places, NULL, ret, e);
}

static int find_all_ours(struct bh_ctx *ctx, const struct bh_options *o, struct err *e)
{
    static const char *const agent[] = {"bellhopd", "../lib/bellhop/bellhopd",
                                        BH_PREFIX "/lib/bellhop/bellhopd", NULL};
    static const char *const monitor[] = {"bellhop-monitor", "../libexec/bellhop/bellhop-monitor",
                                          BH_PREFIX "/libexec/bellhop/bellhop-monitor", NULL};
    static const char *const recipes[] = {"../../bootstrap", "../share/bellhop/bootstrap",
                                          BH_PREFIX "/share/bellhop/bootstrap", NULL};
    static const char *const images[] = {"../image", "../share/bellhop/images",
                                         BH_PREFIX "/share/bellhop/images", NULL};
    static const char *const templates[] = {"../../image", "../share/bellhop/image",
                                            BH_PREFIX "/share/bellhop/image", NULL};
    int r;

    r = find_ours(o->agent_path, agent, NULL, &ctx->agent_path, e);
    if (r == 0)
        r = find_ours(o->monitor_path, monitor, NULL, &ctx->monitor_path, e);
    if (r == 0)
        r = find_ours(o->recipe_dir, recipes, NULL, &ctx->recipe_dir, e);
    if (r == 0)
        r = find_ours(o->image_dir, images, templates, &ctx->image_dir,
                      e); /* beside the templates */
    if (r == 0)
        r = find_ours(o->template_dir, templates, NULL, &ctx->template_dir, e);
    return r < 0 ? r : find_image_cache(ctx, o, e);
}

static int make_base_dir(const char *given, const char *field, char **ret, struct err *e)
{
    _cleanup_free_ char *cwd = NULL;
    _cleanup_free_ char *joined = NULL;
    int r;

    if (!given || !*given)
        return err_field(e, ERR_INVALID, field, "the option '%s' is required", field);
    cwd = getcwd(NULL, 0);
    if (!cwd)
        return err_sys(e, errno, "the working directory");
    joined = path_join(cwd, given);
    if (!joined)
        return err_oom(e);
    r = io_mkdir_p(joined, 0700, e);
    if (r < 0)
        return err_at(e, err_wrap(e, r, "%s", field), field);
    /* OCI runtimes refuse symlinks in a bundle's paths. */
    *ret = realpath(joined, NULL);
    return *ret ? 0 : err_at(e, err_sys(e, errno, "%s '%s'", field, joined), field);
}

/* A user who can write there could replace a box's files and gain our privileges. The directory
 * is the user's own: it is refused, not changed. */
static int check_private(const char *dir, struct err *e)
{
    struct stat st;

    if (stat(dir, &st) < 0)
        return err_at(e, err_sys(e, errno, "state_dir '%s'", dir), "state_dir");
    if (st.st_mode & S_IWOTH || (st.st_mode & S_IWGRP && st.st_gid != getegid()))
        return err_field(e, ERR_DENIED, "state_dir",
                         "state_dir: '%s' can be written by others (mode %04o): chmod go-w it", dir,
                         (unsigned)(st.st_mode & 07777));
    return 0;
}

/* Makes the directories that every state directory has, so that a refused call changes nothing
 * in it. */
static int make_state_dirs(const struct bh_ctx *ctx, struct err *e)
{
    static const char *const names[] = {"boxes", "locks"};
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(names); i++) {
        _cleanup_free_ char *dir = path_join(ctx->state_dir, names[i]);

        r = dir ? io_mkdir_p(dir, 0700, e) : err_oom(e);
    }
    return r < 0 ? err_at(e, r, "state_dir") : 0;
}

static int copy_text(const char *given, char **ret, struct err *e)
{
    *ret = given ? strdup(given) : NULL;
    return given && !*ret ? err_oom(e) : 0;
}

static int copy_kube(struct bh_ctx *ctx, const struct bh_options *o, struct err *e)
{
    int r = copy_text(o->kubeconfig, &ctx->kubeconfig, e);

    if (r == 0)
        r = copy_text(o->kube_context, &ctx->kube_context, e);
    if (r == 0)
        r = copy_text(o->kube_namespace, &ctx->kube_namespace, e);
    return r < 0 ? r : copy_text(o->kube_registry, &ctx->kube_registry, e);
}

static int ctx_fill(struct bh_ctx *ctx, const struct bh_options *o, struct err *e)
{
    int r;

    r = make_base_dir(o->state_dir, "state_dir", &ctx->state_dir, e);
    if (r == 0)
        r = check_private(ctx->state_dir, e);
    if (r < 0)
        return r;
    r = make_base_dir(o->cache_dir, "cache_dir", &ctx->cache_dir, e);
    if (r < 0)
        return r;
    r = make_state_dirs(ctx, e);
    if (r < 0)
        return r;
    r = find_all_ours(ctx, o, e);
    if (r < 0)
        return r;

    ctx->cancel_fd = o->cancel_fd > 0 ? o->cancel_fd : -1;
    if (o->answer_timeout_ms < 0)
        return err_field(e, ERR_INVALID, "answer_timeout",
                         "answer_timeout: the time must not be negative");
    ctx->answer_timeout_ms = o->answer_timeout_ms;
    if (o->provider_timeout_ms < 0 || o->provider_timeout_ms > INT32_MAX)
        return err_field(e, ERR_INVALID, "provider_timeout",
                         "provider_timeout: the time must be at most 24 days");
    ctx->provider_timeout_ms = o->provider_timeout_ms;
    if (o->records_for_ms < 0)
        return err_field(e, ERR_INVALID, "records_for",
                         "records_for: the time must not be negative");
    ctx->records_for_ms = o->records_for_ms;
    ctx->box_max_files = o->box_max_files;
    ctx->debug = (struct debug){o->debug, o->debug_arg};
    ctx->host_env = o->host_env;
    if (o->limits) {
        r = options_copy(&ctx->limits_copy, sizeof(ctx->limits_copy), o->limits, e);
        if (r < 0)
            return r;
        ctx->limits = &ctx->limits_copy;
    }
    ctx->actor = strdup(o->actor ? o->actor : "library");
    if (!ctx->actor)
        return err_oom(e);
    ctx->no_resume = o->no_resume;
    ctx->progress = o->progress;
    ctx->progress_arg = o->progress_arg;
    ctx->npm_registry = o->npm_registry ? strdup(o->npm_registry) : NULL;
    if (o->npm_registry && !ctx->npm_registry)
        return err_oom(e);
    r = copy_text(o->daemon, &ctx->daemon_url, e);
    if (r == 0)
        r = copy_text(o->daemon_token, &ctx->daemon_token, e);
    if (r == 0)
        r = copy_text(o->daemon_ca, &ctx->daemon_ca, e);
    if (r == 0)
        r = copy_text(o->docker_host, &ctx->docker_host, e);
    return r < 0 ? r : copy_kube(ctx, o, e);
}

int ctx_new(const struct bh_options *opts, struct bh_ctx **ret, struct err *e)
{
    struct bh_options o;
    struct bh_ctx *ctx;
    int r = options_copy(&o, sizeof(o), opts, e);

    if (r < 0)
        return r;
    ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return err_oom(e);
    r = ctx_fill(ctx, &o, e);
    if (r < 0) {
        (void)ctx_free(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

struct bh_ctx *ctx_free(struct bh_ctx *ctx)
{
    if (!ctx)
        return NULL;
    free(ctx->state_dir);
    free(ctx->cache_dir);
    free(ctx->agent_path);
    free(ctx->monitor_path);
    free(ctx->recipe_dir);
    free(ctx->image_dir);
    free(ctx->template_dir);
    free(ctx->image_cache_dir);
    free(ctx->npm_registry);
    free(ctx->actor);
    (void)daemon_client_free(ctx->daemon);
    free(ctx->daemon_url);
    if (ctx->daemon_token)
        explicit_bzero(ctx->daemon_token, strlen(ctx->daemon_token));
    free(ctx->daemon_token);
    free(ctx->daemon_ca);
    free(ctx->docker_host);
    free(ctx->kubeconfig);
    free(ctx->kube_context);
    free(ctx->kube_namespace);
    free(ctx->kube_registry);
    free(ctx);
    return NULL;
}
