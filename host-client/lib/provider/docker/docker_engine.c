/* docker_engine: what the engine says of itself and of a box's container. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"
#include "lib/provider/store_mark.h"
#include "lib/util/socket.h"

#define GONE_POLL_MS 50
#define ENGINE_SAYS "the engine: " /* engine_open()'s errors */
#define CPUS_MOST 65536
#define ID_DIGITS 64
#define NEVER "0001-01-01T" /* the zero of the engines' clocks */

/* ---- the engine ---- */

static const char *json_text(json_t *obj, const char *key)
{
    const char *text = json_string_value(json_object_get(obj, key));

    return text ? text : "";
}

/* "name=rootless" and its kin. */
static bool has_security_option(json_t *info, const char *name)
{
    json_t *list = json_object_get(info, "SecurityOptions"), *v;
    size_t i, n = strlen(name);

    json_array_foreach (list, i, v) {
        const char *text = json_string_value(v);

        if (text && str_has_prefix(text, "name=") &&
            strncmp(text + strlen("name="), name, n) == 0 && strchr(",", text[strlen("name=") + n]))
            return true;
    }
    return false;
}

/* Podman before 3.2 has no list: root's has all of them. */
static bool has_controller(json_t *host, bool is_rootless, const char *name)
{
    json_t *list = json_object_get(host, "cgroupControllers"), *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (str_eq(json_string_value(v), name))
            return true;
    return !is_rootless && !json_is_array(list);
}

static uint64_t json_count(json_t *obj, const char *key, uint64_t most)
{
    json_int_t n = json_integer_value(json_object_get(obj, key));

    return n <= 0 ? 0 : (uint64_t)n < most ? (uint64_t)n : most;
}

static void copy_text(char *out, size_t bytes, const char *text)
{
    (void)snprintf(out, bytes, "%s", text);
    str_make_utf8(out); /* the cut may be within a character */
}

int docker_answer_is_strange(struct err *e, const char *of)
{
    return err_field(e, ERR_DATA_LOSS, "docker_host", "the engine's answer has no valid %s", of);
}

static void join_identity(struct docker_facts *f, const char *who, const char *where)
{
    if (*who || *where)
        (void)snprintf(f->identity, sizeof(f->identity), "%s %s", who, where);
    str_make_utf8(f->identity);
}

/* The ID of dockerd 20.10 is that of a key in /etc/docker, which knows nothing of the data root. */
static void read_docker(json_t *info, struct docker_facts *f)
{
    uint64_t cgroup = 0;
    const char *key;
    json_t *v;

    f->is_rootless = has_security_option(info, "rootless");
    f->has_userns = has_security_option(info, "userns");
    f->has_seccomp = has_security_option(info, "seccomp");
    f->is_desktop = str_has_prefix(json_text(info, "OperatingSystem"), "Docker Desktop");
    f->limits_memory = json_is_true(json_object_get(info, "MemoryLimit"));
    f->limits_cpu = json_is_true(json_object_get(info, "CpuCfsQuota"));
    f->limits_pids = json_is_true(json_object_get(info, "PidsLimit"));
    f->has_freezer = !str_eq(json_text(info, "CgroupDriver"), "none");
    f->memory_bytes = json_count(info, "MemTotal", INT64_MAX);
    f->n_cpus = (unsigned)json_count(info, "NCPU", CPUS_MOST);
    if (str_parse_u64(json_text(info, "CgroupVersion"), 1, 2, &cgroup, NULL) == 0)
        f->cgroup_version = (unsigned)cgroup;
    copy_text(f->default_runtime, sizeof(f->default_runtime), json_text(info, "DefaultRuntime"));
    copy_text(f->name, sizeof(f->name), json_text(info, "Name"));
    copy_text(f->version, sizeof(f->version), json_text(info, "ServerVersion"));
    join_identity(f, json_text(info, "ID"), json_text(info, "DockerRootDir"));
    json_object_foreach (json_object_get(info, "Runtimes"), key, v)
        (void)json_array_append_new(f->runtimes, json_string(key));
    f->security = json_incref(json_object_get(info, "SecurityOptions"));
}

/* Podman's own answer has its options one by one: here in Docker's words. */
static json_t *podman_security(json_t *security)
{
    static const struct {
        const char *key, *name;
    } options[] = {{"apparmorEnabled", "name=apparmor"},
                   {"rootless", "name=rootless"},
                   {"seccompEnabled", "name=seccomp,profile=default"},
                   {"selinuxEnabled", "name=selinux"}};
    json_t *list = json_array();

    for (size_t i = 0; i < N_ELEMENTS(options); i++)
        if (json_is_true(json_object_get(security, options[i].key)))
            (void)json_array_append_new(list, json_string(options[i].name));
    return list;
}

