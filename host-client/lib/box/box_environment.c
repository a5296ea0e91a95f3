#include "lib/box/remote.h"
#include "lib/box/box_environment.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/image/image.h"
#include "lib/util/hostcmd.h"

#define CA_DIR "/usr/local/share/ca-certificates"
#define CA_BUNDLE "/etc/ssl/certs/ca-certificates.crt"
#define CA_BYTES (4 * 1024 * 1024)
#define SECRET_BYTES (1024 * 1024)
#define ENV_JSON_BYTES (1024 * 1024)

/* Variables that make programs in the box trust the bundle. */
static const char *const bundle_names[] = {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
                                           "REQUESTS_CA_BUNDLE", NULL};

static const char *find_env(const char *const *env, const char *name)
{
    size_t n = strlen(name);

    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

/* ---- saving ---- */

static int add_ca_file(struct buf *out, const char *path, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = io_read_file(AT_FDCWD, path, CA_BYTES, &text, &len, NULL);

    if (r < 0 || !strstr(text, "-----BEGIN CERTIFICATE-----"))
        return 0; /* this machine could not use it either */
    r = buf_add(out, text, len, e);
    if (r == 0 && len && text[len - 1] != '\n')
        r = buf_adds(out, "\n", e);
    return r;
}

static int collect_ca(const struct bh_create_options *opts, struct buf *out, struct err *e)
{
    static const char *const bundles[] = {"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", NULL};
    _cleanup_closedir_ DIR *dir = opendir(CA_DIR);
    const char *before = "";
    const struct dirent *d;
    int r = 0;

    while (r == 0 && dir && (d = readdir(dir))) {
        _cleanup_free_ char *path = NULL;

        if (!str_has_suffix(d->d_name, ".crt"))
            continue;
        path = path_join(CA_DIR, d->d_name);
        r = path ? add_ca_file(out, path, e) : err_oom(e);
    }
    for (size_t i = 0; r == 0 && bundles[i]; i++) {
        const char *path = find_env(opts->host_env, bundles[i]);

        /* The box has the distribution's bundle too. */
        if (!path || !*path || str_eq(path, CA_BUNDLE) || str_eq(path, before))
            continue;
        r = add_ca_file(out, path, e);
        before = path;
    }
    return r;
}

static int save_ca(struct bh_box *box, const struct bh_create_options *opts, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, "extra-ca.pem");
    _cleanup_buf_ struct buf pem = {0};
    int r;

    buf_init(&pem, CA_BYTES);
    r = path ? collect_ca(opts, &pem, e) : err_oom(e);
    if (r < 0 || pem.len == 0)
        return r;
    return io_write_file(AT_FDCWD, path, pem.data, pem.len, 0600, false, e);
}

static int write_env(struct bh_box *box, json_t *list, struct err *e)
{
    _cleanup_json_ json_t *obj = json_pack("{s:O}", "env", list);
    _cleanup_free_ char *path = box_path(box, "env.json");
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = obj && path ? jx_dump(obj, &text, &len, e) : err_oom(e);

    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, false, e);
}

static int save_proxy(struct bh_box *box, const struct bh_create_options *opts, struct err *e)
{
    _cleanup_json_ json_t *list = json_array();
    int r = list ? 0 : -1;

    for (size_t i = 0; r == 0 && hostcmd_proxy_names[i]; i++) {
        const char *name = hostcmd_proxy_names[i];
        const char *value = find_env(opts->host_env, name);

        if (value && *value && str_is_utf8(value, strlen(value)))
            r = json_array_append_new(list, json_sprintf("%s=%s", name, value));
    }
    return r < 0 ? err_oom(e) : write_env(box, list, e);
}

static int save_secrets(struct bh_box *box, const char *const *secrets, struct err *e)
{
    _cleanup_free_ char *dir = box_path(box, "secrets");
    int r = dir ? 0 : err_oom(e);

    if (r < 0 || !secrets || !*secrets)
        return r;
    r = io_mkdir_p(dir, 0700, e);
    for (; r == 0 && *secrets; secrets++) {
        const char *eq = strchr(*secrets, '=');
        _cleanup_free_ char *name = strndup(*secrets, (size_t)(eq - *secrets));
        _cleanup_free_ char *path = name ? path_join(dir, name) : NULL;

        r = path ? io_write_file(AT_FDCWD, path, eq + 1, strlen(eq + 1), 0600, false, e)
                 : err_oom(e);
    }
    return r;
}

int box_environment_secrets(struct bh_box *box, char ***ret, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, "secrets");
    _cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;
    _cleanup_strv_ char **pairs = NULL;
    const struct dirent *d;
    int r = path ? 0 : err_oom(e);

    while (r == 0 && dir && (d = readdir(dir))) {
        _cleanup_free_ char *value = NULL, *pair = NULL;

        if (d->d_name[0] == '.')
            continue;
        r = io_read_file(dirfd(dir), d->d_name, SECRET_BYTES, &value, NULL, e);
        if (r == 0 && asprintf(&pair, "%s=%s", d->d_name, value) < 0)
            r = err_oom(e);
        if (r == 0)
            r = strv_push(&pairs, pair, e);
    }
    if (r == 0)
        *ret = TAKE(pairs);
    return r;
}

