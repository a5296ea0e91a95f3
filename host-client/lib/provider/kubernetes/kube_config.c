#include "lib/provider/kubernetes/kube_config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <yaml.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_client.h"

#define YAML_LIBRARY "libyaml-0.so.2"
#define CONFIG_BYTES ((size_t)1 << 20)
#define TOKEN_FILE_BYTES 65536
#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"
#define BY_PROXY \
    "'kubectl proxy --unix-socket=SOCKET --reject-paths=^$ &' reaches such a cluster, with " \
    "KUBECONFIG=proxy:SOCKET"

/* ---- libyaml ---- */

static struct {
    int (*parser_initialize)(yaml_parser_t *parser);
    void (*parser_delete)(yaml_parser_t *parser);
    void (*parser_set_input_string)(yaml_parser_t *parser, const unsigned char *input, size_t size);
    int (*parser_load)(yaml_parser_t *parser, yaml_document_t *document);
    void (*document_delete)(yaml_document_t *document);
    yaml_node_t *(*document_get_root_node)(yaml_document_t *document);
    yaml_node_t *(*document_get_node)(yaml_document_t *document, int index);
    bool is_loaded;
} yaml_calls;
static pthread_once_t yaml_once = PTHREAD_ONCE_INIT;

static void yaml_load_once(void)
{
    void *lib = dlopen(YAML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *at;
    } calls[] = {
        {"yaml_parser_initialize", &yaml_calls.parser_initialize},
        {"yaml_parser_delete", &yaml_calls.parser_delete},
        {"yaml_parser_set_input_string", &yaml_calls.parser_set_input_string},
        {"yaml_parser_load", &yaml_calls.parser_load},
        {"yaml_document_delete", &yaml_calls.document_delete},
        {"yaml_document_get_root_node", &yaml_calls.document_get_root_node},
        {"yaml_document_get_node", &yaml_calls.document_get_node},
    };

    for (size_t i = 0; lib && i < N_ELEMENTS(calls); i++) {
        void *symbol = dlsym(lib, calls[i].name);

        if (!symbol)
            return;
        memcpy(calls[i].at, &symbol, sizeof(symbol));
    }
    yaml_calls.is_loaded = lib != NULL;
}

/* ---- nodes: aliases make a document a graph, so nothing here walks it ---- */

static bool is_scalar(const yaml_node_t *node, const char *text)
{
    return node && node->type == YAML_SCALAR_NODE && node->data.scalar.length == strlen(text) &&
           memcmp(node->data.scalar.value, text, node->data.scalar.length) == 0;
}

/* NULL: no such key, or `node` is no mapping. */
static yaml_node_t *yaml_find(yaml_document_t *doc, yaml_node_t *node, const char *key)
{
    if (!node || node->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
         p++)
        if (is_scalar(yaml_calls.document_get_node(doc, p->key), key))
            return yaml_calls.document_get_node(doc, p->value);
    return NULL;
}

/* NULL: no such key, or no text. */
static const char *yaml_text(yaml_document_t *doc, yaml_node_t *node, const char *key)
{
    yaml_node_t *v = yaml_find(doc, node, key);

    return v && v->type == YAML_SCALAR_NODE &&
                   strlen((const char *)v->data.scalar.value) == v->data.scalar.length
               ? (const char *)v->data.scalar.value
               : NULL;
}

/* The value `what` of the entry of the list `list` that has the name. */
static yaml_node_t *yaml_named(yaml_document_t *doc, const char *list, const char *name,
                               const char *what)
{
    yaml_node_t *items = yaml_find(doc, yaml_calls.document_get_root_node(doc), list);

    if (!items || items->type != YAML_SEQUENCE_NODE || !name)
        return NULL;
    for (yaml_node_item_t *i = items->data.sequence.items.start; i < items->data.sequence.items.top;
         i++) {
        yaml_node_t *item = yaml_calls.document_get_node(doc, *i);

        if (is_scalar(yaml_find(doc, item, "name"), name))
            return yaml_find(doc, item, what);
    }
    return NULL;
}

/* ---- values ---- */

static int config_copy(const char *text, char **ret, struct err *e)
{
    if (!text || !*text)
        return 0;
    *ret = strdup(text);
    return *ret ? 0 : err_oom(e);
}