/*
 * Without control groups there is no freezer either: an ordinary user has none with version 1. Of the runtimes that
 * Podman knows it takes its default alone.
 */
static void read_podman(json_t *info, struct docker_facts *f)
{
    json_t *host = json_object_get(info, "host");
    json_t *security = json_object_get(host, "security");
    const char *cgroup = json_text(host, "cgroupVersion");

    f->is_rootless = json_is_true(json_object_get(security, "rootless"));
    f->has_seccomp = json_is_true(json_object_get(security, "seccompEnabled"));
    f->limits_memory = has_controller(host, f->is_rootless, "memory");
    f->limits_cpu = has_controller(host, f->is_rootless, "cpu");
    f->limits_pids = has_controller(host, f->is_rootless, "pids");
    f->cgroup_version = str_eq(cgroup, "v2") ? 2 : str_eq(cgroup, "v1") ? 1 : 0;
    f->has_freezer = !f->is_rootless || f->cgroup_version == 2;
    f->memory_bytes = json_count(host, "memTotal", INT64_MAX);
    f->n_cpus = (unsigned)json_count(host, "cpus", CPUS_MOST);
    copy_text(f->default_runtime, sizeof(f->default_runtime),
              json_text(json_object_get(host, "ociRuntime"), "name"));
    copy_text(f->name, sizeof(f->name), json_text(host, "hostname"));
    copy_text(f->version, sizeof(f->version),
              json_text(json_object_get(info, "version"), "Version"));
    join_identity(f, json_text(host, "hostname"),
                  json_text(json_object_get(info, "store"), "graphRoot"));
    (void)json_array_append_new(f->runtimes, json_string(f->default_runtime));
    f->security = podman_security(security);
}

/*
 * Podman's answer in Docker's words claims limits that an ordinary user's service does not enforce, and hides that it is
 * one. Its own words tell, and each answer takes it half a second: it runs programs.
 */
int docker_read_facts(struct engine *d, struct docker_facts *ret, struct err *e)
{
    bool is_podman = engine_is_podman(d);
    struct docker_facts f = {.is_podman = is_podman};
    _cleanup_json_ json_t *info = NULL;
    int r = engine_get(d, &info, e, is_podman ? "/libpod/info" : "/info");

    if (r < 0)
        return r;
    f.runtimes = json_array();
    if (is_podman)
        read_podman(info, &f);
    else
        read_docker(info, &f);
    /* Without facts, limits that nobody asked for would be left out. */
    if (!f.n_cpus) {
        docker_facts_done(&f);
        return docker_answer_is_strange(e, "facts of itself");
    }
    *ret = f;
    return 0;
}

void docker_keep_facts(const struct docker_facts *f, struct spec *spec)
{
    free(spec->engine_id);
    spec->engine_id = strdup(f->identity);
    json_decref(spec->engine_facts);
    spec->engine_facts = json_pack("{s:b, s:b, s:s}", "rootless", (int)f->is_rootless, "desktop",
                                   (int)f->is_desktop, "default_runtime", f->default_runtime);
}

int docker_kept_facts(const struct spec *spec, struct engine *d, struct docker_facts *ret,
                      struct err *e)
{
    json_t *kept = spec->engine_facts;

    if (!kept)
        return docker_read_facts(d, ret, e);
    *ret = (struct docker_facts){.is_podman = engine_is_podman(d),
                                 .is_rootless = json_is_true(json_object_get(kept, "rootless")),
                                 .is_desktop = json_is_true(json_object_get(kept, "desktop"))};
    copy_text(ret->default_runtime, sizeof(ret->default_runtime),
              json_text(kept, "default_runtime"));
    return 0;
}

int docker_check_freezer(struct engine *d, const struct docker_container *c, const char *field,
                         struct err *e)
{
    struct docker_facts facts = {.has_freezer = true};
    int r = docker_has_own_cgroup(c) ? 0 : docker_read_facts(d, &facts, e);

    if (r == 0 && !facts.has_freezer)
        r = err_field(e, ERR_UNIMPLEMENTED, field,
                      "%s: the engine has no control groups, and cannot pause a container that "
                      "runs: stop the box",
                      field);
    docker_facts_done(&facts);
    return r;
}

void docker_facts_done(struct docker_facts *f)
{
    json_decref(f->runtimes);
    json_decref(f->security);
    f->runtimes = f->security = NULL;
}

bool docker_has_runtime(const struct docker_facts *f, const char *name)
{
    json_t *v;
    size_t i;

    json_array_foreach (f->runtimes, i, v)
        if (str_eq(json_string_value(v), name))
            return true;
    return false;
}

