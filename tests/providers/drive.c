/*
 * drive: drives a provider without a monitor, for the tests of the provider itself.
 *   drive STATE_DIR AGENT (claims|probe|prepare|start|stop|destroy|find|pid|health|inspect|sweep) [KEY=VALUE...]
 * The engine of a provider that has one is DOCKER_HOST's, or KUBE_PLACE's with KUBE_NAMESPACE.
 * Keys: provider (default: oci), image, image_dir, runtime, network, privilege, dest, pool, memory, cpu, disk, pids, read_only,
 * allow (repeated), env (repeated), id, name, grace.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/context.h"
#include "lib/util/socket.h"
#include "lib/image/image.h"
#include "lib/provider/provider.h"

struct drive {
    struct bh_ctx ctx;
    struct spec spec;
    struct provider_box box;
    const struct provider *provider;
    int grace_ms;
};

static void set_text(char **field, const char *value)
{
    free(*field);
    *field = strdup(value);
}

static int set_option(struct drive *d, const char *key, const char *value)
{
    struct {
        const char *key;
        char **field;
        unsigned asked; /* enum spec_asked */
    } texts[] = {{"image", &d->spec.image, SPEC_ASKED_IMAGE},
                 {"image_dir", &d->spec.image_dir, 0},
                 {"runtime", &d->spec.runtime, SPEC_ASKED_RUNTIME},
                 {"network", &d->spec.network, SPEC_ASKED_NETWORK},
                 {"privilege", &d->spec.privilege, SPEC_ASKED_PRIVILEGE},
                 {"dest", &d->spec.dest, SPEC_ASKED_DEST},
                 {"pool", &d->spec.pool, SPEC_ASKED_POOL}};
    uint64_t n = 0;

    for (size_t i = 0; i < N_ELEMENTS(texts); i++)
        if (str_eq(texts[i].key, key)) {
            set_text(texts[i].field, value);
            d->spec.asked |= texts[i].asked;
            return 0;
        }
    if (str_eq(key, "provider")) {
        set_text(&d->spec.provider, value);
        d->provider = provider_find(value);
        return d->provider ? 0 : -1;
    }
    if (str_eq(key, "allow"))
        return strv_push(&d->spec.allow_missing, value, NULL);
    if (str_eq(key, "env"))
        return strv_push(&d->spec.env, value, NULL);
    if (str_eq(key, "id"))
        d->box.id = value;
    else if (str_eq(key, "name"))
        d->box.name = value;
    else if (str_parse_u64(value, 0, UINT32_MAX, &n, NULL) < 0)
        return -1;
    else if (str_eq(key, "memory"))
        d->spec.memory_bytes = n;
    else if (str_eq(key, "cpu"))
        d->spec.cpu_millis = (uint32_t)n;
    else if (str_eq(key, "disk"))
        d->spec.disk_bytes = n;
    else if (str_eq(key, "read_only"))
        d->spec.read_only = n;
    else if (str_eq(key, "pids")) {
        d->spec.pids = (uint32_t)n;
        d->spec.asked |= SPEC_ASKED_PIDS;
    } else if (str_eq(key, "grace"))
        d->grace_ms = (int)n;
    else
        return -1;
    return 0;
}

static void defaults(struct drive *d, char *state_dir, char *agent)
{
    *d = (struct drive){.box = {.id = "0123456789abcdef", .name = "testbox"},
                        .provider = provider_at(0),
                        .grace_ms = 2000};
    d->ctx.state_dir = state_dir;
    d->ctx.cancel_fd = -1;
    if (asprintf(&d->ctx.cache_dir, "%s/cache", state_dir) < 0)
        abort();
    d->ctx.agent_path = agent;
    d->ctx.docker_host = getenv("DOCKER_HOST");
    d->ctx.kubeconfig = getenv("KUBE_PLACE");
    d->ctx.kube_namespace = getenv("KUBE_NAMESPACE");
    d->spec = (struct spec){.provider = strdup(provider_at(0)->name),
                            .image = strdup("test"),
                            .image_dir = strdup(""),
                            .runtime = strdup(""),
                            .engine = strdup(""),
                            .pool = strdup(""),
                            .agent = strdup("none"),
                            .dest = strdup("/workspace"),
                            .network = strdup("none"),
                            .privilege = strdup("sudo"),
                            .on_timeout = strdup("stop"),
                            .pids = SPEC_PIDS};
}