/* A file in memory, which libcurl opens by its path. */
static int data_to_file(const char *data, int *ret_fd, char **ret_path, struct err *e)
{
    size_t n = strlen(data), len = 0;
    _cleanup_free_ char *raw = malloc(n + 1);
    _cleanup_close_ int fd = raw ? memfd_create("kubeconfig", MFD_CLOEXEC) : -1;
    int r = raw ? b64_decode(data, n, raw, &len, e) : err_oom(e);

    if (r == 0 && fd < 0)
        r = err_sys(e, errno, "memfd_create");
    if (r == 0)
        r = io_write_all(fd, raw, len, e);
    if (raw)
        explicit_bzero(raw, n);
    if (r == 0 && asprintf(ret_path, "/proc/self/fd/%d", fd) < 0) {
        *ret_path = NULL;
        r = err_oom(e);
    }
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

/* KEY-data is in the file itself; KEY is a path, relative to the kubeconfig. */
static int config_file(yaml_document_t *doc, yaml_node_t *node, const char *key, const char *dir,
                       int *ret_fd, char **ret, struct err *e)
{
    char data_key[64];
    const char *data, *path = yaml_text(doc, node, key);

    (void)snprintf(data_key, sizeof(data_key), "%s-data", key);
    data = yaml_text(doc, node, data_key);
    if (data && *data) {
        int r = data_to_file(data, ret_fd, ret, e);

        return r < 0 ? err_at(e, err_wrap(e, r, "kubeconfig: '%s'", data_key), KUBE_FIELD) : 0;
    }
    if (!path || !*path)
        return 0;
    *ret = path_join(dir, path);
    return *ret ? 0 : err_oom(e);
}

static int set_bearer(struct kube_config *c, const char *token, struct err *e)
{
    size_t n = strcspn(token, "\r\n");

    if (asprintf(&c->bearer, "Authorization: Bearer %.*s", (int)n, token) >= 0)
        return 0;
    c->bearer = NULL;
    return err_oom(e);
}

static int bearer_of_file(struct kube_config *c, const char *path, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = io_read_file(AT_FDCWD, path, TOKEN_FILE_BYTES, &text, &len, e);

    if (r == 0)
        r = set_bearer(c, text, e);
    if (text)
        explicit_bzero(text, len);
    return r < 0 ? err_at(e, r, KUBE_FIELD) : 0;
}

/* ---- a kubeconfig ---- */

static int refuse_key(const char *path, const char *key, struct err *e)
{
    return err_field(e, ERR_UNIMPLEMENTED, KUBE_FIELD,
                     "kubeconfig: '%.200s' has '%s', which is not done here: " BY_PROXY, path, key);
}

static int config_cluster(struct kube_config *c, yaml_document_t *doc, const char *context,
                          yaml_node_t *cluster, const char *path, const char *dir, struct err *e)
{
    static const char *const refused[] = {"proxy-url", "tls-server-name", NULL};
    const char *server = yaml_text(doc, cluster, "server");
    const char *skips = yaml_text(doc, cluster, "insecure-skip-tls-verify");
    size_t n = server ? strlen(server) : 0;

    for (size_t i = 0; refused[i]; i++)
        if (yaml_find(doc, cluster, refused[i]))
            return refuse_key(path, refused[i], e);
    if (skips && str_eq(skips, "true"))
        return refuse_key(path, "insecure-skip-tls-verify", e);
    if (!server || !str_has_prefix(server, "https://"))
        return err_field(e, ERR_INVALID, KUBE_FIELD,
                         "kubeconfig: '%.200s' names no server with https:// for the context "
                         "'%.100s'",
                         path, context);
    c->server = strndup(server, server[n - 1] == '/' ? n - 1 : n);
    return c->server
               ? config_file(doc, cluster, "certificate-authority", dir, &c->fds[0], &c->ca, e)
               : err_oom(e);
}

static int config_user(struct kube_config *c, yaml_document_t *doc, yaml_node_t *user,
                       const char *path, const char *dir, struct err *e)
{
    static const char *const refused[] = {"exec", "auth-provider", "username", "as", NULL};
    const char *token = yaml_text(doc, user, "token");
    const char *file = yaml_text(doc, user, "tokenFile");
    int r;

    for (size_t i = 0; refused[i]; i++)
        if (yaml_find(doc, user, refused[i]))
            return refuse_key(path, refused[i], e);
    r = config_file(doc, user, "client-certificate", dir, &c->fds[1], &c->cert, e);
    if (r == 0)
        r = config_file(doc, user, "client-key", dir, &c->fds[2], &c->key, e);
    if (r < 0)
        return r;
    if (token && *token)
        return set_bearer(c, token, e);
    if (file && *file) {
        _cleanup_free_ char *joined = path_join(dir, file);

        return joined ? bearer_of_file(c, joined, e) : err_oom(e);
    }
    return 0;
}

static int config_context(struct kube_config *c, yaml_document_t *doc, const char *path,
                          const char *context, struct err *e)
{
    _cleanup_free_ char *dir = path_dir(path);
    const char *name =
        context ? context
                : yaml_text(doc, yaml_calls.document_get_root_node(doc), "current-context");
    yaml_node_t *chosen = yaml_named(doc, "contexts", name, "context");
    const char *user = yaml_text(doc, chosen, "user");
    int r;

    if (!dir)
        return err_oom(e);
    if (!name || !*name)
        return err_field(e, ERR_NOT_FOUND, KUBE_FIELD,
                         "kubeconfig: '%.200s' has no current context: name one by "
                         "BELLHOP_KUBE_CONTEXT, or with 'kubectl config use-context'",
                         path);
    if (!chosen)
        return err_field(e, ERR_NOT_FOUND, context ? "kube_context" : KUBE_FIELD,
                         "kubeconfig: '%.200s' has no context '%.100s'", path, name);
    if (user && *user && !yaml_named(doc, "users", user, "user")) /* as nobody, otherwise */
        return err_field(e, ERR_NOT_FOUND, KUBE_FIELD,
                         "kubeconfig: '%.200s' has no user '%.100s' for the context '%.100s'", path,
                         user, name);
    r = config_cluster(c, doc, name,
                       yaml_named(doc, "clusters", yaml_text(doc, chosen, "cluster"), "cluster"),
                       path, dir, e);
    if (r == 0)
        r = config_user(c, doc, yaml_named(doc, "users", user, "user"), path, dir, e);
    if (r == 0)
        r = config_copy(name, &c->context, e);
    return r < 0 ? r : config_copy(yaml_text(doc, chosen, "namespace"), &c->namespace, e);
}

int kube_config_read(struct kube_config *c, const char *path, const char *context, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    yaml_document_t doc;
    yaml_parser_t parser;
    size_t len = 0;
    int r = io_read_file(AT_FDCWD, path, CONFIG_BYTES, &text, &len, e);

    if (r < 0)
        return err_at(e, err_wrap(e, r, "kubeconfig"), KUBE_FIELD);
    (void)pthread_once(&yaml_once, yaml_load_once);
    if (!yaml_calls.is_loaded)
        return err_field(e, ERR_UNIMPLEMENTED, KUBE_FIELD,
                         "kubeconfig: " YAML_LIBRARY
                         " is not here: install libyaml-0-2, or use " BY_PROXY);
    if (!yaml_calls.parser_initialize(&parser))
        return err_oom(e);
    yaml_calls.parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (!yaml_calls.parser_load(&parser, &doc)) {
        yaml_calls.parser_delete(&parser);
        explicit_bzero(text, len);
        return err_field(e, ERR_INVALID, KUBE_FIELD, "kubeconfig: '%.200s' is no YAML", path);
    }
    r = config_context(c, &doc, path, context, e);
    yaml_calls.document_delete(&doc);
    yaml_calls.parser_delete(&parser);
    explicit_bzero(text, len);
    return r;
}

/* ---- a pod's service account ---- */

int kube_config_of_pod(struct kube_config *c, const char *address, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    int r = bearer_of_file(c, SERVICE_ACCOUNT "/token", e);

    if (r < 0)
        return err_wrap(e, r, "the pod's service account");
    if (asprintf(&c->server, "https://%s", address) < 0) {
        c->server = NULL;
        return err_oom(e);
    }
    r = config_copy(SERVICE_ACCOUNT "/ca.crt", &c->ca, e);
    if (r == 0 && io_read_file(AT_FDCWD, SERVICE_ACCOUNT "/namespace", 256, &text, NULL, NULL) == 0)
        r = config_copy(text, &c->namespace, e);
    return r;
}

void kube_config_init(struct kube_config *c)
{
    *c = (struct kube_config){.fds = {-1, -1, -1}};
}

void kube_config_done(struct kube_config *c)
{
    for (size_t i = 0; i < N_ELEMENTS(c->fds); i++)
        fd_close(TAKE_FD(c->fds[i]));
    free(c->server);
    free(c->context);
    free(c->namespace);
    free(c->ca);
    free(c->cert);
    free(c->key);
    if (c->bearer)
        explicit_bzero(c->bearer, strlen(c->bearer));
    free(c->bearer);
    kube_config_init(c);
}
