/* daemon: runs bellhop-daemon in the place of this process; tells whether it runs; ends it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/context.h"
#include "lib/util/daemon_lock.h"

#define STOP_MS 30000
#define ANSWER_MS 5000
#define ARGV_MAX 128

struct args {
    const char *socket;
    char **listen;
    const char *tls_cert, *tls_key;
    char **domains;
    char **webhooks;
    const char *webhook_secret_file;
    const char *lease;
};

static const struct cli_option daemon_options[] = {
    CLI_OPT("socket", 0, CLI_STR, socket, "FILE",
            "unix socket; $XDG_RUNTIME_DIR/bellhop.sock, /run/bellhop/daemon.sock"),
    CLI_OPT("listen", 0, CLI_LIST, listen, "ADDR:PORT",
            "listen on TCP too, for requests with a token; repeatable"),
    CLI_OPT("tls-cert", 0, CLI_STR, tls_cert, "FILE", "certificates of TCP in PEM: serve TLS"),
    CLI_OPT("tls-key", 0, CLI_STR, tls_key, "FILE", "their key in PEM"),
    CLI_OPT("domain", 0, CLI_LIST, domains, "NAME",
            "PORT-ID.NAME leads to a port of a box, as PORT-ID.localhost"),
    CLI_OPT("webhook", 0, CLI_LIST, webhooks, "URL", "post each event to it; repeatable"),
    CLI_OPT("webhook-secret-file", 0, CLI_STR, webhook_secret_file, "FILE",
            "the key that signs what is posted"),
    CLI_OPT("lease", 0, CLI_STR, lease, "NAME",
            "in a pod: serve while it holds this Lease, else stand by"),
    {0},
};

static int fail_daemon(struct bh_error *err, int r, const struct err *e)
{
    return cli_fail(err, (enum bh_code) - r, e->field, "%s", e->message);
}

/* ---- start ---- */

static json_t *strings_json(const char *const *v)
{
    json_t *list = json_array();

    for (; v && *v; v++)
        (void)json_array_append_new(list, json_string(*v));
    return list;
}

/* The document for daemon/options.c. */
static json_t *options_json(const struct bh_options *o)
{
    static const struct bh_limits none = {0};
    const struct bh_limits *l = o->limits ? o->limits : &none;
    json_t *values = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s*}", "memory_bytes", (json_int_t)l->memory_bytes,
        "disk_bytes", (json_int_t)l->disk_bytes, "cpu_millis", (json_int_t)l->cpu_millis, "pids",
        (json_int_t)l->pids, "boxes", (json_int_t)l->boxes, "timeout_ms", (json_int_t)l->timeout_ms,
        "idle_ms", (json_int_t)l->idle_ms, "source", l->source);
    json_t *lists = json_object();
    json_t *lib = json_pack(
        "{s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:I, "
        "s:I, s:I}",
        "state_dir", o->state_dir, "cache_dir", o->cache_dir, "agent_path", o->agent_path,
        "monitor_path", o->monitor_path, "recipe_dir", o->recipe_dir, "image_dir", o->image_dir,
        "npm_registry", o->npm_registry, "template_dir", o->template_dir, "image_cache_dir",
        o->image_cache_dir, "docker_host", o->docker_host, "kubeconfig", o->kubeconfig,
        "kube_context", o->kube_context, "kube_namespace", o->kube_namespace, "kube_registry",
        o->kube_registry, "answer_timeout_ms", (json_int_t)o->answer_timeout_ms, "records_for_ms",
        (json_int_t)o->records_for_ms, "provider_timeout_ms", (json_int_t)o->provider_timeout_ms);

    /* An absent list allows everything; an empty one would allow nothing. */
    if (l->providers)
        (void)json_object_set_new(lists, "providers", strings_json(l->providers));
    if (l->networks)
        (void)json_object_set_new(lists, "networks", strings_json(l->networks));
    if (l->privileges)
        (void)json_object_set_new(lists, "privileges", strings_json(l->privileges));
    return json_pack("{s:o, s:{s:o, s:o}}", "options", lib, "limits", "values", values, "lists",
                     lists);
}

/* A descriptor that the daemon inherits. In a file of memory: options may have what others must not read. */
static int make_options_fd(const struct bh_options *o, int *ret, struct err *e)
{
    _cleanup_json_ json_t *doc = options_json(o);
    _cleanup_free_ char *text = NULL;
    _cleanup_close_ int fd = -1;
    size_t len = 0;
    int r = jx_dump(doc, &text, &len, e);

    if (r < 0)
        return r;
    fd = memfd_create("options", 0);
    if (fd < 0)
        return err_sys(e, errno, "memfd_create");
    r = io_write_all(fd, text, len, e);
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}