/* The engine in force, if it is the one that the box was made on: its address is another one by now. */
static bool open_moved(const struct provider_box *b, struct engine **ret)
{
    const char *id = b->spec->engine_id;
    _cleanup_free_ char *url = NULL;
    _cleanup_engine_ struct engine *d = NULL;
    struct docker_facts facts = {0};
    bool is_same;

    if (!id || !*id || engine_choose(b->ctx, &url, NULL) < 0 || str_eq(url, b->spec->engine) ||
        engine_open(b->ctx, url, provider_deadline(b), &d, NULL) < 0 ||
        docker_read_facts(d, &facts, NULL) < 0)
        return false;
    is_same = str_eq(facts.identity, id);
    docker_facts_done(&facts);
    if (is_same)
        *ret = TAKE(d);
    return is_same;
}

int docker_open(const struct provider_box *b, struct engine **ret, struct err *e)
{
    struct err why = {0};
    int r = engine_open(b->ctx, b->spec->engine, provider_deadline(b), ret, &why);

    if (r == 0 || (r != -ERR_CANCELED && open_moved(b, ret)))
        return 0;
    if (r == -ERR_CANCELED) {
        if (e)
            *e = why;
        return r;
    }
    return err_field(
        e, -r, "engine", "the engine of the box '%.64s', '%.200s', does not answer: %s", b->name,
        b->spec->engine,
        str_has_prefix(why.message, ENGINE_SAYS) ? why.message + strlen(ENGINE_SAYS) : why.message);
}

/* ---- a container ---- */

void docker_container_name(const struct provider_box *b, char out[DOCKER_NAME_BYTES])
{
    (void)snprintf(out, DOCKER_NAME_BYTES, DOCKER_NAME_OF, b->id);
}

void docker_container_done(struct docker_container *c)
{
    json_decref(c->doc);
    c->doc = NULL;
}

/* It is connected to. */
static bool is_address(const char *text)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

static void read_address(json_t *network, struct docker_container *c)
{
    const char *address = json_text(network, "IPAddress"), *key;
    json_t *v;

    json_object_foreach (json_object_get(network, "Networks"), key, v)
        if (!*address)
            address = json_text(v, "IPAddress");
    if (is_address(address))
        (void)snprintf(c->address, sizeof(c->address), "%s", address);
}

static void read_published(json_t *network, struct docker_container *c)
{
    char key[24];
    uint64_t port = 0;
    json_t *list;

    (void)snprintf(key, sizeof(key), "%d/tcp", DOCKER_AGENT_PORT);
    list = json_object_get(json_object_get(network, "Ports"), key);
    if (str_parse_u64(json_text(json_array_get(list, 0), "HostPort"), 1, UINT16_MAX, &port, NULL) ==
        0)
        c->published = (uint16_t)port;
}

bool docker_is_id(const char *id)
{
    return id && strlen(id) == ID_DIGITS && strspn(id, "0123456789abcdef") == ID_DIGITS;
}

/* The labels prove that it is this box's: anybody may give a container a name. */
static int check_labels(const struct provider_box *b, json_t *doc, struct err *e)
{
    json_t *labels = json_object_get(json_object_get(doc, "Config"), "Labels");
    char mark[STORE_MARK_BYTES];
    int r = store_mark(b->ctx, mark, e);

    if (r < 0)
        return r;
    if (str_eq(json_text(labels, DOCKER_LABEL_BOX), b->id) &&
        str_eq(json_text(labels, DOCKER_LABEL_STORE), mark))
        return 0;
    return err_set(e, ERR_EXISTS, "the engine has a container 'bellhop-%s' that is not of this box",
                   b->id);
}

/* `key` is an id or a name. The engine finds a container by the beginning of its id, too. */
static bool is_named(json_t *doc, const char *key)
{
    const char *text = json_text(doc, "Name");

    return str_eq(json_text(doc, "Id"), key) || str_eq(text + (*text == '/'), key);
}

/* A word that is not in the table tells nothing: the box is not called stopped for it. */
static int check_state(json_t *doc, struct err *e)
{
    json_t *state = json_object_get(doc, "State");

    return provider_state(&provider_docker, json_text(state, "Status")) == BH_STATE_UNKNOWN ||
                   !json_is_integer(json_object_get(state, "ExitCode"))
               ? docker_answer_is_strange(e, "state of the container")
               : 0;
}

int docker_find_named(const struct provider_box *b, struct engine *d, const char *name,
                      struct docker_container *ret, struct err *e)
{
    struct docker_container c = {0};
    json_t *state, *network;
    struct err why = {0};
    int r;

