#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "http/gate.h"
#include "lib/provider/kubernetes/kube_lease.h"

#define DOCUMENT_MAX_BYTES (256 * 1024)

enum {
    ARG_STATE = 1,
    ARG_CACHE,
    ARG_OPTIONS,
    ARG_SOCKET,
    ARG_LISTEN,
    ARG_TLS_CERT,
    ARG_TLS_KEY,
    ARG_DOMAIN,
    ARG_WEBHOOK,
    ARG_WEBHOOK_SECRET,
    ARG_READY,
    ARG_SAY_ADDRESS,
    ARG_FOLLOW_KEEP,
    ARG_LEASE,
    ARG_TAKE_OVER,
};

static const struct option long_options[] = {
    {"state-dir", required_argument, NULL, ARG_STATE},
    {"cache-dir", required_argument, NULL, ARG_CACHE},
    {"options-fd", required_argument, NULL, ARG_OPTIONS},
    {"socket", required_argument, NULL, ARG_SOCKET},
    {"listen", required_argument, NULL, ARG_LISTEN},
    {"tls-cert", required_argument, NULL, ARG_TLS_CERT},
    {"tls-key", required_argument, NULL, ARG_TLS_KEY},
    {"domain", required_argument, NULL, ARG_DOMAIN},
    {"webhook", required_argument, NULL, ARG_WEBHOOK},
    {"webhook-secret-file", required_argument, NULL, ARG_WEBHOOK_SECRET},
    {"ready-fd", required_argument, NULL, ARG_READY},
    {"say-address", no_argument, NULL, ARG_SAY_ADDRESS},
    {"follow-keep-ms", required_argument, NULL, ARG_FOLLOW_KEEP},
    {"lease", required_argument, NULL, ARG_LEASE},
    {"take-over", no_argument, NULL, ARG_TAKE_OVER},
    {0},
};

/* ---- the document ---- */

#define LIB(member, fn) JX(struct bh_options, member, fn, JX_NULLABLE)
#define LIMIT(member, fn) JX(struct bh_limits, member, fn, 0)

static const struct jx_field lib_fields[] = {
    LIB(state_dir, jx_str),      LIB(cache_dir, jx_str),           LIB(agent_path, jx_str),
    LIB(monitor_path, jx_str),   LIB(recipe_dir, jx_str),          LIB(image_dir, jx_str),
    LIB(npm_registry, jx_str),   LIB(docker_host, jx_str),         LIB(kubeconfig, jx_str),
    LIB(kube_context, jx_str),   LIB(kube_namespace, jx_str),      LIB(kube_registry, jx_str),
    LIB(template_dir, jx_str),   LIB(image_cache_dir, jx_str),     LIB(answer_timeout_ms, jx_i64),
    LIB(records_for_ms, jx_i64), LIB(provider_timeout_ms, jx_i64), {0},
};

static const struct jx_field limit_fields[] = {
    LIMIT(memory_bytes, jx_u64), LIMIT(disk_bytes, jx_u64), LIMIT(cpu_millis, jx_u32),
    LIMIT(pids, jx_u32),         LIMIT(boxes, jx_u32),      LIMIT(timeout_ms, jx_i64),
    LIMIT(idle_ms, jx_i64),      LIMIT(source, jx_str),     {0},
};

static const struct jx_field list_fields[] = {
    JX_AS("providers", struct daemon_options, limit_providers, jx_strv, 0),
    JX_AS("networks", struct daemon_options, limit_networks, jx_strv, 0),
    JX_AS("privileges", struct daemon_options, limit_privileges, jx_strv, 0),
    {0},
};

/* "limits": {"values": {...}, "lists": {...}}: two structs, and so two tables. */
static int decode_limits(json_t *limits, struct daemon_options *o, struct err *e)
{
    int r = jx_decode(json_object_get(limits, "values"), limit_fields, &o->limits, e);

    if (r == 0)
        r = jx_decode(json_object_get(limits, "lists"), list_fields, o, e);
    o->limits.size = sizeof(o->limits);
    o->limits.providers = (const char *const *)o->limit_providers;
    o->limits.networks = (const char *const *)o->limit_networks;
    o->limits.privileges = (const char *const *)o->limit_privileges;
    o->lib.limits = &o->limits;
    return r;
}

