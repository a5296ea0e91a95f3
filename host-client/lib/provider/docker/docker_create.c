/* docker_create: the container of a box: its configuration, and the directory of the project in it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"
#include "lib/provider/image_user.h"
#include "lib/provider/store_mark.h"
#include "lib/util/daemon_client.h"
#include "lib/util/socket.h"

#define LISTEN_ADDRESS "0.0.0.0:4711"
#define LOG_BYTES "1m" /* of the agent's own output, which the engine keeps */
#define TAR_BLOCK 512
#define TAR_NAME_BYTES 100
#define CREATE_TRIES 10
#define CREATE_PAUSE_MS 100

/* For the box's root to act as root, as in the provider oci. */
static const char *const sudo_capabilities[] = {
    "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER",     "CAP_FSETID",           "CAP_SETUID",
    "CAP_SETGID", "CAP_KILL",         "CAP_SYS_CHROOT", "CAP_NET_BIND_SERVICE", "CAP_AUDIT_WRITE"};

static bool is_strict(const struct spec *s)
{
    return str_eq(s->privilege, "strict");
}

const char *docker_agent_socket(const struct spec *s)
{
    return is_strict(s) ? "/dev/shm/bellhop-agent.sock" : DOCKER_RUN_DIR "/agent.sock";
}

static json_t *new_capabilities(const struct spec *s)
{
    json_t *list = json_array();

    for (size_t i = 0; !is_strict(s) && i < N_ELEMENTS(sudo_capabilities); i++)
        (void)json_array_append_new(list, json_string(sudo_capabilities[i]));
    return list;
}

static json_t *new_labels(const struct provider_box *b, const char *tag, const char *mark)
{
    json_t *labels = json_pack("{s:s, s:s, s:s, s:s}", DOCKER_LABEL_BOX, b->id, DOCKER_LABEL_STORE,
                               mark, DOCKER_LABEL_NAME, b->name, DOCKER_LABEL_TAG,
                               tag ? tag : ""); /* else that of the image */

    for (char **l = b->spec->labels; labels && l && *l; l++)
        if (str_has_prefix(*l, "owner="))
            (void)json_object_set_new(labels, DOCKER_LABEL_OWNER,
                                      json_string(*l + strlen("owner=")));
    return labels;
}

/* A directory in memory. */
struct memory_dir {
    char path[192];
    const char *options;
    unsigned mode;
    bool is_users; /* else root's */
};
#define MEMORY_DIRS_MAX 6

/* The first two are never on a disk: the agent's socket, and secrets. */
static size_t list_memory_dirs(const struct provider_box *b, const struct image_user *user,
                               struct memory_dir out[MEMORY_DIRS_MAX])
{
    static const char small[] = "rw,nosuid,nodev,noexec,size=4m";
    static const char temporary[] = "rw,nosuid,nodev,noexec,size=256m";
    static const char work[] = "rw,nosuid,nodev,exec";
    const struct memory_dir all[MEMORY_DIRS_MAX] = {
        {DOCKER_RUN_DIR, small, 0700, false},
        {"/run/secrets", small, 0700, true},
        {"/tmp", temporary, 01777, false},
        {"/var/tmp", temporary, 01777, false},
        {"", work, 0755, true},
        {"", work, 0755, true},
    };

    memcpy(out, all, sizeof(all));
    (void)snprintf(out[4].path, sizeof(out[4].path), "/home/%.100s", user->name);
    (void)snprintf(out[5].path, sizeof(out[5].path), "%s", b->spec->dest);
    return b->spec->read_only ? MEMORY_DIRS_MAX : 2;
}

/*
 * Podman 4 refuses an owner, and runc gives a tmpfs the mode of the directory below it: there such a directory is made
 * first (add_dirs), open to everybody as /tmp is. All in the box that is not root is one user, and secrets are files
 * of mode 0600.
 */
