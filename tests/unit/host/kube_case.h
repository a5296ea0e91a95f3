#pragma once
/*
 * kube_case: a small API server on the unix socket "api" of the test's directory, and a box of the provider
 * `kubernetes` in it. It keeps objects, pages its lists, and a test's own function may answer a call first.
 */
#include "test.h"

#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/clock.h"
#include "lib/provider/kubernetes/kubernetes.h"
#include "lib/provider/store_mark.h"

#define CASE_BOX "00112233aabbccdd"
#define CASE_POD "bellhop-" CASE_BOX
#define CASE_HEAD_BYTES 8192
#define CASE_BODY_BYTES 16384
#define CASE_CONNECTIONS 256
#define CASE_CALLS 8192

/* One call to the API server. */
struct kube_call {
    char method[8];
    char path[2048]; /* with the query */
    char body[CASE_BODY_BYTES];
    unsigned nth; /* of the calls with this method and path up to the query; from 1 */
};

enum kube_how {
    KUBE_WHOLE,
    KUBE_CUT,    /* half of the body, then the end of the connection */
    KUBE_CLOSED, /* no answer: the end of the connection */
    KUBE_SILENT, /* no answer, and the connection stays */
};

struct kube_answer {
    int status;
    enum kube_how how;
    const char *header; /* "Name: value\r\n", or NULL */
    json_t *body;       /* owned */
    bool is_made_first; /* the call takes effect, and then it is answered so */
};

static struct {
    pthread_mutex_t lock;
    int fd;
    /* guarded by lock: */
    json_t *objects; /* {"pods": {NAME: object}} */
    unsigned n_uids, n_calls;
    char calls[CASE_CALLS][160]; /* "METHOD PATH" without the query */
    int watches[CASE_CONNECTIONS];
    unsigned n_watches;
    /* True: *a is the answer. Called under the lock. */
    bool (*answer)(const struct kube_call *c, struct kube_answer *a);
    /* The output of a command in a pod; NULL: an agent that says the same whatever it is asked. */
    const char *(*exec)(const struct kube_call *c);
} api = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---- objects ---- */

static inline json_t *api_status(int code, const char *reason, const char *message)
{
    return json_pack("{s:s, s:s, s:i, s:s, s:s}", "kind", "Status", "status", "Failure", "code",
                     code, "reason", reason, "message", message);
}

/* "pods" of "/api/v1/namespaces/default/pods/NAME/log?..."; name "" is the list. */
static inline void api_place(const char *path, char kind[64], char name[128], char rest[64])
{
    const char *p = strstr(path, "/namespaces/default/");

    kind[0] = name[0] = rest[0] = '\0';
    if (p)
        (void)sscanf(p + strlen("/namespaces/default/"), "%63[^/?]/%127[^/?]/%63[^/?]", kind, name,
                     rest);
}

static inline json_t *api_kind(const char *kind)
{
    json_t *of_kind = json_object_get(api.objects, kind);

    if (!of_kind) {
        of_kind = json_object();
        (void)json_object_set_new(api.objects, kind, of_kind);
    }
    return of_kind;
}

/* Under the lock, as everything below; `object` is taken over. Returns what is stored. */
static inline json_t *api_put_new(const char *kind, json_t *object)
{
    json_t *meta = json_object_get(object, "metadata");
    char text[32];

    (void)snprintf(text, sizeof(text), "uid-%u", ++api.n_uids);
    if (!json_object_get(meta, "uid"))
        (void)json_object_set_new(meta, "uid", json_string(text));
    (void)snprintf(text, sizeof(text), "%u", 1000 + api.n_uids);
    (void)json_object_set_new(meta, "resourceVersion", json_string(text));
    (void)json_object_set_new(api_kind(kind), kube_text(meta, "name"), object);
    return object;
}