/* Its directory is made for root alone: users have theirs from the login manager. */
static int default_socket(const char *state_dir, char **ret, struct err *e)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int n;

    if (geteuid() == 0) {
        int r = io_mkdir_p("/run/bellhop", 0755, e);

        if (r < 0)
            return r;
        n = asprintf(ret, "/run/bellhop/daemon.sock");
    } else if (runtime && path_is_absolute(runtime)) {
        n = asprintf(ret, "%s/bellhop.sock", runtime);
    } else {
        n = asprintf(ret, "%s/daemon.sock", state_dir);
    }
    return n < 0 ? err_oom(e) : 0;
}

struct words {
    const char *v[ARGV_MAX];
    size_t n;
    bool is_too_long;
};

static void add_word(struct words *w, const char *option, const char *value)
{
    if (!value)
        return;
    w->is_too_long |= w->n + 3 > ARGV_MAX;
    if (w->is_too_long)
        return;
    w->v[w->n++] = option;
    w->v[w->n++] = value;
}

static void add_words(struct words *w, const char *option, char *const *values)
{
    for (; values && *values; values++)
        add_word(w, option, *values);
}

static int run_daemon(struct cli *c, const struct args *a, struct err *e)
{
    _cleanup_free_ char *program = NULL, *socket = NULL;
    char options_text[16], ready_text[16];
    struct words w = {.v = {"bellhop-daemon"}, .n = 1};
    int fd, ready_fd;
    int r = ctx_find_daemon(&program, e);

    if (r == 0 && !a->socket)
        r = default_socket(c->opts.state_dir, &socket, e);
    if (r == 0)
        r = make_options_fd(&c->opts, &fd, e);
    if (r < 0)
        return r;
    (void)snprintf(options_text, sizeof(options_text), "%d", fd);
    add_word(&w, "--options-fd", options_text);
    add_word(&w, "--socket", a->socket ? a->socket : socket);
    add_words(&w, "--listen", a->listen);
    add_word(&w, "--tls-cert", a->tls_cert);
    add_word(&w, "--tls-key", a->tls_key);
    add_words(&w, "--domain", a->domains);
    add_words(&w, "--webhook", a->webhooks);
    add_word(&w, "--webhook-secret-file", a->webhook_secret_file);
    add_word(&w, "--lease", a->lease);
    if (c->json) {
        ready_fd = dup(STDOUT_FILENO); /* the daemon closes it when it is ready */
        (void)snprintf(ready_text, sizeof(ready_text), "%d", ready_fd);
        add_word(&w, "--ready-fd", ready_text);
    }
    if (w.is_too_long)
        return err_set(e, ERR_INVALID, "too many options: %d words at most", ARGV_MAX);
    if (!c->json && !c->quiet)
        w.v[w.n++] = "--say-address";
    (void)fflush(stdout);
    (void)execv(program, (char *const *)w.v);
    return err_sys(e, errno, "run '%s'", program);
}

static int daemon_start(struct cli *c, const struct args *a, struct bh_error *err)
{
    json_t *facts = NULL;
    struct err e = {0};
    int r = a->lease ? 0 : daemon_lock_read(c->opts.state_dir, &facts, &e);

    if (r == 0 && facts)
        r = err_field(
            &e, ERR_EXISTS, "state-dir", "a daemon (pid %lld) serves the boxes of '%s' already",
            (long long)json_integer_value(json_object_get(facts, "pid")), c->opts.state_dir);
    json_decref(facts);
    if (r == 0)
        r = run_daemon(c, a, &e);
    return fail_daemon(err, r, &e);
}

/* ---- status, stop ---- */

static int count_box(void *arg, struct bh_box *box)
{
    (void)box;
    ++*(json_int_t *)arg;
    return 0;
}

static void print_daemon_status(const json_t *facts, bool answers, json_int_t n_boxes)
{
    const json_t *address;
    size_t i;

    (void)printf("%s, pid %lld, version %s\n", answers ? "running" : "running, but does not answer",
                 (long long)json_integer_value(json_object_get(facts, "pid")),
                 cli_text(json_string_value(json_object_get(facts, "version"))));
    (void)printf("socket: %s\n", cli_text(json_string_value(json_object_get(facts, "socket"))));
    json_array_foreach (json_object_get(facts, "tcp"), i, address) {
        (void)printf("address: %s%s\n", cli_text(json_string_value(address)),
                     json_is_true(json_object_get(facts, "tls")) ? " (TLS)" : "");
    }
    (void)printf("boxes: %lld\n", (long long)n_boxes);
}