static json_t *new_memory_dirs(const struct provider_box *b, const struct docker_facts *f,
                               const struct image_user *user)
{
    struct memory_dir list[MEMORY_DIRS_MAX];
    size_t n = list_memory_dirs(b, user, list);
    json_t *dirs = json_object();

    for (size_t i = 0; i < n; i++) {
        const struct memory_dir *m = &list[i];
        char owner[48] = "";

        if (m->is_users && !f->is_podman)
            (void)snprintf(owner, sizeof(owner), ",uid=%u,gid=%u", user->uid, user->gid);
        (void)json_object_set_new(dirs, m->path,
                                  json_sprintf("%s,mode=%04o%s", m->options,
                                               m->is_users && f->is_podman ? 01777 : m->mode,
                                               owner));
    }
    return dirs;
}

static void set_limits(json_t *host, const struct spec *s)
{
    if (s->memory_bytes) {
        (void)json_object_set_new(host, "Memory", json_integer((json_int_t)s->memory_bytes));
        (void)json_object_set_new(host, "MemorySwap", json_integer((json_int_t)s->memory_bytes));
    }
    if (s->cpu_millis)
        (void)json_object_set_new(host, "NanoCpus",
                                  json_integer((json_int_t)s->cpu_millis * 1000000));
    if (s->pids)
        (void)json_object_set_new(host, "PidsLimit", json_integer((json_int_t)s->pids));
}

static const char *network_of(const struct spec *s)
{
    return str_eq(s->network, "user") ? "bridge" : s->network;
}

/* The engine's own restart would start an agent without a token: the box's monitor decides what follows an end. */
static json_t *new_host_config(const struct provider_box *b, const struct docker_facts *f,
                               const struct image_user *user)
{
    bool publishes = str_eq(b->spec->network, "user") && (f->is_rootless || f->is_desktop);
    json_t *host =
        json_pack("{s:s, s:[s], s:o, s:o, s:b, s:b, s:{s:s}, s:{s:s, s:{s:s}}}", "NetworkMode",
                  network_of(b->spec), "CapDrop", "ALL", "CapAdd", new_capabilities(b->spec),
                  "Tmpfs", new_memory_dirs(b, f, user), "ReadonlyRootfs", (int)b->spec->read_only,
                  "Init", 0, "RestartPolicy", "Name", "no", "LogConfig", "Type", "json-file",
                  "Config", "max-size", LOG_BYTES);

    if (!host)
        return NULL;
    set_limits(host, b->spec);
    if (is_strict(b->spec))
        (void)json_object_set_new(host, "SecurityOpt", json_pack("[s]", "no-new-privileges"));
    if (!str_eq(b->spec->network, "user")) /* else the engine does it; sudo looks it up */
        (void)json_object_set_new(host, "ExtraHosts",
                                  json_pack("[o]", json_sprintf("%s:127.0.0.1", b->name)));
    if (*b->spec->runtime && !str_eq(b->spec->runtime, f->default_runtime))
        (void)json_object_set_new(host, "Runtime", json_string(b->spec->runtime));
    if (publishes)
        (void)json_object_set_new(
            host, "PortBindings",
            json_pack("{s:[{s:s, s:s}]}", "4711/tcp", "HostIp", "127.0.0.1", "HostPort", ""));
    return host;
}

/* Without a network of its own, the agent listens on its socket alone. */
static json_t *new_arguments(const struct provider_box *b, const struct image_user *user)
{
    json_t *args =
        json_pack("[s, s, s, s, s, s, s, s, s]", "--init", "--unix", docker_agent_socket(b->spec),
                  "--token-fd", "0", "--user", user->name, "--workdir", b->spec->dest);

    if (args && str_eq(b->spec->network, "user")) {
        (void)json_array_append_new(args, json_string("--listen"));
        (void)json_array_append_new(args, json_string(LISTEN_ADDRESS));
    }
    return args;
}

