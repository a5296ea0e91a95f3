/* kube_object: the objects that a box is made of, as JSON. Pod Security `restricted` admits the pod. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kubernetes.h"

#define DISK_BYTES ((uint64_t)10 << 30) /* of a claim, unless --disk says otherwise */
#define TOKEN_DIR "/run/bellhop"
#define TOKEN_MODE 0440 /* root's, readable for the group of the box's user */
#define GRACE_S 5

/*
 * The disk of a new box gets the image's home once; a claim that was filled has the mark. $0: the home, $1: the
 * project's directory in it, or "".
 */
#define FILL_SCRIPT \
    "set -e; umask 022; if [ ! -e /disk/.filled ]; then mkdir -p /disk/home /disk/work; " \
    "cp -a \"$0/.\" /disk/home/; : >/disk/.filled; fi; [ -z \"$1\" ] || mkdir -p \"/disk/home$1\""

bool kube_has_claim(const struct spec *s)
{
    return !s->read_only && !*s->pool;
}

/* A box's name may end in '-', and neither a label nor a host's name may. */
static void plain_name(const struct provider_box *b, char out[64])
{
    size_t n = strlen(b->name);

    while (n && b->name[n - 1] == '-')
        n--;
    (void)snprintf(out, 64, "%.*s", (int)n, b->name);
}

static json_t *new_meta(const struct provider_box *b, const char *mark)
{
    char name[KUBE_NAME_BYTES], plain[64];
    json_t *meta;

    kube_name(b, name);
    plain_name(b, plain);
    meta = json_pack("{s:s, s:{s:s, s:s, s:s}}", "name", name, "labels", KUBE_LABEL_BOX, b->id,
                     KUBE_LABEL_STORE, mark, KUBE_LABEL_NAME, plain);
    for (char **l = b->spec->labels; meta && l && *l; l++)
        if (str_has_prefix(*l, "owner="))
            (void)json_object_set_new(meta, "annotations",
                                      json_pack("{s:s}", KUBE_NOTE_OWNER, *l + strlen("owner=")));
    return meta;
}

json_t *kube_new_claim(const struct provider_box *b, const char *mark)
{
    uint64_t bytes = b->spec->disk_bytes ? b->spec->disk_bytes : DISK_BYTES;

    return json_pack("{s:s, s:s, s:o, s:{s:[s], s:{s:{s:o}}}}", "apiVersion", "v1", "kind",
                     "PersistentVolumeClaim", "metadata", new_meta(b, mark), "spec", "accessModes",
                     "ReadWriteOnce", "resources", "requests", "storage",
                     json_sprintf("%llu", (unsigned long long)bytes));
}

json_t *kube_new_secret(const struct provider_box *b, const char *token, const char *mark)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "Secret",
                     "metadata", new_meta(b, mark), "type", "Opaque", "stringData", "token", token);
}

/* Nothing comes in and nothing goes out: the agent is reached through the kubelet. */
json_t *kube_new_policy(const struct provider_box *b, const char *mark)
{
    return json_pack("{s:s, s:s, s:o, s:{s:{s:{s:s}}, s:[s, s]}}", "apiVersion",
                     "networking.k8s.io/v1", "kind", "NetworkPolicy", "metadata", new_meta(b, mark),
                     "spec", "podSelector", "matchLabels", KUBE_LABEL_BOX, b->id, "policyTypes",
                     "Ingress", "Egress");
}

json_t *kube_new_sandbox_claim(const struct provider_box *b, const char *mark)
{
    return json_pack("{s:s, s:s, s:o, s:{s:{s:s}}}", "apiVersion",
                     "extensions.agents.x-k8s.io/v1beta1", "kind", "SandboxClaim", "metadata",
                     new_meta(b, mark), "spec", "warmPoolRef", "name", b->spec->pool);
}

/* ---- the pod ---- */

static json_t *new_limits(const struct spec *s)
{
    json_t *limits = json_object();

    if (s->cpu_millis)
        (void)json_object_set_new(limits, "cpu", json_sprintf("%um", s->cpu_millis));
    if (s->memory_bytes)
        (void)json_object_set_new(limits, "memory",
                                  json_sprintf("%llu", (unsigned long long)s->memory_bytes));
    if (s->disk_bytes)
        (void)json_object_set_new(limits, "ephemeral-storage",
                                  json_sprintf("%llu", (unsigned long long)s->disk_bytes));
    return limits;
}

static json_t *new_container_security(const struct spec *s)
{
    return json_pack("{s:b, s:b, s:{s:[s]}}", "allowPrivilegeEscalation", 0,
                     "readOnlyRootFilesystem", (int)s->read_only, "capabilities", "drop", "ALL");
}

/* The project's directory below the home: "/project"; "": it is elsewhere. */
static const char *dest_in_home(const struct spec *s, const struct image_user *user)
{
    size_t n = strlen(user->home);

    return strncmp(s->dest, user->home, n) == 0 && (!s->dest[n] || s->dest[n] == '/') ? s->dest + n
                                                                                      : "";
}

static bool is_dest_in_home(const struct spec *s, const struct image_user *user)
{
    return *dest_in_home(s, user) || str_eq(s->dest, user->home);
}

