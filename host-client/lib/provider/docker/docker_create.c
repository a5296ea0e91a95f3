/* docker_create: the container of a box: its configuration, and the directory of the project in it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/docker/docker.h"
#include "lib/provider/docker/docker_user.h"
#include "lib/provider/store_mark.h"

#define LISTEN_ADDRESS "0.0.0.0:4711"
#define LOG_BYTES "1m" /* of the agent's own output, which the engine keeps */
#define TAR_BLOCK 512
#define TAR_NAME_BYTES 100

/* For the box's root to act as root, as in the provider oci. */
static const char *const sudo_capabilities[] = {
    "CHOWN",  "DAC_OVERRIDE", "FOWNER",     "FSETID",           "SETUID",
    "SETGID", "KILL",         "SYS_CHROOT", "NET_BIND_SERVICE", "AUDIT_WRITE"};

static bool is_strict(const struct spec *s)
{
    return str_eq(s->privilege, "strict");
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

static void put_memory_dir(json_t *dirs, const char *path, const char *options,
                           const struct docker_user *user)
{
    char text[128];

    if (user)
        (void)snprintf(text, sizeof(text), "%s,uid=%u,gid=%u", options, user->uid, user->gid);
    else
        (void)snprintf(text, sizeof(text), "%s", options);
    (void)json_object_set_new(dirs, path, json_string(text));
}

/* Directories in memory. The first two are never on a disk: the agent's socket, and secrets. */
static json_t *new_memory_dirs(const struct provider_box *b, const struct docker_user *user)
{
    const struct docker_user *agent = is_strict(b->spec) ? user : NULL;
    json_t *dirs = json_object();
    char home[128];

    put_memory_dir(dirs, DOCKER_RUN_DIR, "rw,nosuid,nodev,noexec,size=1m,mode=0700", agent);
    put_memory_dir(dirs, "/run/secrets", "rw,nosuid,nodev,noexec,size=4m,mode=0700", user);
    if (!b->spec->read_only)
        return dirs;
    (void)snprintf(home, sizeof(home), "/home/%.100s", user->name);
    put_memory_dir(dirs, "/tmp", "rw,nosuid,nodev,noexec,size=256m,mode=1777", NULL);
    put_memory_dir(dirs, "/var/tmp", "rw,nosuid,nodev,noexec,size=256m,mode=1777", NULL);
    put_memory_dir(dirs, home, "rw,nosuid,nodev,mode=0755", user);
    put_memory_dir(dirs, b->spec->dest, "rw,nosuid,nodev,mode=0755", user);
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
                               const struct docker_user *user)
{
    bool publishes = str_eq(b->spec->network, "user") && (f->is_rootless || f->is_desktop);
    json_t *host =
        json_pack("{s:s, s:[s], s:o, s:o, s:b, s:b, s:{s:s}, s:{s:s, s:{s:s}}}", "NetworkMode",
                  network_of(b->spec), "CapDrop", "ALL", "CapAdd", new_capabilities(b->spec),
                  "Tmpfs", new_memory_dirs(b, user), "ReadonlyRootfs", (int)b->spec->read_only,
                  "Init", 0, "RestartPolicy", "Name", "no", "LogConfig", "Type", "json-file",
                  "Config", "max-size", LOG_BYTES);

    if (!host)
        return NULL;
    set_limits(host, b->spec);
    if (is_strict(b->spec))
        (void)json_object_set_new(host, "SecurityOpt", json_pack("[s]", "no-new-privileges"));
    if (*b->spec->runtime && !str_eq(b->spec->runtime, f->default_runtime))
        (void)json_object_set_new(host, "Runtime", json_string(b->spec->runtime));
    if (publishes)
        (void)json_object_set_new(
            host, "PortBindings",
            json_pack("{s:[{s:s, s:s}]}", "4711/tcp", "HostIp", "127.0.0.1", "HostPort", ""));
    return host;
}

/* Without a network of its own, the agent listens on its socket alone. */
static json_t *new_arguments(const struct provider_box *b, const struct docker_user *user)
{
    json_t *args = json_pack("[s, s, s, s, s, s, s, s, s]", "--init", "--unix", DOCKER_AGENT_SOCKET,
                             "--token-fd", "0", "--user", user->name, "--workdir", b->spec->dest);

    if (args && str_eq(b->spec->network, "user")) {
        (void)json_array_append_new(args, json_string("--listen"));
        (void)json_array_append_new(args, json_string(LISTEN_ADDRESS));
    }
    return args;
}

/* The token comes through standard input, once: it is in no file, variable or argument of the engine. */
static json_t *new_config(const struct provider_box *b, const struct docker_facts *f,
                          const struct docker_user *user, const char *image, const char *tag,
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

/* ---- the project's directory ---- */

static void put_octal(char *field, size_t bytes, uint64_t value)
{
    (void)snprintf(field, bytes, "%0*llo", (int)bytes - 1, (unsigned long long)value);
}

/* A tar of one directory, owned by the box's user. */
static int make_dir_tar(const char *path, const struct docker_user *user, char out[3 * TAR_BLOCK],
                        struct err *e)
{
    unsigned sum = 0;
    size_t n = strlen(path + 1);

    if (n + 2 > TAR_NAME_BYTES)
        return err_field(e, ERR_INVALID, "dest", "dest: '%.80s...' is longer than %d bytes", path,
                         TAR_NAME_BYTES - 2);
    memset(out, 0, (size_t)3 * TAR_BLOCK); /* two empty blocks end it */
    (void)snprintf(out, TAR_NAME_BYTES, "%s/", path + 1);
    put_octal(out + 100, 8, 0755);
    put_octal(out + 108, 8, user->uid);
    put_octal(out + 116, 8, user->gid);
    put_octal(out + 124, 12, 0);
    put_octal(out + 136, 12, 0);
    out[156] = '5';
    memcpy(out + 257, "ustar\00000", 8);
    memset(out + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)out[i];
    put_octal(out + 148, 7, sum);
    return 0;
}

static int make_workdir(const struct provider_box *b, struct engine *d, const char *name,
                        const struct docker_user *user, struct err *e)
{
    char tar[3 * TAR_BLOCK], path[128];
    int r;

    if (b->spec->read_only) /* it is in memory */
        return 0;
    r = make_dir_tar(b->spec->dest, user, tar, e);
    (void)snprintf(path, sizeof(path), "/containers/%.72s/archive?path=/", name);
    return r < 0 ? r : engine_send_bytes(d, "PUT", path, tar, sizeof(tar), e);
}

int docker_create_container(const struct provider_box *b, struct engine *d, const char *name,
                            const char *image, const char *tag, struct err *e)
{
    struct docker_facts facts = {0};
    struct docker_user user;
    char mark[STORE_MARK_BYTES], path[128];
    _cleanup_json_ json_t *config = NULL;
    int r = docker_user_of(b, &user, e);

    if (r == 0)
        r = store_mark(b->ctx, mark, e);
    if (r == 0)
        r = docker_read_facts(d, &facts, e);
    if (r < 0)
        return r;
    config = new_config(b, &facts, &user, image, tag, mark);
    docker_facts_done(&facts);
    (void)snprintf(path, sizeof(path), "/containers/create?name=%.72s", name);
    r = config ? engine_call(d, "POST", path, config, NULL, e) : err_oom(e);
    return r < 0 ? r : make_workdir(b, d, name, &user, e);
}