/* The token comes through standard input, once: it is in no file, variable or argument of the engine. */
static json_t *new_config(const struct provider_box *b, const struct docker_facts *f,
                          const struct image_user *user, const char *image, const char *tag,
                          const char *mark)
{
    char owner[32];

    (void)snprintf(owner, sizeof(owner), "%u:%u", user->uid, user->gid);
    return json_pack("{s:s, s:s, s:s, s:[s], s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:o, s:o}", "Image",
                     image, "Hostname", b->name, "User", is_strict(b->spec) ? owner : "0:0",
                     "Entrypoint", DOCKER_AGENT, "Cmd", new_arguments(b, user), "StopSignal",
                     "SIGTERM", "OpenStdin", 1, "StdinOnce", 1, "AttachStdin", 1, "AttachStdout", 0,
                     "AttachStderr", 0, "Labels", new_labels(b, tag, mark), "HostConfig",
                     new_host_config(b, f, user));
}

/* ---- directories ---- */

static void put_octal(char *field, size_t bytes, uint64_t value)
{
    (void)snprintf(field, bytes, "%0*llo", (int)bytes - 1, (unsigned long long)value);
}

/* Appends the entry of a directory to a tar. */
static int add_dir(struct buf *tar, const char *path, unsigned mode, uint32_t uid, uint32_t gid,
                   struct err *e)
{
    char head[TAR_BLOCK] = {0};
    unsigned sum = 0;

    if (strlen(path) >= TAR_NAME_BYTES)
        return err_field(e, ERR_INVALID, "dest", "dest: '%.80s...' is longer than %d bytes", path,
                         TAR_NAME_BYTES - 1);
    (void)snprintf(head, TAR_NAME_BYTES, "%s/", path + 1);
    put_octal(head + 100, 8, mode);
    put_octal(head + 108, 8, uid);
    put_octal(head + 116, 8, gid);
    put_octal(head + 124, 12, 0);
    put_octal(head + 136, 12, 0);
    head[156] = '5';
    memcpy(head + 257, "ustar\00000", 8);
    memset(head + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)head[i];
    put_octal(head + 148, 7, sum);
    return buf_add(tar, head, sizeof(head), e);
}

/*
 * Is the project's directory to be made? A disk of a snapshot has it with the owner, the mode and the time of its box,
 * or a link in its place: it stays as it is. 1, 0 or an error.
 */
static int needs_dest(const struct provider_box *b, struct engine *d, const char *name,
                      const char *tag, struct err *e)
{
    _cleanup_free_ char *dest = daemon_client_encode(b->spec->dest), *path = NULL;
    struct err why = {0};
    int r;

    if (b->spec->read_only || !(tag || b->source))
        return !b->spec->read_only;
    if (!dest || asprintf(&path, "/containers/%.72s/archive?path=%s", name, dest) < 0) {
        path = NULL;
        return err_oom(e);
    }
    r = engine_call(d, "HEAD", path, NULL, NULL, &why);
    if (r == -ERR_NOT_FOUND)
        return 1;
    if (r < 0 && e)
        *e = why;
    return r < 0 ? r : 0;
}

/* Appends the project's directory, if it is to be made, and those that need to be there before the container starts. */
static int add_dirs(const struct provider_box *b, const struct docker_facts *f,
                    const struct image_user *user, bool with_dest, struct buf *tar, struct err *e)
{
    struct memory_dir list[MEMORY_DIRS_MAX];
    size_t n = f->is_podman ? list_memory_dirs(b, user, list) : 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++)
        if (list[i].is_users)
            r = add_dir(tar, list[i].path, 01777, 0, 0, e);
    return r == 0 && with_dest ? add_dir(tar, b->spec->dest, 0755, user->uid, user->gid, e) : r;
}