static inline void api_list(const char *path, const char *kind, struct kube_answer *a)
{
    const char *limit = strstr(path, "limit="), *more = strstr(path, "continue=");
    const char *named = strstr(path, "fieldSelector=metadata.name%3D");
    unsigned left = limit ? (unsigned)atoi(limit + strlen("limit=")) : 100000;
    json_t *items = json_array(), *v;
    char last[128] = "", from[128] = "", wanted[128] = "";
    const char *key;

    a->status = 200;
    if (more)
        (void)sscanf(more, "continue=%127[^&]", from);
    if (named)
        (void)sscanf(named, "fieldSelector=metadata.name%%3D%127[^&]", wanted);
    json_object_foreach (api_kind(kind), key, v) {
        if ((*from && strcmp(key, from) <= 0) || (named && strcmp(key, wanted) != 0))
            continue;
        if (!left--) {
            a->body = json_pack("{s:s, s:{s:s}, s:o}", "kind", "List", "metadata", "continue", last,
                                "items", items);
            return;
        }
        (void)snprintf(last, sizeof(last), "%s", key);
        (void)json_array_append_new(items, json_deep_copy(v));
    }
    a->body = json_pack("{s:s, s:{}, s:o}", "kind", "List", "metadata", "items", items);
}

/* A pod runs as soon as it is made. */
static inline void api_run_pod(json_t *pod)
{
    (void)json_object_set_new(pod, "status",
                              json_pack("{s:s, s:s, s:[{s:s, s:{s:{}}}], s:[{s:s, s:s}]}", "phase",
                                        "Running", "podIP", "10.0.0.1", "containerStatuses", "name",
                                        "box", "state", "running", "conditions", "type", "Ready",
                                        "status", "True"));
}

static inline void api_create(const struct kube_call *c, const char *kind, struct kube_answer *a)
{
    json_t *object = json_loads(c->body, 0, NULL);
    const char *name = kube_text(object, "metadata", "name");

    if (!object)
        *a = (struct kube_answer){400, .body = api_status(400, "BadRequest", "no JSON")};
    else if (json_object_get(api_kind(kind), name))
        *a = (struct kube_answer){
            409, .body = api_status(409, "AlreadyExists", "the object exists already")};
    else if (strstr(c->path, "dryRun="))
        *a = (struct kube_answer){201, .body = json_incref(object)};
    else {
        if (strcmp(kind, "pods") == 0)
            api_run_pod(object);
        *a = (struct kube_answer){201,
                                  .body = json_deep_copy(api_put_new(kind, json_incref(object)))};
    }
    json_decref(object);
}

static inline void api_delete(const struct kube_call *c, const char *kind, const char *name,
                              json_t *found, struct kube_answer *a)
{
    json_t *options = json_loads(c->body, 0, NULL);
    const char *uid = kube_text(options, "preconditions", "uid");

    if (*uid && strcmp(uid, kube_text(found, "metadata", "uid")) != 0)
        *a = (struct kube_answer){409, .body = api_status(409, "Conflict", "another uid")};
    else {
        *a = (struct kube_answer){200, .body = json_pack("{s:s}", "kind", "Status")};
        (void)json_object_del(api_kind(kind), name);
    }
    json_decref(options);
}

static inline void api_patch(const struct kube_call *c, json_t *found, struct kube_answer *a)
{
    json_t *patch = json_loads(c->body, 0, NULL);

    (void)json_object_update_recursive(found, patch);
    json_decref(patch);
    *a = (struct kube_answer){200, .body = json_deep_copy(found)};
}

static inline void api_do(const struct kube_call *c, struct kube_answer *a)
{
    char kind[64], name[128], rest[64];
    json_t *found;

    if (strcmp(c->path, "/apis") == 0) {
        *a = (struct kube_answer){
            200, .body = json_pack("{s:s, s:[]}", "kind", "APIGroupList", "groups")};
        return;
    }
    api_place(c->path, kind, name, rest);
    found = json_object_get(api_kind(kind), name);
    if (strcmp(c->method, "POST") == 0 && !*name)
        api_create(c, kind, a);
    else if (!*name)
        api_list(c->path, kind, a);
    else if (!found)
        *a = (struct kube_answer){404, .body = api_status(404, "NotFound", "not found")};
    else if (strcmp(c->method, "DELETE") == 0)
        api_delete(c, kind, name, found, a);
    else if (strcmp(c->method, "PATCH") == 0)
        api_patch(c, found, a);
    else
        *a = (struct kube_answer){200, .body = json_deep_copy(found)};
}

/* ---- the server ---- */