/* Each call is a process of its own, and none but prepare() asks check(). */
static void set_engine(struct drive *d)
{
    char text[4096];

    if (str_eq(d->spec.provider, "docker") && getenv("DOCKER_HOST"))
        set_text(&d->spec.engine, getenv("DOCKER_HOST"));
    if (!str_eq(d->spec.provider, "kubernetes"))
        return;
    (void)snprintf(text, sizeof(text), "%s%cnamespace=%s", d->ctx.kubeconfig,
                   strchr(d->ctx.kubeconfig, '?') ? '&' : '?', d->ctx.kube_namespace);
    set_text(&d->spec.engine, text);
}

static int cmd_probe(struct drive *d, struct err *e)
{
    struct provider_facts facts;
    int r = d->provider->probe(&d->ctx, d->spec.runtime, &facts, e);

    if (r == 0)
        (void)printf("%s %s %s\n", facts.usable ? "usable" : "unusable", facts.runtime, facts.why);
    return r;
}

static int cmd_prepare(struct drive *d, struct err *e)
{
    struct image_facts facts = {.user = "user"};
    char path[4096], *dir = NULL;
    int r = provider_check(d->provider, &d->ctx, &d->spec, e);

    if (r == 0 && d->provider->image != PROVIDER_IMAGE_NONE && !*d->spec.pool &&
        !str_eq(d->spec.image, SPEC_IMAGE_HOST)) {
        r = image_resolve(&d->ctx, d->spec.image_dir, &dir, e);
        if (r == 0)
            r = image_facts(dir, &facts, e);
        if (r < 0)
            return r;
        set_text(&d->spec.image_dir, dir);
        free(dir);
    }
    d->box.user = facts.user;
    if (r == 0)
        r = io_mkdir_p(d->box.dir, 0700, e);
    (void)snprintf(path, sizeof(path), "%s/token", d->box.dir);
    if (r == 0)
        r = io_write_file(AT_FDCWD, path, "secret-token", 12, 0600, false, e);
    return r < 0 ? r : d->provider->prepare(&d->box, e);
}

static int cmd_start(struct drive *d, struct err *e)
{
    struct provider_run run;
    int r = d->provider->start(&d->box, &run, e);

    if (r == 0)
        (void)printf("%d\n", (int)run.pid);
    return r;
}

static int cmd_find(struct drive *d, struct err *e)
{
    struct provider_run run;
    int r = d->provider->find(&d->box, &run, e);

    if (r < 0)
        return r;
    (void)puts(r ? "running" : "stopped");
    return 0;
}

static int cmd_pid(struct drive *d, struct err *e)
{
    struct provider_run run;
    int r = d->provider->find(&d->box, &run, e);

    if (r > 0)
        (void)printf("%d\n", (int)run.pid);
    return r == 0 ? err_set(e, ERR_PRECONDITION, "the box does not run") : r;
}

/* Is the answer to GET /v1/health 200, by the way that the monitor takes? */
static int cmd_health(struct drive *d, struct err *e)
{
    static const char request[] = "GET /v1/health HTTP/1.1\r\nHost: box\r\nConnection: close\r\n"
                                  "Authorization: Bearer secret-token\r\n\r\n";
    char socket[4096], answer[16] = "";
    int fd = -1, r;

    (void)snprintf(socket, sizeof(socket), "%s/run/agent.sock", d->box.dir);
    r = d->provider->dial ? d->provider->dial(&d->box, &fd, e)
                          : socket_connect(socket, 1000, &fd, e);
    if (r < 0)
        return r;
    r = io_write_all(fd, request, strlen(request), e);
    if (r == 0 && (recv(fd, answer, 12, MSG_WAITALL) != 12 || strncmp(answer + 9, "20", 2) != 0))
        r = err_set(e, ERR_UNAVAILABLE, "the answer is '%s'", answer);
    (void)close(fd);
    return r;
}

static int cmd_inspect(struct drive *d, struct err *e)
{
    json_t *obj = NULL;
    int r = d->provider->inspect(&d->box, &obj, e);

    if (r == 0)
        (void)json_dumpf(obj, stdout, JSON_INDENT(1));
    json_decref(obj);
    return r;
}

