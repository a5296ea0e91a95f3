/* kube_pod: the objects of a box in the cluster: found by their name, proved by their labels. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_watch.h"
#include "lib/provider/kubernetes/kubernetes.h"
#include "lib/provider/store_mark.h"
#include "lib/util/socket.h"

#define END_FILE "kubernetes-end"
#define BLIND_MS 500 /* between two looks without a watch */
#define GRACE_MOST_S (24 * 3600)
#define BUSY_NODE_MS 45000

static void write_end(const struct provider_box *b, const char *why)
{
    _cleanup_free_ char *path = path_join(b->dir, END_FILE);

    if (path && *why)
        (void)io_write_file(AT_FDCWD, path, why, strlen(why), 0600, false, NULL);
}

void kube_name(const struct provider_box *b, char out[KUBE_NAME_BYTES])
{
    (void)snprintf(out, KUBE_NAME_BYTES, "bellhop-%.16s", b->id);
}

int kube_open_box(const struct provider_box *b, struct kube **ret, struct err *e)
{
    return kube_open(b->ctx, b->spec->engine, provider_deadline(b), ret, e);
}

/* ---- finding ---- */

/* Anybody who may make objects may give them our names. */
int kube_check_labels(const struct provider_box *b, const json_t *doc, struct err *e)
{
    char mark[STORE_MARK_BYTES];
    int r = store_mark(b->ctx, mark, e);

    if (r < 0)
        return r;
    if (str_eq(kube_text(doc, "metadata", "labels", KUBE_LABEL_BOX), b->id) &&
        str_eq(kube_text(doc, "metadata", "labels", KUBE_LABEL_STORE), mark))
        return *kube_text(doc, "metadata", "uid")
                   ? 0
                   : err_set(e, ERR_DATA_LOSS, "the cluster's answer has no uid");
    return err_set(e, ERR_EXISTS,
                   "the namespace has an object 'bellhop-%s' that is not of this box", b->id);
}

int kube_find(const struct provider_box *b, struct kube *k, enum kube_kind kind, json_t **ret,
              struct err *e)
{
    _cleanup_json_ json_t *doc = NULL;
    char name[KUBE_NAME_BYTES];
    struct err why = {0};
    int r;

    kube_name(b, name);
    r = kube_get(k, kind, name, &doc, &why);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0)
        r = kube_check_labels(b, doc, &why);
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    *ret = TAKE(doc);
    return 1;
}

/* The status of the box's container: there is one beside it, which has ended by then. */
static const json_t *box_status(const json_t *doc)
{
    json_t *list = json_object_get(json_object_get(doc, "status"), "containerStatuses"), *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (str_eq(kube_text(v, "name"), KUBE_CONTAINER))
            return v;
    return NULL;
}

/* NULL: there is none. */
static const json_t *pod_condition(const json_t *doc, const char *type)
{
    json_t *list = json_object_get(json_object_get(doc, "status"), "conditions"), *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (str_eq(kube_text(v, "type"), type))
            return v;
    return NULL;
}

/* Where nobody has seen the end, the kubelet makes a number up, and says so in the reason. */
static int exit_code_of(const json_t *ended)
{
    const json_t *code = json_object_get(ended, "exitCode");
    const char *reason = kube_text(ended, "reason");

    if (!json_is_integer(code) || json_integer_value(code) < 0 || json_integer_value(code) > 255 ||
        str_eq(reason, "Unknown") || str_eq(reason, "ContainerStatusUnknown"))
        return -1;
    return (int)json_integer_value(code);
}

void kube_read_pod_take(json_t *doc, struct kube_pod *ret)
{
    const json_t *status = box_status(doc), *state = json_object_get(status, "state");
    const json_t *ended = json_object_get(state, "terminated");
    const char *phase = kube_text(doc, "status", "phase");
    const json_t *ready = pod_condition(doc, "Ready");

    *ret = (struct kube_pod){
        .doc = doc,
        .name = kube_text(doc, "metadata", "name"),
        .uid = kube_text(doc, "metadata", "uid"),
        .version = kube_text(doc, "metadata", "resourceVersion"),
        .phase = phase,
        .address = kube_text(doc, "status", "podIP"),
        .node = kube_text(doc, "spec", "nodeName"),
        .container = kube_text(status, "containerID"),
        .is_running = json_object_get(state, "running") && str_eq(phase, "Running"),
        .is_ready = str_eq(kube_text(ready, "status"), "True"),
        .is_ending = *kube_text(doc, "metadata", "deletionTimestamp") != '\0',
        .has_ended = ended != NULL,
        .exit_code = exit_code_of(ended),
    };
    /* A kubelet that calls a pod not ready gives a reason; the controller that does so for a silent node gives none. */
    ret->is_lost = ret->is_running && !ret->is_ready && !*kube_text(ready, "reason");
}

