/* kube_reach: the way to the guest agent in a pod. It is chosen once a start, and recorded. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_stream.h"
#include "lib/provider/kubernetes/kubernetes.h"
#include "lib/util/socket.h"

#define RECORD_FILE "kubernetes.json"
#define RECORD_BYTES 4096
#define TRY_MS 5000
#define TRY_ONCE_MS 200
#define TRY_PAUSE_MS 10
#define ANSWER_MS 10000
#define DIAL_PATIENCE_MS 1000 /* a command tries twenty times */

struct kube_record {
    enum kube_reach way;
    const char *uid, *address;
    const char *pod, *container; /* an earlier version wrote neither */
    json_t *doc;                 /* owns the strings */
};

static void record_done(struct kube_record *w)
{
    json_decref(w->doc);
}
#define _cleanup_record_ __attribute__((cleanup(record_done)))

static int record_save(const struct provider_box *b, const struct kube_record *w, struct err *e)
{
    _cleanup_free_ char *path = path_join(b->dir, RECORD_FILE);
    _cleanup_json_ json_t *doc =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "way", kube_reach_names[w->way], "uid", w->uid,
                  "address", w->address, "pod", w->pod, "container", w->container);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = path && doc ? jx_dump(doc, &text, &len, e) : err_oom(e);

    return r < 0 ? r : io_write_file(AT_FDCWD, path, text, len, 0600, true, e);
}

static int record_load(const struct provider_box *b, struct kube_record *ret, struct err *e)
{
    static const struct jx_field fields[] = {
        JX_ENUM("way", struct kube_record, way, kube_reach_names, JX_REQUIRED),
        JX(struct kube_record, uid, jx_str, JX_REQUIRED),
        JX(struct kube_record, address, jx_str, JX_REQUIRED),
        JX(struct kube_record, pod, jx_str, 0),
        JX(struct kube_record, container, jx_str, 0),
        {0},
    };
    _cleanup_free_ char *path = path_join(b->dir, RECORD_FILE);
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, RECORD_BYTES, &text, &len, e) : err_oom(e);

    if (r == 0)
        r = jx_parse(text, len, &ret->doc, e);
    if (r == 0)
        r = jx_decode(ret->doc, fields, ret, e);
    return r < 0 ? err_wrap(e, r, "the record of the pod") : 0;
}

int kube_record_pod(const struct provider_box *b, const char *uid, struct err *e)
{
    const struct kube_record w = {
        .way = KUBE_REACH_ANY, .uid = uid, .address = "", .pod = "", .container = ""};

    return record_save(b, &w, e);
}

int kube_record_uid(const struct provider_box *b, char out[KUBE_UID_BYTES], struct err *e)
{
    struct kube_recorded w = {0};
    int r = kube_read_record(b, &w, e);

    if (r == 1)
        (void)snprintf(out, KUBE_UID_BYTES, "%s", w.uid);
    return r;
}

int kube_record_forget(const struct provider_box *b, struct err *e)
{
    _cleanup_free_ char *path = path_join(b->dir, RECORD_FILE);

    if (!path)
        return err_oom(e);
    return unlink(path) < 0 && errno != ENOENT ? err_sys(e, errno, "remove '%s'", path) : 0;
}

int kube_read_record(const struct provider_box *b, struct kube_recorded *ret, struct err *e)
{
    _cleanup_record_ struct kube_record w = {.pod = "", .container = ""};
    struct err why = {0};
    int r = record_load(b, &w, &why);

    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r < 0) {
        if (e)
            *e = why;
        return r;
    }
    (void)snprintf(ret->pod, sizeof(ret->pod), "%s", w.pod);
    (void)snprintf(ret->uid, sizeof(ret->uid), "%s", w.uid);
    (void)snprintf(ret->container, sizeof(ret->container), "%s", w.container);
    return 1;
}

static int open_way(struct kube *k, enum kube_reach way, const char *pod, const char *address,
                    int64_t deadline_mono_ms, int *ret_fd, struct err *e)
{
    if (way == KUBE_REACH_ADDRESS)
        return socket_connect_tcp(address, KUBE_AGENT_PORT, kube_cancel_fd(k), deadline_mono_ms,
                                  ret_fd, e);
    return way == KUBE_REACH_EXEC ? kube_stream_exec(k, pod, KUBE_AGENT, KUBE_AGENT_PORT, ret_fd, e)
                                  : kube_stream_forward(k, pod, KUBE_AGENT_PORT, ret_fd, e);
}

/* ---- choosing ---- */

/* Sends no secret: GET /v1/health needs no token. */
static int ask_health(struct kube *k, int fd, struct err *e)
{
    static const char request[] =
        "GET /v1/health HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n";
    char answer[9] = "";
    int r = io_write_all(fd, request, strlen(request), e);

    for (size_t n = 0; r == 0 && n < sizeof(answer) - 1;) {
        ssize_t got;

        r = socket_wait(fd, false, kube_cancel_fd(k), clock_mono_ms() + ANSWER_MS, e);
        if (r < 0)
            break;
        got = recv(fd, answer + n, sizeof(answer) - 1 - n, 0);
        if (got <= 0)
            r = err_set(e, ERR_UNAVAILABLE, "the agent closed the connection");
        n += got > 0 ? (size_t)got : 0;
    }
    return r == 0 && !str_eq(answer, "HTTP/1.1") ? err_set(e, ERR_UNAVAILABLE, "no agent answers")
                                                 : r;
}