static int daemon_status(struct cli *c, const struct args *a, struct bh_error *err)
{
    _cleanup_json_ json_t *facts = NULL;
    struct err e = {0};
    json_int_t n_boxes = 0;
    bool answers;
    int r = daemon_lock_read(c->opts.state_dir, &facts, &e);

    (void)a;
    if (r < 0)
        return fail_daemon(err, r, &e);
    r = bh_list(c->ctx, count_box, &n_boxes, err);
    if (r < 0)
        return r;
    answers =
        facts && daemon_answers(json_string_value(json_object_get(facts, "socket")), ANSWER_MS);
    if (c->json) {
        json_t *doc = facts ? json_incref(facts) : json_object();

        (void)json_object_set_new(doc, "running", json_boolean(facts));
        (void)json_object_set_new(doc, "answers", json_boolean(answers));
        (void)json_object_set_new(doc, "boxes", json_integer(n_boxes));
        (void)cli_print_json_take(doc);
    } else if (!facts) {
        (void)printf("not running\n");
    } else {
        print_daemon_status(facts, answers, n_boxes);
    }
    return answers ? EXIT_CLI_OK : EXIT_CLI_UNAVAILABLE;
}

/* The lock tells that the pid is the daemon's: it was read again after the process was opened. */
static int open_daemon(struct cli *c, int *ret_fd, struct err *e)
{
    json_t *facts = NULL;
    pid_t pid;
    int r = daemon_lock_read(c->opts.state_dir, &facts, e);

    if (r < 0)
        return r;
    if (!facts)
        return err_set(e, ERR_NOT_FOUND, "no daemon serves the boxes of '%s'", c->opts.state_dir);
    pid = (pid_t)json_integer_value(json_object_get(facts, "pid"));
    json_decref(facts);
    if (!pid)
        return err_set(e, ERR_UNAVAILABLE, "the daemon is starting");
    *ret_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (*ret_fd < 0 && errno != ESRCH)
        return err_sys(e, errno, "open process %d", (int)pid);
    facts = NULL;
    r = daemon_lock_read(c->opts.state_dir, &facts, e);
    if (r == 0 && json_integer_value(json_object_get(facts, "pid")) != pid) {
        fd_close(*ret_fd); /* it has ended just now */
        *ret_fd = -1;
    }
    json_decref(facts);
    return r;
}

static int daemon_stop(struct cli *c, const struct args *a, struct bh_error *err)
{
    _cleanup_close_ int fd = -1;
    struct err e = {0};
    int r = open_daemon(c, &fd, &e);

    (void)a;
    if (r < 0)
        return fail_daemon(err, r, &e);
    if (fd >= 0) {
        struct pollfd ended[] = {{.fd = fd, .events = POLLIN},
                                 {.fd = c->opts.cancel_fd, .events = POLLIN}};

        if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) < 0 && errno != ESRCH)
            return fail_daemon(err, err_sys(&e, errno, "end the daemon"), &e);
        if (poll(ended, 2, STOP_MS) < 0 || !ended[0].revents)
            return cli_fail(err, ended[1].revents ? BH_CANCELED : BH_DEADLINE_EXCEEDED, "",
                            "the daemon has not ended yet");
    }
    if (c->json)
        return cli_print_json_take(json_pack("{s:b}", "running", 0));
    if (!c->quiet)
        (void)puts("stopped");
    return EXIT_CLI_OK;
}

/* A standby leaves the store alone: it may be on a volume that another machine writes to. */
static bool is_daemon_storeless(const void *args)
{
    return ((const struct args *)args)->lease != NULL;
}

static int run_daemon_verb(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const struct {
        const char *name;
        int (*run)(struct cli *c, const struct args *a, struct bh_error *err);
    } verbs[] = {{"start", daemon_start}, {"status", daemon_status}, {"stop", daemon_stop}};

    if (!operands[0])
        return daemon_start(c, args, err);
    for (size_t i = 0; i < N_ELEMENTS(verbs); i++)
        if (str_eq(verbs[i].name, operands[0]))
            return verbs[i].run(c, args, err);
    return cli_fail(err, BH_INVALID_ARGUMENT, "operands",
                    "there is no 'daemon %.40s': start, status or stop", operands[0]);
}

const struct cli_command cmd_daemon = {
    .name = "daemon",
    .group = "Machine",
    .operands = "[start|status|stop]",
    .summary = "serve the boxes over HTTP: REST, events, a gateway to their ports",
    .details =
        "The daemon runs in the foreground until ^C, TERM or 'daemon stop', and uses the boxes of "
        "this\n"
        "state directory side by side with the commands. A state directory has one daemon. The "
        "unix\n"
        "socket takes requests of its owner and of root; requests over TCP need a token (see "
        "'token').\n"
        "With --json it prints its addresses as one document when it is ready.\n\n"
        "With --lease, in a pod, it serves while it holds that Lease of the cluster, and else "
        "stands "
        "by.\n"
        "All that it has started ends before another can hold the Lease.\n\n"
        "'daemon status' ends with 0 if the daemon answers, and else with 5.",
    .examples = "  bellhop daemon &\n"
                "  bellhop daemon --listen 127.0.0.1:7070\n"
                "  bellhop daemon status\n"
                "  bellhop daemon stop\n",
    .options = daemon_options,
    .args_bytes = sizeof(struct args),
    .max_operands = 1,
    .is_storeless = is_daemon_storeless,
    .run = run_daemon_verb,
};