int kube_find_pod(const struct provider_box *b, struct kube *k, struct kube_pod *ret, struct err *e)
{
    json_t *doc = NULL;
    int r;

    if (b->spec && *b->spec->pool)
        return kube_pool_find_pod(b, k, ret, e);
    r = kube_find(b, k, KUBE_PODS, &doc, e);
    if (r == 1)
        kube_read_pod_take(doc, ret);
    return r;
}

int kube_find_own_pod(const struct provider_box *b, struct kube *k, struct kube_pod *ret,
                      struct err *e)
{
    char own[KUBE_UID_BYTES];
    int r = kube_record_uid(b, own, e);
    bool is_recorded = r == 1;

    if (r >= 0)
        r = kube_find_pod(b, k, ret, e);
    if (r != 1 || !is_recorded || str_eq(own, ret->uid))
        return r;
    write_end(b, "Replaced: the pod is another one, which this box has not made");
    kube_pod_done(ret);
    return 0;
}

void kube_pod_done(struct kube_pod *p)
{
    json_decref(p->doc);
    *p = (struct kube_pod){0};
}

int kube_make(const struct provider_box *b, struct kube *k, enum kube_kind kind, const json_t *body,
              json_t **ret, struct err *e)
{
    _cleanup_json_ json_t *made = NULL;
    struct err why = {0};
    int r = body ? kube_create(k, kind, body, false, &made, &why) : err_oom(&why);

    if (r == -ERR_EXISTS && kube_find(b, k, kind, &made, &why) == 1)
        r = 0;
    if (r == 0 && ret)
        *ret = TAKE(made);
    if (r < 0 && e)
        *e = why;
    return r;
}

/* By a list: after a 404 of a gateway the object would stay. */
int kube_unmake(const struct provider_box *b, struct kube *k, enum kube_kind kind, int grace_s,
                struct err *e)
{
    _cleanup_json_ json_t *found = NULL;
    char name[KUBE_NAME_BYTES];
    int r;

    kube_name(b, name);
    r = kube_find_listed(k, kind, name, &found, e);
    if (r != 1)
        return r;
    r = kube_check_labels(b, found, e);
    return r < 0 ? r : kube_delete(k, kind, name, kube_text(found, "metadata", "uid"), grace_s, e);
}

int kube_not_own_cluster(const struct provider_box *b, const char *what, const char *name,
                         struct err *e)
{
    bool has_claim = *b->spec->pool || kube_has_claim(b->spec);

    return err_set(
        e, ERR_UNAVAILABLE,
        "the cluster has %s the %s '%.100s': is it the one that the box was made in? (bellhop rm "
        "removes boxes whose disks are lost)",
        has_claim ? "neither the claim of the box nor" : "not", what, name);
}

int kube_check_own_cluster(const struct provider_box *b, struct kube *k, struct err *e)
{
    _cleanup_json_ json_t *secret = NULL, *claim = NULL;
    _cleanup_kube_claim_ struct kube_claim c = {0};
    char name[KUBE_NAME_BYTES], own[KUBE_UID_BYTES];
    int r = kube_record_uid(b, own, e);

    if (r <= 0)
        return r;
    if (*b->spec->pool) {
        r = kube_find_claim(b, k, &c, e);
        return r == 0 ? kube_check_claim_cluster(b, k, e) : r < 0 ? r : 0;
    }
    r = kube_find(b, k, KUBE_SECRETS, &secret, e);
    if (r == 0 && kube_has_claim(b->spec))
        r = kube_find(b, k, KUBE_CLAIMS, &claim, e);
    if (r != 0)
        return r < 0 ? r : 0;
    kube_name(b, name);
    return kube_not_own_cluster(b, "secret", name, e);
}

/* ---- waiting ---- */

int kube_wait(const struct provider_box *b, struct kube *k, const struct kube_pod *p, int max_ms,
              struct err *e)
{
    _cleanup_close_ int fd = -1;
    int cancel_fd = kube_cancel_fd(k);
    int64_t left = clock_until_ms(kube_deadline(k));
    int r;

    if (left <= 0)
        return err_set(e, ERR_DEADLINE, "the time is over");
    if (left < max_ms)
        max_ms = (int)left;
    (void)b;
    if (!p->doc || kube_watch(k, KUBE_PODS, p->name, p->version, &fd, NULL) < 0) {
        if (socket_wait_canceled(cancel_fd, max_ms < BLIND_MS ? max_ms : BLIND_MS))
            return err_set(e, ERR_CANCELED, "canceled");
        return 0;
    }
    r = socket_wait(fd, false, cancel_fd, clock_mono_ms() + max_ms, e);
    return r == -ERR_CANCELED ? r : 0;
}

/* ---- why ---- */

