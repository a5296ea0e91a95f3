/* kube_inspect: what the cluster was asked for, and took. The kernel is another machine's: its part is "unknown". */
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kubernetes.h"

static json_t *new_isolation(const struct kube_pod *p, const struct spec *s)
{
    json_t *obj = provider_unknown_isolation();

    (void)json_object_set_new(obj, "runtime", json_string(s->runtime));
    (void)json_object_set_new(obj, "kernel", json_string("engine"));
    (void)json_object_set_new(
        obj, "read_only_root",
        json_boolean(json_is_true(json_object_get(
            json_object_get(kube_box_container(p), "securityContext"), "readOnlyRootFilesystem"))));
    return obj;
}

/* A pool's template decides its limits. */
static json_t *new_number(const struct spec *s, uint64_t n)
{
    if (*s->pool)
        return json_string("unknown");
    return n ? json_integer((json_int_t)n) : json_string("unlimited");
}

/* "10Gi" or "1073741824". */
static json_t *new_capacity(const json_t *claim)
{
    const char *given = kube_text(claim, "status", "capacity", "storage");
    uint64_t bytes = 0;
    char text[32];

    (void)snprintf(text, sizeof(text), "%.24s%s", given, str_has_suffix(given, "i") ? "B" : "");

    if (str_parse_size(text, &bytes, NULL) < 0)
        return json_string("unknown");
    return json_integer((json_int_t)bytes);
}

/* Limits are what the pod in force asks for; whether the network is cut depends on the cluster's network plug-in. */
int kube_inspect(struct provider_box *b, json_t **ret, struct err *e)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_pod_ struct kube_pod p = {0};
    _cleanup_json_ json_t *claim = NULL;
    const struct spec *s = b->spec;
    json_t *disk;
    int r = kube_open_box(b, &k, e);

    if (r == 0)
        r = kube_find_own_pod(b, k, &p, e);
    if (r == 0)
        r = kube_check_own_cluster(b, k, e);
    if (r < 0)
        return r;
    if (!p.is_running)
        return err_set(e, ERR_PRECONDITION, "the box is not running");
    r = kube_has_claim(s) ? kube_find(b, k, KUBE_CLAIMS, &claim, e) : 0;
    if (r < 0)
        return r;
    disk = claim ? new_capacity(claim) : new_number(s, 0);
    *ret = json_pack(
        "{s:o, s:{s:s, s:o, s:o, s:o}, s:{s:s, s:s}, s:[], s:{s:s, s:s, s:s, s:s, s:s, s:s}}",
        "isolation", new_isolation(&p, s), "limits", "pids", "unknown", "memory_bytes",
        new_number(s, s->memory_bytes), "cpu_millis", new_number(s, s->cpu_millis), "disk_bytes",
        disk, "network", "mode", *s->pool ? "unknown" : s->network, "filtered", "unknown",
        "missing", "engine", "kind", "kubernetes", "address", s->engine, "namespace",
        kube_namespace(k), "node", p.node, "pod", kube_text(p.doc, "metadata", "name"), "phase",
        p.phase);
    if (*ret && *s->pool)
        (void)json_object_set_new(json_object_get(*ret, "engine"), "pool", json_string(s->pool));
    return *ret ? 0 : err_oom(e);
}