static int send_dirs(struct engine *d, const char *name, struct buf *tar, struct err *e)
{
    static const char end[2 * TAR_BLOCK];
    char path[128];
    int r = buf_add(tar, end, sizeof(end), e);

    (void)snprintf(path, sizeof(path), "/containers/%.72s/archive?path=/", name);
    return r < 0 ? r : engine_send_bytes(d, "PUT", path, tar->data, tar->len, e);
}

/* Podman calls a name in use a failure of its own. */
static bool is_name_taken(int r, const struct err *why)
{
    return r == -ERR_EXISTS || (r == -ERR_UNAVAILABLE && strstr(why->message, "in use"));
}

/* 1, 0: a container has the name, which is gone by now or is being removed, or an error. */
static int create_or_adopt(const struct provider_box *b, struct engine *d, const char *name,
                           const char *path, const json_t *config, char ret_id[DOCKER_ID_BYTES],
                           struct err *e)
{
    _cleanup_json_ json_t *made = NULL;
    struct docker_container c = {0};
    struct err why = {0};
    int r = engine_call(d, "POST", path, config, &made, &why);
    const char *id = json_string_value(json_object_get(made, "Id"));

    if (r == 0 && !docker_is_id(id))
        r = docker_answer_is_strange(&why, "id of the container");
    if (!is_name_taken(r, &why)) {
        if (r == 0)
            (void)snprintf(ret_id, DOCKER_ID_BYTES, "%s", id);
        else if (e)
            *e = why;
        return r < 0 ? r : 1;
    }
    r = docker_find_named(b, d, name, &c, e);
    if (r == 1 && docker_is_being_removed(&c))
        r = 0;
    if (r == 1)
        (void)snprintf(ret_id, DOCKER_ID_BYTES, "%s", c.id);
    docker_container_done(&c);
    return r;
}

/*
 * A request whose answer was lost is sent again, and finds the container of the first one. The container that has the
 * name may be another call's, or be removed by somebody else at any moment.
 */
static int create_named(const struct provider_box *b, struct engine *d, const char *name,
                        const char *path, const json_t *config, char ret_id[DOCKER_ID_BYTES],
                        struct err *e)
{
    for (int i = 0; i < CREATE_TRIES; i++) {
        int r = create_or_adopt(b, d, name, path, config, ret_id, e);

        if (r != 0)
            return r < 0 ? r : 0;
        if (socket_wait_canceled(b->ctx->cancel_fd, CREATE_PAUSE_MS))
            return err_set(e, ERR_CANCELED, "canceled");
    }
    return err_set(e, ERR_UNAVAILABLE,
                   "the engine says that the name '%s' is taken, and has no such container", name);
}

int docker_create_container(const struct provider_box *b, struct engine *d, const char *name,
                            const char *image, const char *tag, char ret_id[DOCKER_ID_BYTES],
                            struct err *e)
{
    struct docker_facts facts = {0};
    struct image_user user;
    char mark[STORE_MARK_BYTES], path[128];
    _cleanup_json_ json_t *config = NULL;
    _cleanup_buf_ struct buf tar;
    int r = image_user_of(b->spec, &user, e);

    buf_init(&tar, (MEMORY_DIRS_MAX + 3) * TAR_BLOCK);
    if (r == 0)
        r = store_mark(b->ctx, mark, e);
    if (r == 0)
        r = docker_kept_facts(b->spec, d, &facts, e);
    if (r < 0)
        return r;
    config = new_config(b, &facts, &user, image, tag, mark);
    (void)snprintf(path, sizeof(path), "/containers/create?name=%.72s", name);
    r = config ? create_named(b, d, name, path, config, ret_id, e) : err_oom(e);
    if (r == 0)
        r = needs_dest(b, d, name, tag, e);
    if (r >= 0)
        r = add_dirs(b, &facts, &user, r == 1, &tar, e);
    if (r == 0 && tar.len)
        r = send_dirs(d, name, &tar, e);
    docker_facts_done(&facts);
    return r;
}