void kube_save_logs(const struct provider_box *b, struct kube *k, const struct kube_pod *p)
{
    _cleanup_free_ char *path = path_join(b->dir, "agent.log");
    _cleanup_free_ char *text = NULL;
    size_t len = 0;

    if (path && *b->dir && kube_logs(k, p->name, KUBE_CONTAINER, &text, &len, NULL) == 0 && len)
        (void)io_write_file(AT_FDCWD, path, text, len, 0600, false, NULL);
}

int kube_node_is_lost(const struct kube_pod *p, struct err *e)
{
    return err_set(e, ERR_UNAVAILABLE,
                   "the node '%.64s' of the pod does not answer: the pod is not Ready, and its "
                   "container was running last (NodeStatusUnknown)",
                   p->node);
}

int64_t kube_end_by_ms(const struct kube_pod *p, int grace_s)
{
    const json_t *own =
        json_object_get(json_object_get(p->doc, "metadata"), "deletionGracePeriodSeconds");
    json_int_t s = json_is_integer(own) ? json_integer_value(own) : grace_s;

    if (s < grace_s)
        s = grace_s;
    return clock_mono_ms() + (s < GRACE_MOST_S ? s : GRACE_MOST_S) * 1000 + KUBE_FORCE_AFTER_MS;
}

const json_t *kube_box_container(const struct kube_pod *p)
{
    const json_t *list = json_object_get(json_object_get(p->doc, "spec"), "containers"), *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (str_eq(kube_text(v, "name"), KUBE_CONTAINER))
            return v;
    return NULL;
}

/* A node that answers may only be busy. */
bool kube_pod_is_stuck(const struct kube_pod *p, int64_t end_by_mono_ms)
{
    return p->is_running && clock_until_ms(end_by_mono_ms + (p->is_ready ? BUSY_NODE_MS : 0)) <= 0;
}

int kube_pod_does_not_end(const struct kube_pod *p, struct err *e)
{
    char why[KUBE_WHY_BYTES];

    if (p->is_lost)
        return kube_node_is_lost(p, e);
    kube_pod_unready(p, why);
    return err_set(e, ERR_UNAVAILABLE,
                   "the node '%.64s' does not end the pod, whose time is over%s%s", p->node,
                   *why ? ": " : "", why);
}

static void copy_why(char out[KUBE_WHY_BYTES], const char *reason, const char *message)
{
    (void)snprintf(out, KUBE_WHY_BYTES, "%.60s%s%.240s", reason, *reason && *message ? ": " : "",
                   message);
    str_make_utf8(out);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
}

/* Of a container that waits, or has ended and has that name (NULL: any); "Completed" and "Error" say no more than the exit code. */
static bool container_why(const json_t *doc, const char *list_name, const char *ended_name,
                          char out[KUBE_WHY_BYTES])
{
    json_t *list = json_object_get(json_object_get(doc, "status"), list_name), *v;
    size_t i;

    json_array_foreach (list, i, v) {
        const json_t *state = json_object_get(v, "state"), *waiting, *ended;

        waiting = json_object_get(state, "waiting");
        ended = json_object_get(state, "terminated");
        if (waiting && !str_eq(kube_text(waiting, "reason"), "ContainerCreating") &&
            !str_eq(kube_text(waiting, "reason"), "PodInitializing")) {
            copy_why(out, kube_text(waiting, "reason"), kube_text(waiting, "message"));
            return *out != '\0';
        }
        if (ended && (!ended_name || str_eq(kube_text(v, "name"), ended_name)) &&
            !str_eq(kube_text(ended, "reason"), "Completed") &&
            !str_eq(kube_text(ended, "reason"), "Error")) {
            copy_why(out, kube_text(ended, "reason"), kube_text(ended, "message"));
            return *out != '\0';
        }
    }
    return false;
}

/* A condition of that status says why. */
static bool condition_why(const json_t *doc, const char *type, const char *status,
                          char out[KUBE_WHY_BYTES])
{
    const json_t *v = pod_condition(doc, type);

    if (!str_eq(kube_text(v, "status"), status))
        return false;
    copy_why(out, kube_text(v, "reason"), kube_text(v, "message"));
    return true;
}

/* "DisruptionTarget" is how whoever evicts a pod says so. */
void kube_pod_why(const struct kube_pod *p, char out[KUBE_WHY_BYTES])
{
    out[0] = '\0';
    if (*kube_text(p->doc, "status", "reason")) /* "Evicted", by the kubelet */
        copy_why(out, kube_text(p->doc, "status", "reason"),
                 kube_text(p->doc, "status", "message"));
    else if (!condition_why(p->doc, "DisruptionTarget", "True", out) &&
             !container_why(p->doc, "containerStatuses", KUBE_CONTAINER, out) &&
             !container_why(p->doc, "initContainerStatuses", NULL, out))
        (void)condition_why(p->doc, "PodScheduled", "False", out);
}

