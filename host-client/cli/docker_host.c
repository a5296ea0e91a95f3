#include "cli/docker_host.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"

#define CONFIG_BYTES ((size_t)1 << 20)
#define HEX_BYTES (2 * SHA256_DIGEST_SIZE + 1)

static const char *env_or(const char *name, const char *missing)
{
    const char *text = getenv(name);

    return text && *text ? text : missing;
}

/* ~/.docker; NULL: out of memory. */
static char *config_dir(void)
{
    const char *set = env_or("DOCKER_CONFIG", NULL);

    return set ? strdup(set) : path_join(env_or("HOME", "/"), ".docker");
}

static int read_document(const char *path, json_t **ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = io_read_file(AT_FDCWD, path, CONFIG_BYTES, &text, &len, e);

    if (r < 0)
        return r;
    r = jx_parse(text, len, ret, e);
    return r < 0 ? err_wrap(e, r, "'%s'", path) : 0;
}

/* The address is stored with the box, and later commands and the monitor run in other directories. */
static int with_certs(const char *host, const char *certs, char **ret, struct err *e)
{
    bool has_certs = certs && str_has_prefix(host, "tcp://") && !strchr(host, '?');
    _cleanup_free_ char *here = NULL;
    int n;

    if (has_certs && !path_is_absolute(certs)) {
        here = getcwd(NULL, 0);
        if (!here)
            return err_sys(e, errno, "find this directory, from which '%s' is", certs);
    }
    n = has_certs ? asprintf(ret, "%s?certs=%s%s%s", host, here ? here : "", here ? "/" : "", certs)
                  : asprintf(ret, "%s", host);
    return n < 0 ? err_oom(e) : 0;
}

/* TLS is on with DOCKER_TLS_VERIFY or DOCKER_CERT_PATH; the certificates are beside the configuration by default. */
static int from_environment(const char *host, char **ret, struct err *e)
{
    const char *path = env_or("DOCKER_CERT_PATH", NULL);
    _cleanup_free_ char *dir = path ? strdup(path) : config_dir();

    if (!dir)
        return err_oom(e);
    return with_certs(host, path || env_or("DOCKER_TLS_VERIFY", NULL) ? dir : NULL, ret, e);
}

/* A context's files are in a directory named by the hash of its name. */
static void context_digest(const char *name, char out[HEX_BYTES])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;

    sha256_init(&sha);
    sha256_update(&sha, strlen(name), (const uint8_t *)name);
    sha256_digest(&sha, sizeof(digest), digest);
    str_hex(digest, sizeof(digest), out);
}

static int from_context(const char *dir, const char *name, char **ret, struct err *e)
{
    _cleanup_free_ char *meta = NULL, *tls = NULL;
    _cleanup_json_ json_t *doc = NULL;
    const char *host;
    char hex[HEX_BYTES];

    context_digest(name, hex);
    if (asprintf(&meta, "%s/contexts/meta/%s/meta.json", dir, hex) < 0 ||
        asprintf(&tls, "%s/contexts/tls/%s/docker", dir, hex) < 0)
        return err_oom(e);
    (void)read_document(meta, &doc, NULL);
    host = json_string_value(
        json_object_get(json_object_get(json_object_get(doc, "Endpoints"), "docker"), "Host"));
    if (!host) /* a command that needs no engine does not care */
        return asprintf(ret, DOCKER_HOST_MISSING "%s", name) < 0 ? err_oom(e) : 0;
    return with_certs(host, access(tls, F_OK) == 0 ? tls : NULL, ret, e);
}

/* The context that `docker context use` has chosen; NULL: none. An absent file is no error. */
static int read_current(const char *path, json_t **ret_config, const char **ret, struct err *e)
{
    struct err why = {0};
    json_t *name;
    int r = read_document(path, ret_config, &why);

    if (r == 0) {
        name = json_object_get(*ret_config, "currentContext");
        if (json_is_object(*ret_config) && (!name || json_is_string(name))) {
            *ret = json_string_value(name);
            return 0;
        }
        return err_set(e, ERR_INVALID, "'%s' is no configuration of Docker's", path);
    }
    if (r == -ERR_NOT_FOUND)
        return 0;
    *e = why;
    return r;
}

int docker_host_resolve(const char *set, char **ret, struct err *ret_warning, struct err *e)
{
    _cleanup_free_ char *dir = config_dir();
    _cleanup_free_ char *path = dir ? path_join(dir, "config.json") : NULL;
    _cleanup_json_ json_t *config = NULL;
    const char *name = env_or("DOCKER_CONTEXT", NULL);

    *ret = NULL;
    if (!path)
        return err_oom(e);
    if (set && *set)
        return from_environment(set, ret, e);
    if (!name && read_current(path, &config, &name, ret_warning) < 0)
        return 0;
    return !name || !*name || str_eq(name, "default") ? 0 : from_context(dir, name, ret, e);
}