static inline bool api_read_call(int fd, struct kube_call *c)
{
    static _Thread_local char head[CASE_HEAD_BYTES];
    const char *p;
    size_t n = 0, length = 0;

    *c = (struct kube_call){0};
    while (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0)
        if (n >= sizeof(head) - 1 || recv(fd, head + n, 1, 0) != 1)
            return false;
        else
            head[++n] = '\0';
    p = strcasestr(head, "\r\ncontent-length:");
    if (p)
        length = (size_t)atol(p + strlen("\r\ncontent-length:"));
    if (sscanf(head, "%7s %2047s", c->method, c->path) != 2 || length >= sizeof(c->body))
        return false;
    if (strcasestr(head, "\r\nexpect:"))
        (void)send(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
    return !length || recv(fd, c->body, length, MSG_WAITALL) == (ssize_t)length;
}

static inline void api_note_call(struct kube_call *c)
{
    char line[160];

    (void)snprintf(line, sizeof(line), "%s %.*s", c->method, (int)strcspn(c->path, "?"), c->path);
    if (api.n_calls < CASE_CALLS)
        memcpy(api.calls[api.n_calls++], line, sizeof(line));
    for (unsigned i = 0; i < api.n_calls; i++)
        c->nth += strcmp(api.calls[i], line) == 0;
}

static inline void api_send(int fd, const struct kube_answer *a)
{
    char *text = a->body ? json_dumps(a->body, JSON_COMPACT) : strdup("");
    size_t length = strlen(text);
    char head[512];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %d Answer\r\nContent-Type: application/json\r\nContent-Length: "
                     "%zu\r\nConnection: close\r\n%s\r\n",
                     a->status, length, a->header ? a->header : "");

    if (a->how == KUBE_WHOLE || a->how == KUBE_CUT)
        if (send(fd, head, (size_t)n, MSG_NOSIGNAL) == n)
            (void)send(fd, text, a->how == KUBE_CUT ? length / 2 : length, MSG_NOSIGNAL);
    free(text);
}

/* A message of an exec: the standard output, which an agent keeps open. */
static inline void api_send_output(int fd, const char *text)
{
    const char *output = text ? text : "HTTP/1.1 200 OK";
    unsigned char head[3] = {0x82, (unsigned char)(strlen(output) + 1), 1};

    (void)send(fd, head, sizeof(head), MSG_NOSIGNAL);
    (void)send(fd, output, strlen(output), MSG_NOSIGNAL);
    if (text)
        (void)shutdown(fd, SHUT_WR);
}

static inline void *api_serve_one(void *arg)
{
    int fd = (int)(intptr_t)arg;
    struct kube_call *c = malloc(sizeof(*c));
    struct kube_answer a = {0};
    bool stays = false;

    if (c && api_read_call(fd, c)) {
        (void)pthread_mutex_lock(&api.lock);
        api_note_call(c);
        if (!api.answer || !api.answer(c, &a)) {
            if (strstr(c->path, "watch=1") || strstr(c->path, "/exec?")) {
                (void)send(fd, "HTTP/1.1 101 Switching Protocols\r\n\r\n", 36, MSG_NOSIGNAL);
                if (strstr(c->path, "/exec?"))
                    api_send_output(fd, api.exec ? api.exec(c) : NULL);
                stays = api.n_watches < CASE_CONNECTIONS;
                if (stays)
                    api.watches[api.n_watches++] = fd;
            } else {
                api_do(c, &a);
            }
        } else if (a.is_made_first) {
            struct kube_answer unseen = {0};

            api_do(c, &unseen);
            json_decref(unseen.body);
        }
        if (a.status || a.how)
            api_send(fd, &a);
        stays = stays || a.how == KUBE_SILENT;
        (void)pthread_mutex_unlock(&api.lock);
        json_decref(a.body);
    }
    free(c);
    if (!stays)
        (void)close(fd);
    return NULL;
}

static inline void *api_main(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_attr_t attr;
        pthread_t thread;
        int fd = accept(api.fd, NULL, NULL);

        if (fd < 0)
            return NULL;
        (void)pthread_attr_init(&attr);
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attr, api_serve_one, (void *)(intptr_t)fd) != 0)
            (void)close(fd);
        (void)pthread_attr_destroy(&attr);
    }
}

static inline void api_start(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "api"};
    pthread_attr_t attr;
    pthread_t thread;

    api.objects = json_object();
    api.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_INT(bind(api.fd, (struct sockaddr *)&un, sizeof(un)), 0);
    T_INT(listen(api.fd, 128), 0);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    T_INT(pthread_create(&thread, &attr, api_main, NULL), 0);
    (void)pthread_attr_destroy(&attr);
}