void kube_pod_unready(const struct kube_pod *p, char out[KUBE_WHY_BYTES])
{
    out[0] = '\0';
    if (p->is_running)
        (void)condition_why(p->doc, "Ready", "False", out);
}

int kube_pod_failure(const struct kube_pod *p, struct err *e)
{
    static const char *const image_reasons[] = {"ErrImagePull",      "ImagePullBackOff",
                                                "ErrImageNeverPull", "InvalidImageName",
                                                "ImageInspectError", NULL};
    static const char *const other_reasons[] = {"CreateContainerConfigError", "RunContainerError",
                                                "CreateContainerError", NULL};
    char why[KUBE_WHY_BYTES];

    kube_pod_why(p, why);
    for (size_t i = 0; image_reasons[i]; i++)
        if (str_has_prefix(why, image_reasons[i]))
            return err_field(e, ERR_PRECONDITION, "image",
                             "the cluster cannot pull the image (push it, or set kube-registry): "
                             "%s",
                             why);
    for (size_t i = 0; other_reasons[i]; i++)
        if (str_has_prefix(why, other_reasons[i]))
            return err_set(e, ERR_PRECONDITION, "the pod does not start: %s", why);
    if (p->is_ending)
        return err_set(e, ERR_ABORTED, "the pod is being deleted%s%s", *why ? ": " : "", why);
    if (p->has_ended || str_eq(p->phase, "Failed") || str_eq(p->phase, "Succeeded"))
        return err_set(e, ERR_UNAVAILABLE, "the pod ended at once: exit code %d%s%s", p->exit_code,
                       *why ? ", " : "", why);
    return 0;
}

void kube_pod_warning(struct kube *k, const struct kube_pod *p, char out[KUBE_WHY_BYTES])
{
    _cleanup_json_ json_t *list = NULL;
    char query[160];
    json_t *v;
    size_t i;

    out[0] = '\0';
    (void)snprintf(query, sizeof(query), "fieldSelector=involvedObject.uid%%3D%.63s&limit=100",
                   p->uid);
    if (kube_list(k, KUBE_EVENTS, query, &list, NULL) < 0)
        return;
    json_array_foreach (json_object_get(list, "items"), i, v)
        if (str_eq(kube_text(v, "type"), "Warning") &&
            !str_eq(kube_text(v, "reason"), "MissingClusterDNS"))
            copy_why(out, kube_text(v, "reason"), kube_text(v, "message"));
}

/* Why the container that ran before this one has ended. */
static void last_end_why(const struct kube_pod *p, char out[KUBE_WHY_BYTES])
{
    const json_t *ended =
        json_object_get(json_object_get(box_status(p->doc), "lastState"), "terminated");
    const char *reason = kube_text(ended, "reason");
    char text[KUBE_WHY_BYTES];

    (void)snprintf(text, sizeof(text), "exit code %d%s%.60s", exit_code_of(ended),
                   *reason ? ", " : "", reason);
    copy_why(out, text, kube_text(ended, "message"));
}

int kube_pod_restarts(const struct kube_pod *p, struct err *e)
{
    char why[KUBE_WHY_BYTES];

    last_end_why(p, why);
    return err_field(e, ERR_UNAVAILABLE, "pool",
                     "pool: the container '" KUBE_CONTAINER "' of the pod '%.100s' ends again and "
                     "again while the box starts: %s",
                     p->name, why);
}

void kube_note_restart(const struct provider_box *b, const struct kube_pod *p)
{
    char why[KUBE_WHY_BYTES], text[KUBE_WHY_BYTES];

    last_end_why(p, why);
    (void)snprintf(text, sizeof(text),
                   "Restarted: the container has ended, and another one waits "
                   "for the token: %.200s",
                   why);
    write_end(b, text);
}

void kube_note_end(const struct provider_box *b, const struct kube_pod *p)
{
    char why[KUBE_WHY_BYTES];

    kube_pod_why(p, why);
    write_end(b, why);
}

void kube_read_end(const struct provider_box *b, char out[KUBE_WHY_BYTES])
{
    _cleanup_free_ char *path = path_join(b->dir, END_FILE);
    _cleanup_free_ char *text = NULL;
    struct err why = {0};
    int r = path ? io_read_file(AT_FDCWD, path, KUBE_WHY_BYTES, &text, NULL, &why) : err_oom(&why);

    out[0] = '\0';
    if (r == 0)
        (void)snprintf(out, KUBE_WHY_BYTES, "%s", text);
    else if (r != -ERR_NOT_FOUND)
        (void)snprintf(out, KUBE_WHY_BYTES, "the reason cannot be read: %.250s", why.message);
}