/* From its start, whoever has read it before: the descriptor may be of a program that this one replaces. */
static int read_document(int fd, struct daemon_options *o, struct err *e)
{
    _cleanup_free_ char *text = malloc(DOCUMENT_MAX_BYTES);
    ssize_t n;
    int r;

    if (!text)
        return err_oom(e);
    n = pread(fd, text, DOCUMENT_MAX_BYTES, 0);
    if (n < 0)
        return err_at(e, err_sys(e, errno, "read"), "options-fd");
    r = jx_parse_object(text, (size_t)n, &o->document, e);
    if (r == 0)
        r = jx_decode(json_object_get(o->document, "options"), lib_fields, &o->lib, e);
    if (r == 0 && json_object_get(o->document, "limits"))
        r = decode_limits(json_object_get(o->document, "limits"), o, e);
    return r;
}

/* ---- the command line ---- */

static int parse_fd(const char *text, const char *field, int *ret, struct err *e)
{
    uint64_t fd;
    int r = str_parse_u64(text, 0, INT32_MAX, &fd, e);

    if (r < 0)
        return err_at(e, r, field);
    *ret = (int)fd;
    return 0;
}

static int take_option(struct daemon_options *o, int c, char *value, struct err *e)
{
    int fd, r = 0;

    switch (c) {
    case ARG_FOLLOW_KEEP:
        r = err_at(e, str_parse_i64(value, 1, INT32_MAX, &o->follow_keep_ms, e), "follow-keep-ms");
        break;
    case ARG_STATE:
        o->lib.state_dir = value;
        break;
    case ARG_CACHE:
        o->lib.cache_dir = value;
        break;
    case ARG_OPTIONS:
        r = parse_fd(value, "options-fd", &fd, e);
        return r < 0 ? r : read_document(fd, o, e);
    case ARG_SOCKET:
        o->socket = value;
        break;
    case ARG_LISTEN:
        return strv_push(&o->listen, value, e);
    case ARG_TLS_CERT:
        o->tls_cert = value;
        break;
    case ARG_TLS_KEY:
        o->tls_key = value;
        break;
    case ARG_DOMAIN:
        r = origin_check_name(value, e);
        return r < 0 ? err_at(e, r, "domain") : strv_push(&o->domains, value, e);
    case ARG_WEBHOOK:
        return strv_push(&o->webhooks, value, e);
    case ARG_WEBHOOK_SECRET:
        o->webhook_secret_file = value;
        break;
    case ARG_READY:
        return parse_fd(value, "ready-fd", &o->ready_fd, e);
    case ARG_LEASE:
        o->lease = value;
        return kube_lease_check_name(value, e);
    case ARG_TAKE_OVER:
        o->takes_over = true;
        break;
    case ARG_SAY_ADDRESS:
        o->says_address = true;
        break;
    default:
        return err_set(e, ERR_INVALID, "'bellhop daemon' starts it");
    }
    return r;
}

int daemon_options_parse(int argc, char **argv, struct daemon_options *o, struct err *e)
{
    int c, r = 0;

    *o = (struct daemon_options){.lib.size = sizeof(o->lib), .ready_fd = -1};
    while (r == 0 && (c = getopt_long(argc, argv, "", long_options, NULL)) >= 0)
        r = take_option(o, c, optarg, e);
    if (r < 0)
        return r;
    if (!o->lib.state_dir || !o->lib.cache_dir || !o->socket || optind != argc)
        return err_set(e, ERR_INVALID, "'bellhop daemon' starts it");
    if (!o->tls_cert != !o->tls_key)
        return err_field(e, ERR_INVALID, o->tls_cert ? "tls-key" : "tls-cert",
                         "TLS needs both a certificate and its key");
    return 0;
}

void daemon_options_done(struct daemon_options *o)
{
    (void)strv_free(o->limit_providers);
    (void)strv_free(o->limit_networks);
    (void)strv_free(o->limit_privileges);
    (void)strv_free(o->listen);
    (void)strv_free(o->domains);
    (void)strv_free(o->webhooks);
    json_decref(o->document);
}