/* ---- for tests ---- */

/* Under the lock: the server answers a watch before it counts it. */
static inline unsigned api_n_watches(void)
{
    unsigned n;

    (void)pthread_mutex_lock(&api.lock);
    n = api.n_watches;
    (void)pthread_mutex_unlock(&api.lock);
    return n;
}

/* Waits for the nth watch, from 1; its socket. */
static inline int api_wait_watch(unsigned nth)
{
    int64_t until = clock_mono_ms() + 60000;

    for (;;) {
        int fd = -1;

        (void)pthread_mutex_lock(&api.lock);
        if (api.n_watches >= nth)
            fd = api.watches[nth - 1];
        (void)pthread_mutex_unlock(&api.lock);
        if (fd >= 0)
            return fd;
        T_OK(clock_mono_ms() < until);
        (void)poll(NULL, 0, 5);
    }
}

/* A message of a watch, of less than 126 bytes. */
static inline void api_send_event(int fd, const char *text)
{
    unsigned char head[2] = {0x81, (unsigned char)strlen(text)};

    T_OK(strlen(text) < 126);
    T_INT(send(fd, head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
    T_INT(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static inline unsigned api_count(const char *kind)
{
    unsigned n;

    (void)pthread_mutex_lock(&api.lock);
    n = (unsigned)json_object_size(api_kind(kind));
    (void)pthread_mutex_unlock(&api.lock);
    return n;
}

/* Calls that begin with "METHOD PATH", up to now. */
static inline unsigned api_calls(const char *start)
{
    unsigned n = 0;

    (void)pthread_mutex_lock(&api.lock);
    for (unsigned i = 0; i < api.n_calls; i++)
        n += strncmp(api.calls[i], start, strlen(start)) == 0;
    (void)pthread_mutex_unlock(&api.lock);
    return n;
}

/* `object` is taken over. */
static inline void api_put(const char *kind, json_t *object)
{
    (void)pthread_mutex_lock(&api.lock);
    (void)api_put_new(kind, object);
    (void)pthread_mutex_unlock(&api.lock);
}

static struct bh_ctx case_ctx = {
    .state_dir = (char *)".", .kubeconfig = (char *)"proxy:api", .cancel_fd = -1};
static char case_mark[STORE_MARK_BYTES];

static struct spec case_spec = {.provider = (char *)"kubernetes",
                                .image = (char *)"",
                                .image_dir = (char *)"image",
                                .runtime = (char *)"",
                                .engine = (char *)"proxy:api",
                                .pool = (char *)"",
                                .dest = (char *)"/workspace",
                                .network = (char *)"user",
                                .privilege = (char *)"strict"};
static struct provider_box case_box = {
    .ctx = &case_ctx, .id = CASE_BOX, .name = "one", .dir = "box", .spec = &case_spec};

static inline json_t *case_meta(const char *box)
{
    return json_pack("{s:s+, s:{s:s, s:s}}", "name", "bellhop-", box, "labels", KUBE_LABEL_BOX, box,
                     KUBE_LABEL_STORE, case_mark);
}

/* The box's pod; `state` is the JSON of its container's state. */
static inline json_t *case_pod(const char *phase, const char *state)
{
    return json_pack("{s:s, s:o, s:{s:s}, s:{s:s, s:s, s:[{s:s, s:o}], s:[{s:s, s:s}]}}", "kind",
                     "Pod", "metadata", case_meta(CASE_BOX), "spec", "nodeName", "n1", "status",
                     "phase", phase, "podIP", "10.0.0.1", "containerStatuses", "name", "box",
                     "state", json_loads(state, 0, NULL), "conditions", "type", "Ready", "status",
                     strstr(state, "running") ? "True" : "False");
}
#define CASE_RUNNING "{\"running\": {}}"

/* The server, and the box with its directory and token. */
static inline void case_begin(void)
{
    FILE *f;

    T_INT(mkdir("box", 0700), 0);
    T_INT(mkdir("image", 0700), 0);
    f = fopen("box/token", "w");
    T_OK(f && fputs("secret", f) >= 0 && fclose(f) == 0);
    case_box.deadline_mono_ms = clock_mono_ms() + 60000;
    T_INT(store_mark(&case_ctx, case_mark, NULL), 0);
    api_start();
}

static inline void case_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    T_OK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}