    r = engine_get(d, &c.doc, &why, "/containers/%s/json", name);
    if (r == -ERR_NOT_FOUND)
        return 0;
    if (r == 0 && !(docker_is_id(json_text(c.doc, "Id")) && is_named(c.doc, name)))
        r = docker_answer_is_strange(&why, "container");
    if (r == 0)
        r = check_labels(b, c.doc, &why);
    if (r == 0)
        r = check_state(c.doc, &why);
    if (r < 0) {
        docker_container_done(&c);
        if (e)
            *e = why;
        return r;
    }
    state = json_object_get(c.doc, "State");
    network = json_object_get(c.doc, "NetworkSettings");
    (void)snprintf(c.id, sizeof(c.id), "%s", json_text(c.doc, "Id"));
    (void)snprintf(c.status, sizeof(c.status), "%s", json_text(state, "Status"));
    c.is_paused = str_eq(c.status, "paused");
    if (!str_has_prefix(json_text(state, "StartedAt"), NEVER))
        (void)snprintf(c.started, sizeof(c.started), "%s", json_text(state, "StartedAt"));
    c.is_running =
        c.is_paused || str_eq(c.status, "running") || str_eq(c.status, "stopping"); /* Podman's */
    c.is_oom = json_is_true(json_object_get(state, "OOMKilled"));
    c.exit_code = (int)json_integer_value(json_object_get(state, "ExitCode"));
    c.pid = (pid_t)json_integer_value(json_object_get(state, "Pid"));
    read_address(network, &c);
    read_published(network, &c);
    *ret = c;
    return 1;
}

/* The recorded id is the identity: anybody may rename the container, and give its name to another one. Without a record,
 * and after a restore that was killed before it had one, the name leads to it. */
int docker_find_container(const struct provider_box *b, struct engine *d,
                          struct docker_container *ret, struct err *e)
{
    char name[DOCKER_NAME_BYTES], id[DOCKER_ID_BYTES];
    bool has_id = docker_recorded_id(b, id);
    int r = has_id ? docker_find_named(b, d, id, ret, e) : 0;
    struct err why = {0};

    if (r != 0)
        return r;
    docker_container_name(b, name);
    r = docker_find_named(b, d, name, ret, &why);
    if (r == -ERR_EXISTS && has_id) /* ours is gone, and somebody else has taken its name */
        return 0;
    if (r < 0 && e)
        *e = why;
    return r;
}

/* 1, 0: another engine answers, or an error. */
static int is_engine_of(const struct provider_box *b, struct engine *d, struct err *e)
{
    struct docker_facts facts = {0};
    int r = docker_read_facts(d, &facts, e);

    if (r == 0)
        r = str_eq(facts.identity, b->spec->engine_id);
    docker_facts_done(&facts);
    return r;
}

/* An engine whose storage is not mounted, or another one at the address, has no container of ours, and no box is gone by
 * its word. */
int docker_open_container(const struct provider_box *b, struct engine **ret_engine,
                          struct docker_container *ret, struct err *e)
{
    struct engine *moved = NULL;
    int r = docker_open(b, ret_engine, e);

    if (r == 0)
        r = docker_find_container(b, *ret_engine, ret, e);
    if (r != 0 || !b->spec->engine_id || !*b->spec->engine_id)
        return r;
    r = is_engine_of(b, *ret_engine, e);
    if (r != 0)
        return r < 0 ? r : 0;
    if (!open_moved(b, &moved))
        return err_field(e, ERR_UNAVAILABLE, "engine",
                         "another engine answers at '%.200s': it is not the one on which the box "
                         "'%.64s' was made, and does not have its container",
                         b->spec->engine, b->name);
    (void)engine_free(*ret_engine);
    *ret_engine = moved;
    return docker_find_container(b, moved, ret, e);
}

bool docker_is_being_removed(const struct docker_container *c)
{
    return provider_state(&provider_docker, c->status) == BH_STATE_DESTROYING;
}

int docker_remove_container(struct engine *d, const char *id, struct err *e)
{
    char path[128];
    int r;

    (void)snprintf(path, sizeof(path), "/containers/%.72s?force=1&v=1", id);
    for (;;) {
        struct err why = {0};

        r = engine_call(d, "DELETE", path, NULL, NULL, &why);
        if (r == 0 || r == -ERR_NOT_FOUND)
            return 0;
        /* "removal is already in progress", by somebody else */
        if (r != -ERR_EXISTS) {
            if (e)
                *e = why;
            return r;
        }
        (void)poll(NULL, 0, GONE_POLL_MS);
    }
}