/* A box that shares the machine uses its settings; a box without a network needs none. */
static bool needs_way_out(const struct bh_box *box)
{
    return !box->provider->shares_machine && strcmp(box->spec.network, "none") != 0;
}

int box_environment_save(struct bh_box *box, const struct bh_create_options *opts, struct err *e)
{
    int r = save_secrets(box, opts->secrets, e);

    if (r < 0 || !needs_way_out(box))
        return r;
    r = save_proxy(box, opts, e);
    return r < 0 ? r : save_ca(box, opts, e);
}

/* ---- applying ---- */

/* Runs a script in the box with the input, or NULL; *ret_line (may be NULL) is its first line of
 * output. */
static int run_script(struct bh_box *box, struct client *c, const char *script,
                      const struct buf *input, int64_t deadline_mono_ms, char **ret_line,
                      struct err *e)
{
    _cleanup_json_ json_t *env = NULL;
    _cleanup_json_ json_t *reply = NULL;
    json_t *params;
    const char *out;
    int r = box_environment_json(box, NULL, &env, e);

    if (r < 0)
        return r;
    params = json_pack("{s:s, s:O, s:s, s:i}", "shell", script, "env", env, "cwd", "/",
                       "timeout_ms", 60000);
    if (!params || (input && json_object_set_new(params, "stdin",
                                                 jx_new_bytes(input->data, input->len)) < 0)) {
        json_decref(params);
        return err_oom(e);
    }
    r = client_call(c, RPC_exec_run, params, deadline_mono_ms, &reply, e);
    json_decref(params);
    if (r < 0)
        return r;
    if (json_integer_value(json_object_get(json_object_get(reply, "exit"), "code")) != 0) {
        out = json_string_value(json_object_get(json_object_get(reply, "stderr"), "text"));
        return err_set(e, ERR_PRECONDITION, "a script in the box failed: %.200s", out ? out : "");
    }
    out = json_string_value(json_object_get(json_object_get(reply, "stdout"), "text"));
    if (ret_line) {
        *ret_line = strndup(out ? out : "", out ? strcspn(out, "\n") : 0);
        return *ret_line ? 0 : err_oom(e);
    }
    return 0;
}

static int put_secret(struct bh_box *box, struct client *c, const char *from_dir, const char *name,
                      const char *into, int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *from = path_join(from_dir, name);
    _cleanup_free_ char *to = path_join(into, name);
    char *value = NULL;
    size_t len = 0;
    int r;

    (void)box;
    if (!from || !to)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, from, SECRET_BYTES, &value, &len, e);
    if (r < 0)
        return r;
    r = client_put_file(c, to, value, len, 0600, NULL, deadline_mono_ms, e);
    explicit_bzero(value, len);
    free(value);
    return r;
}

/* The provider's memory file system for the user if there is one, else the user's home. */
static const char *secrets_script(const struct bh_box *box)
{
    if (box->provider->shares_machine)
        return "umask 077; mkdir -p ~/.secrets && cd ~/.secrets && pwd";
    return "umask 077; d=/run/secrets; [ -w $d ] || { d=~/.secrets; mkdir -p $d; }; cd $d && pwd";
}

static int apply_secrets(struct bh_box *box, struct client *c, int64_t deadline_mono_ms,
                         struct err *e)
{
    _cleanup_free_ char *dir_path = box_path(box, "secrets");
    _cleanup_closedir_ DIR *dir = dir_path ? opendir(dir_path) : NULL;
    _cleanup_free_ char *into = NULL;
    const struct dirent *d;
    int r;

    if (!dir)
        return 0;
    r = run_script(box, c, secrets_script(box), NULL, deadline_mono_ms, &into, e);
    while (r == 0 && (d = readdir(dir)))
        if (d->d_name[0] != '.')
            r = put_secret(box, c, dir_path, d->d_name, into, deadline_mono_ms, e);
    return r < 0 ? err_wrap(e, r, "secrets") : 0;
}

/* Adds the variables that name the bundle to env.json, once. */
static int save_bundle_env(struct bh_box *box, const char *dir, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, "env.json");
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *obj = NULL;
    json_t *list;
    size_t len = 0;
    int r;

    if (!path)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, path, ENV_JSON_BYTES, &text, &len, e);
    if (r == 0)
        r = jx_parse(text, len, &obj, e);
    if (r < 0)
        return r;
    list = json_object_get(obj, "env");
    if (strstr(text, "NODE_EXTRA_CA_CERTS="))
        return 0;
    for (size_t i = 0; bundle_names[i]; i++)
        if (json_array_append_new(list, json_sprintf("%s=%s/ca.pem", bundle_names[i], dir)) < 0)
            return err_oom(e);
    if (json_array_append_new(list, json_sprintf("NODE_EXTRA_CA_CERTS=%s/extra-ca.pem", dir)) < 0)
        return err_oom(e);
    return write_env(box, list, e);
}