/* One word a line: what the provider says that it can do; a pool's template decides some of it. */
static void cmd_claims(const struct drive *d)
{
    const struct provider *p = d->provider;
    bool is_pool = *d->spec.pool;
    const struct {
        const char *word;
        bool is_claimed;
    } claims[] = {
        {"isolates", p->isolates},
        {"snapshots", p->has_snapshots},
        {"runtimes", !is_pool && p->has_runtimes},
        {"image", !is_pool && p->image != PROVIDER_IMAGE_NONE},
        {"host_image", !is_pool && p->has_host_image},
        {"read_only", !is_pool && p->has_read_only},
        {"privileges", !is_pool && p->has_privileges},
        {"allow_missing", p->has_allow_missing},
        {"shares_machine", p->shares_machine},
        {"publishes_ports", p->publishes_ports},
        {"network=user", !is_pool && (p->networks & PROVIDER_NETWORK_USER)},
        {"network=none", !is_pool && (p->networks & PROVIDER_NETWORK_NONE)},
        {"network=host", !is_pool && (p->networks & PROVIDER_NETWORK_HOST)},
        {"limit=cpus", !is_pool && (p->limits & PROVIDER_LIMIT_CPUS)},
        {"limit=memory", !is_pool && (p->limits & PROVIDER_LIMIT_MEMORY)},
        {"limit=disk", !is_pool && (p->limits & PROVIDER_LIMIT_DISK)},
        {"limit=pids", !is_pool && (p->limits & PROVIDER_LIMIT_PIDS)},
        {"pause", p->pauses & PROVIDER_PAUSE_FREEZE},
        {"dial", p->dial != NULL},
        {"exit", p->exit != PROVIDER_EXIT_UNKNOWN},
    };

    for (size_t i = 0; i < N_ELEMENTS(claims); i++)
        if (claims[i].is_claimed)
            (void)puts(claims[i].word);
}

static bool is_kept(void *arg, const char *id)
{
    return str_eq(arg, id);
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    (void)puts(line);
}

static int run(struct drive *d, const char *verb, struct err *e)
{
    if (str_eq(verb, "probe"))
        return cmd_probe(d, e);
    if (str_eq(verb, "prepare"))
        return cmd_prepare(d, e);
    if (str_eq(verb, "start"))
        return cmd_start(d, e);
    if (str_eq(verb, "stop"))
        return d->provider->stop(&d->box, d->grace_ms, e);
    if (str_eq(verb, "destroy"))
        return d->provider->destroy(&d->box, e);
    if (str_eq(verb, "health"))
        return cmd_health(d, e);
    if (str_eq(verb, "inspect"))
        return cmd_inspect(d, e);
    if (str_eq(verb, "find"))
        return cmd_find(d, e);
    if (str_eq(verb, "pid"))
        return cmd_pid(d, e);
    if (str_eq(verb, "sweep")) /* all but the box called name= */
        return d->provider->sweep(&d->ctx, is_kept, (void *)d->box.name, print_line, NULL, e);
    return err_set(e, ERR_INVALID, "unknown verb '%s'", verb);
}

int main(int argc, char **argv)
{
    struct drive d;
    struct err e = {0};
    char *dir;
    int r;

    if (argc < 4)
        return 2;
    defaults(&d, argv[1], argv[2]);
    for (int i = 4; i < argc; i++) {
        char *eq = strchr(argv[i], '=');

        if (!eq)
            return 2;
        *eq = '\0';
        if (set_option(&d, argv[i], eq + 1) < 0)
            return 2;
    }
    set_engine(&d);
    if (asprintf(&dir, "%s/boxes/%s", argv[1], d.box.id) < 0)
        return 2;
    d.box.dir = dir;
    d.box.ctx = &d.ctx;
    d.box.spec = &d.spec;
    if (str_eq(argv[3], "claims")) {
        cmd_claims(&d);
        return 0;
    }
    r = run(&d, argv[3], &e);
    if (r < 0)
        (void)fprintf(stderr, "%s: %s%s%s\n", err_wire_name(r), e.field, e.field[0] ? ": " : "",
                      e.message);
    return r < 0 ? 1 : 0;
}