/* The agent listens a moment after its container has started. */
static int try_way(struct kube *k, enum kube_reach way, const struct kube_pod *p, struct err *e)
{
    int64_t deadline = clock_mono_ms() + TRY_MS;
    struct err why = {0};
    int r;

    do {
        _cleanup_close_ int fd = -1;

        r = open_way(k, way, p->name, p->address, clock_mono_ms() + TRY_ONCE_MS, &fd, &why);
        if (r < 0 && way != KUBE_REACH_ADDRESS)
            break; /* the API server refuses it: a port that is closed shows later */
        if (r == 0)
            r = ask_health(k, fd, &why);
    } while (r < 0 && r != -ERR_CANCELED && clock_until_ms(deadline) > 0 &&
             !socket_wait_canceled(kube_cancel_fd(k), TRY_PAUSE_MS));
    if (r < 0 && e)
        *e = why;
    return r;
}

/*
 * A pod's address is one of the cluster's network: from outside, another machine may have it, and the token would go
 * there. So it is used inside the cluster, and where somebody has said that the network is the cluster's.
 */
int kube_record_reach(const struct provider_box *b, struct kube *k, const struct kube_pod *p,
                      struct err *e)
{
    enum kube_reach asked = kube_reach(k);
    bool has_address = str_eq(b->spec->network, "user") && *p->address;
    const struct {
        enum kube_reach way;
        bool is_possible;
    } ways[] = {
        {KUBE_REACH_ADDRESS, has_address && (asked == KUBE_REACH_ADDRESS ||
                                             (asked == KUBE_REACH_ANY && kube_is_inside(k)))},
        {KUBE_REACH_EXEC, asked == KUBE_REACH_ANY || asked == KUBE_REACH_EXEC || !has_address},
        {KUBE_REACH_FORWARD,
         asked == KUBE_REACH_ANY || asked == KUBE_REACH_FORWARD || !has_address},
    };
    struct err why = {0};
    bool is_tried = false;
    int r = err_set(&why, ERR_UNAVAILABLE, "the pod has no address");

    for (size_t i = 0; i < N_ELEMENTS(ways) && r < 0 && r != -ERR_CANCELED; i++)
        if (ways[i].is_possible) {
            struct kube_record w = {.way = ways[i].way,
                                    .uid = p->uid,
                                    .address = p->address,
                                    .pod = p->name,
                                    .container = p->container};

            struct err told = {0};
            int tried = try_way(k, w.way, p, &told);

            if (tried == 0)
                tried = record_save(b, &w, &told);
            if (tried != -ERR_DENIED || !is_tried) { /* else the way that is allowed says more */
                r = tried;
                why = told;
            }
            is_tried = true;
        }
    if (r < 0 && e)
        *e = why;
    return r < 0 ? err_wrap(e, r, "the agent in the pod is not reached") : 0;
}

/* ---- connecting ---- */

/* The pod is not the one that the box was started with, or does not run; NULL: it is gone. */
static int explain_end(const struct provider_box *b, const struct kube_pod *p, struct err *e)
{
    char why[KUBE_WHY_BYTES] = "";

    if (p)
        kube_note_end(b, p);
    kube_read_end(b, why);
    return err_set(e, ERR_UNAVAILABLE, "the pod has ended%s%s", *why ? ": " : "", why);
}

/* Addresses and names are used again: the pod is seen to be the same after the connection was made. */
static int check_same(struct provider_box *b, struct kube *k, const struct kube_record *w,
                      struct err *e)
{
    _cleanup_kube_pod_ struct kube_pod p = {0};
    int r = kube_find_own_pod(b, k, &p, e);
    bool is_there = r == 1;

    if (r == 0)
        r = kube_check_own_cluster(b, k, e);
    if (r < 0)
        return r;
    return is_there && p.is_running && str_eq(p.uid, w->uid) && str_eq(p.address, w->address)
               ? 0
               : explain_end(b, is_there ? &p : NULL, e);
}

int kube_dial(struct provider_box *b, int *ret_fd, struct err *e)
{
    _cleanup_record_ struct kube_record w = {.pod = "", .container = ""};
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_close_ int fd = -1;
    char name[KUBE_NAME_BYTES];
    struct err why = {0};
    int r = record_load(b, &w, e);

    kube_name(b, name);
    if (r == 0 && w.way == KUBE_REACH_ANY)
        r = err_set(e, ERR_UNAVAILABLE, "the pod is starting");
    if (r == 0)
        r = kube_open_box(b, &k, e);
    if (r < 0)
        return r;
    kube_set_patience(k, DIAL_PATIENCE_MS);
    r = open_way(k, w.way, *w.pod ? w.pod : name, w.address, provider_deadline(b), &fd, &why);
    if (r == 0) {
        r = check_same(b, k, &w, &why);
    } else if (r != -ERR_CANCELED) {
        struct err told = {0};

        kube_set_patience(k, 0);
        /* An end of the pod tells more than a connection that is refused, unless the cluster does not answer at all. */
        if (check_same(b, k, &w, &told) < 0 && !str_eq(told.field, KUBE_FIELD)) {
            r = -(int)told.code;
            why = told;
        }
    }
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    else if (e)
        *e = why;
    return r;
}