static void add_mount(json_t *list, const char *volume, const char *path, const char *sub_path)
{
    json_t *mount = json_pack("{s:s, s:s}", "name", volume, "mountPath", path);

    if (mount && sub_path)
        (void)json_object_set_new(mount, "subPath", json_string(sub_path));
    (void)json_array_append_new(list, mount);
}

/* The directories of a read-only box are memory, as is that of secrets in any. */
static const struct {
    const char *name, *size;
} memory_volumes[] = {{"secrets", "4Mi"}, {"tmp", "256Mi"}, {"home", "1Gi"}, {"work", "1Gi"}};

static json_t *new_mounts(const struct spec *s, const struct image_user *user)
{
    json_t *list = json_array();
    bool is_claim = kube_has_claim(s);

    (void)json_array_append_new(
        list, json_pack("{s:s, s:s, s:b}", "name", "token", "mountPath", TOKEN_DIR, "readOnly", 1));
    add_mount(list, "secrets", "/run/secrets", NULL);
    if (!is_claim) {
        add_mount(list, "tmp", "/tmp", "tmp");
        add_mount(list, "tmp", "/var/tmp", "var-tmp");
    }
    add_mount(list, is_claim ? "disk" : "home", user->home, is_claim ? "home" : NULL);
    if (!is_dest_in_home(s, user))
        add_mount(list, is_claim ? "disk" : "work", s->dest, is_claim ? "work" : NULL);
    return list;
}

static json_t *new_volumes(const struct spec *s, const char *name)
{
    size_t n = kube_has_claim(s) ? 1 : N_ELEMENTS(memory_volumes);
    json_t *list = json_array();

    (void)json_array_append_new(list, json_pack("{s:s, s:{s:s, s:i}}", "name", "token", "secret",
                                                "secretName", name, "defaultMode", TOKEN_MODE));
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_pack("{s:s, s:{s:s, s:s}}", "name",
                                                    memory_volumes[i].name, "emptyDir", "medium",
                                                    "Memory", "sizeLimit", memory_volumes[i].size));
    if (kube_has_claim(s))
        (void)json_array_append_new(list, json_pack("{s:s, s:{s:s}}", "name", "disk",
                                                    "persistentVolumeClaim", "claimName", name));
    return list;
}

/* Without a network, the agent listens where only the kubelet's port-forward and exec come. */
static json_t *new_command(const struct provider_box *b, const struct image_user *user)
{
    bool has_network = str_eq(b->spec->network, "user");
    char address[32];

    (void)snprintf(address, sizeof(address), "%s:%d", has_network ? "0.0.0.0" : "127.0.0.1",
                   KUBE_AGENT_PORT);
    return json_pack("[s, s, s, s, s, s, s, s, s, s]", KUBE_AGENT, "--init", "--listen", address,
                     "--token-file", TOKEN_DIR "/token", "--user", user->name, "--workdir",
                     b->spec->dest);
}

static json_t *new_containers(const struct provider_box *b, const struct image_user *user,
                              const char *image)
{
    return json_pack("[{s:s, s:s, s:s, s:o, s:o, s:{s:o}, s:o}]", "name", KUBE_CONTAINER, "image",
                     image, "imagePullPolicy", "IfNotPresent", "command", new_command(b, user),
                     "securityContext", new_container_security(b->spec), "resources", "limits",
                     new_limits(b->spec), "volumeMounts", new_mounts(b->spec, user));
}

static json_t *new_init_containers(const struct provider_box *b, const struct image_user *user,
                                   const char *image)
{
    return json_pack("[{s:s, s:s, s:s, s:[s, s, s, s, s], s:o, s:{s:o}, s:[{s:s, s:s}]}]", "name",
                     "disk", "image", image, "imagePullPolicy", "IfNotPresent", "command",
                     "/bin/sh", "-c", FILL_SCRIPT, user->home, dest_in_home(b->spec, user),
                     "securityContext", new_container_security(b->spec), "resources", "limits",
                     new_limits(b->spec), "volumeMounts", "name", "disk", "mountPath", "/disk");
}

/* The monitor decides what follows an end: the kubelet restarts nothing. */
json_t *kube_new_pod(const struct provider_box *b, struct kube *k, const struct image_user *user,
                     const char *image, const char *mark)
{
    char name[KUBE_NAME_BYTES], plain[64];
    json_t *spec;

    (void)k;
    kube_name(b, name);
    plain_name(b, plain);
    spec = json_pack("{s:s, s:b, s:b, s:s, s:i, s:{s:b, s:i, s:i, s:i, s:{s:s}}, s:o, s:o}",
                     "restartPolicy", "Never", "automountServiceAccountToken", 0,
                     "enableServiceLinks", 0, "hostname", plain, "terminationGracePeriodSeconds",
                     GRACE_S, "securityContext", "runAsNonRoot", 1, "runAsUser", (int)user->uid,
                     "runAsGroup", (int)user->gid, "fsGroup", (int)user->gid, "seccompProfile",
                     "type", "RuntimeDefault", "containers", new_containers(b, user, image),
                     "volumes", new_volumes(b->spec, name));
    if (spec && kube_has_claim(b->spec))
        (void)json_object_set_new(spec, "initContainers", new_init_containers(b, user, image));
    if (spec && *b->spec->runtime)
        (void)json_object_set_new(spec, "runtimeClassName", json_string(b->spec->runtime));
    return spec ? json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Pod", "metadata",
                            new_meta(b, mark), "spec", spec)
                : NULL;
}