static int apply_ca(struct bh_box *box, struct client *c, int64_t deadline_mono_ms, struct err *e)
{
    static const char install[] =
        "umask 022 && mkdir -p ~/.bellhop && cd ~/.bellhop && cat >extra-ca.pem && "
        "{ cat /etc/ssl/certs/ca-certificates.crt extra-ca.pem >ca.pem 2>/dev/null || "
        "cp extra-ca.pem ca.pem; } && pwd";
    _cleanup_free_ char *path = box_path(box, "extra-ca.pem");
    _cleanup_free_ char *pem = NULL;
    _cleanup_free_ char *into = NULL;
    struct buf input = {0};
    int r;

    if (!path)
        return err_oom(e);
    r = io_read_file(AT_FDCWD, path, CA_BYTES, &pem, &input.len, NULL);
    if (r < 0)
        return 0; /* there are none */
    input.data = pem;
    r = run_script(box, c, install, &input, deadline_mono_ms, &into, e);
    if (r == 0)
        r = save_bundle_env(box, into, e);
    return r < 0 ? err_wrap(e, r, "CA certificates") : 0;
}

int box_environment_apply(struct bh_box *box, struct client *c, int64_t deadline_mono_ms,
                          struct err *e)
{
    int r = apply_secrets(box, c, deadline_mono_ms, e);

    return r < 0 ? r : apply_ca(box, c, deadline_mono_ms, e);
}

/* ---- reading ---- */

static int push_saved(struct bh_box *box, char ***env, struct err *e)
{
    _cleanup_free_ char *path = box_path(box, "env.json");
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *obj = NULL;
    json_t *item;
    size_t len = 0;
    size_t i;
    int r = path ? 0 : err_oom(e);

    if (r < 0 || io_read_file(AT_FDCWD, path, ENV_JSON_BYTES, &text, &len, NULL) < 0 ||
        jx_parse(text, len, &obj, NULL) < 0)
        return r;
    json_array_foreach (json_object_get(obj, "env"), i, item) {
        if (r == 0 && json_is_string(item))
            r = strv_push(env, json_string_value(item), e);
    }
    return r;
}

static int push_own(struct bh_box *box, char ***env, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    _cleanup_free_ char *mark = NULL;
    _cleanup_free_ char *home = NULL;
    int r;

    if (asprintf(&name, "BELLHOP_BOX=%s", box->row.name) < 0 ||
        asprintf(&mark, PROVIDER_MARK_ENV "=%s", box->row.id) < 0 ||
        asprintf(&home, "HOME=%s/home", box->dir) < 0)
        return err_oom(e);
    r = strv_push(env, name, e);
    if (r == 0)
        r = strv_push(env, mark, e);
    if (r == 0 && box->provider->shares_machine)
        r = strv_push(env, home, e);
    return r;
}

/* The variables of the image's template. --env comes later and overrides them. */
static int push_image(struct bh_box *box, char ***env, struct err *e)
{
    struct image_facts facts;
    json_t *item;
    size_t i;
    int r = *box->spec.image_dir ? image_facts(box->spec.image_dir, &facts, e) : 1;

    if (r)
        return r < 0 ? r : 0;
    json_array_foreach (facts.env, i, item) {
        if (r == 0 && json_is_string(item))
            r = strv_push(env, json_string_value(item), e);
    }
    image_facts_done(&facts);
    return r;
}

int box_environment_get(struct bh_box *box, char ***ret, struct err *e)
{
    _cleanup_strv_ char **env = NULL;
    int r = push_own(box, &env, e);

    if (r == 0)
        r = push_image(box, &env, e);
    if (r == 0)
        r = push_saved(box, &env, e);
    for (char **p = box->spec.env; r == 0 && p && *p; p++)
        r = strv_push(&env, *p, e);
    if (r == 0)
        *ret = TAKE(env);
    return r;
}

static int set_pair(json_t *obj, const char *pair, struct err *e)
{
    const char *eq = strchr(pair, '=');
    _cleanup_free_ char *name = eq ? strndup(pair, (size_t)(eq - pair)) : NULL;

    if (!eq || eq == pair)
        return err_field(e, ERR_INVALID, "env", "env: '%.64s' is not NAME=VALUE", pair);
    if (!name || json_object_set_new(obj, name, json_string(eq + 1)) < 0)
        return err_field(e, ERR_INVALID, "env", "env: '%.64s' is not valid UTF-8", name);
    return 0;
}

int box_environment_json(struct bh_box *box, const char *const *more, json_t **ret, struct err *e)
{
    _cleanup_strv_ char **env = NULL;
    _cleanup_json_ json_t *obj = box->remote ? NULL : json_object();
    int r = box->remote ? remote_environment(box, &obj, e)
            : obj       ? box_environment_get(box, &env, e)
                        : err_oom(e);

    for (size_t i = 0; r == 0 && env && env[i]; i++)
        r = set_pair(obj, env[i], e);
    for (; r == 0 && more && *more; more++)
        r = set_pair(obj, *more, e);
    if (r == 0)
        *ret = TAKE(obj);
    return r;
}
