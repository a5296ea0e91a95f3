#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/docker_host.h"
#include "cli/kube_place.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/context.h"
#include "lib/box/audit.h"

/* In the order of the overview; the commands of a group are adjacent. */
static const struct cli_command *const cli_commands[] = {
    &cmd_up,      &cmd_ls,     &cmd_status,   &cmd_events,    &cmd_start,    &cmd_stop,
    &cmd_pause,   &cmd_resume, &cmd_snapshot, &cmd_snapshots, &cmd_restore,  &cmd_fork,
    &cmd_rm,      &cmd_keep,   &cmd_exec,     &cmd_shell,     &cmd_ps,       &cmd_attach,
    &cmd_wait,    &cmd_kill,   &cmd_ports,    &cmd_wait_port, &cmd_activity, &cmd_hold,
    &cmd_release, &cmd_ready,  &cmd_prompt,   &cmd_url,       &cmd_logs,     &cmd_put,
    &cmd_get,     &cmd_cat,    &cmd_edit,     &cmd_watch,     &cmd_sync,     &cmd_glob,
    &cmd_grep,    &cmd_daemon, &cmd_token,    &cmd_quota,     &cmd_audit,    &cmd_providers,
    &cmd_doctor,  &cmd_gc,     &cmd_image,    &cmd_config,    &cmd_help,     &cmd_completion,
    &cmd_version,
};

const struct cli_command *cli_command_at(size_t i)
{
    return i < N_ELEMENTS(cli_commands) ? cli_commands[i] : NULL;
}

const struct cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(cli_commands); i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}

char *cli_user_path(const char *xdg, const char *below_home, const char *end)
{
    const char *base = getenv(xdg);
    const char *home = getenv("HOME");
    char *path = NULL;
    int n;

    if (base && path_is_absolute(base))
        n = asprintf(&path, "%s/bellhop%s", base, end);
    else
        n = asprintf(&path, "%s/%s/bellhop%s", home && *home ? home : "/root", below_home, end);
    return n < 0 ? NULL : path;
}

static char *default_state_dir(void)
{
    return cli_user_path("XDG_STATE_HOME", ".local/state", "");
}

static char *default_cache_dir(void)
{
    return cli_user_path("XDG_CACHE_HOME", ".cache", "");
}

json_t *cli_setting_default(const char *name)
{
    _cleanup_free_ char *dir = strcmp(name, "state-dir") == 0   ? default_state_dir()
                               : strcmp(name, "cache-dir") == 0 ? default_cache_dir()
                                                                : NULL;
    if (strcmp(name, "answer-timeout") == 0)
        return json_string("30s");
    if (strcmp(name, "provider-timeout") == 0)
        return json_string("5m");
    if (strcmp(name, "records-for") == 0)
        return json_string("30d");
    return dir ? json_string(dir) : NULL;
}

#define TOKEN_BYTES 4096

/* The token of a file that only its owner reads, or of the environment: never of the command line, which
 * every process sees. */
static int read_token(const struct cli *c, char **ret, struct err *e)
{
    const char *set = getenv("BELLHOP_TOKEN");
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r;

    if (!c->token_file) {
        *ret = set && *set ? strdup(set) : NULL;
        return set && *set && !*ret ? err_oom(e) : 0;
    }
    r = io_read_file(AT_FDCWD, c->token_file, TOKEN_BYTES, &text, &len, e);
    if (r < 0)
        return err_at(e, err_wrap(e, r, "token-file"), "token-file");
    text[strcspn(text, "\r\n")] = '\0';
    if (!*text)
        return err_field(e, ERR_INVALID, "token-file", "token-file: '%s' is empty", c->token_file);
    *ret = TAKE(text);
    return 0;
}

static bool names_daemon(const struct cli *c)
{
    return c->daemon && !str_eq(c->daemon, "none") && !str_eq(c->daemon, "auto");
}

/* A command that a daemon has no way for. With "auto" it is done here, as without a daemon. */
static int check_daemon(struct cli *c, struct err *e)
{
    if (c->command->flags & CLI_AT_DAEMON)
        return 0;
    if (names_daemon(c) && !(c->command->flags & CLI_HERE))
        return err_field(
            e, ERR_UNIMPLEMENTED, "daemon",
            "'bellhop %s' cannot be done through a daemon: give '--daemon none' on its "
            "machine",
            c->command->name);
    c->daemon = "none";
    return 0;
}

static int open_context(struct cli *c, const void *args, struct bh_error *err)
{
    _cleanup_free_ char *token = NULL;
    _cleanup_free_ char *state = default_state_dir();
    _cleanup_free_ char *cache = default_cache_dir();
    _cleanup_free_ char *docker_host = NULL, *kubeconfig = NULL;
    const struct cli_settings *s = &c->settings;
    char actor[64];
    struct err e = {0}, warning = {0};
    int r;

    c->opts.size = sizeof(c->opts);
    c->opts.answer_timeout_ms = s->answer_timeout_ms;
    c->opts.provider_timeout_ms = s->provider_timeout_ms;
    c->opts.records_for_ms = s->records_for_ms;
    (void)snprintf(actor, sizeof(actor), "bellhop %s", c->command->name);
    c->opts.actor = actor;
    c->opts.state_dir = s->state_dir ? s->state_dir : state;
    c->opts.cache_dir = s->cache_dir ? s->cache_dir : cache;
    c->opts.agent_path = s->agent_path;
    c->opts.monitor_path = s->monitor_path;
    c->opts.recipe_dir = s->recipe_dir;
    c->opts.image_dir = s->image_dir;
    c->opts.template_dir = s->template_dir;
    c->opts.image_cache_dir = s->image_cache_dir;
    c->opts.npm_registry = s->npm_registry;
    c->opts.no_resume = c->no_resume;
    c->opts.limits = &c->limits.values;
    c->opts.host_env = (const char *const *)environ;
    c->opts.daemon_ca = c->daemon_ca;
    r = docker_host_resolve(s->docker_host, &docker_host, &warning, &e);
    if (warning.code && !names_daemon(c))
        cli_warn(c, "no context of Docker's is used: %s", warning.message);
    c->opts.docker_host = docker_host;
    if (r == 0)
        r = kube_place_resolve(s->kubeconfig, &kubeconfig, &e);
    c->opts.kubeconfig = kubeconfig;
    c->opts.kube_context = s->kube_context;
    c->opts.kube_namespace = s->kube_namespace;
    c->opts.kube_registry = s->kube_registry;
    if (r == 0)
        r = check_daemon(c, &e);
    c->opts.daemon = c->daemon;
    if (r == 0 && names_daemon(c))
        r = read_token(c, &token, &e);
    c->opts.daemon_token = token;
    if (r == 0)
        r = cli_debug_start(c, &e);
    if (r < 0)
        return cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message);
    c->opts.progress = cli_progress;
    c->opts.progress_arg = c;
    if (c->command->is_storeless && c->command->is_storeless(args))
        r = ctx_fail(err, ctx_new(&c->opts, &c->ctx, &e), &e);
    else
        r = bh_open(&c->opts, &c->ctx, err);
    if (r == 0)
        bh_get_options(c->ctx, &c->opts); /* with every path filled in, for further contexts */
    return r;
}

/* Errors of parsing are printed like those of the library. */
static int usage_error(struct cli *c, int r, const struct err *e)
{
    struct bh_error err = {0};

    (void)cli_fail(&err, (enum bh_code) - r, e->field, "%s", e->message);
    cli_print_error(c, &err);
    return EXIT_CLI_USAGE;
}

static bool wants_help(char **argv, const struct cli_command *cmd)
{
    for (; *argv && strcmp(*argv, "--") != 0; argv++) {
        if (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0)
            return true;
        if (cmd->flags & CLI_STOP_AT_OPERAND && (*argv)[0] != '-')
            return false; /* the --help of 'exec BOX CMD --help' belongs to CMD */
    }
    return false;
}

/* Reads the configuration files, and fills in what the command line did not give. */
static int read_config(struct cli *c, void *args, struct bh_error *err)
{
    struct err e = {0};
    int r = cli_config_read(&c->config, &e);

    if (r == 0)
        r = cli_config_check(c->config, &e);
    if (r == 0)
        r = cli_config_apply(c, args, &e);
    return r < 0 ? cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message) : 0;
}

/* ---- the record of calls ---- */

#define WORD_BYTES 200

/* The verbs of 'image', 'token' and the like that change nothing. */
static bool is_reading_verb(const struct cli_command *cmd, const char *verb)
{
    static const char *const verbs[] = {"inspect", "ls", "test", "verify"};

    for (size_t i = 0; i < N_ELEMENTS(verbs); i++)
        if (!(cmd->flags & CLI_TAKES_BOX) && str_eq(verb, verbs[i]))
            return true;
    return false;
}

/* "rm api web". Without the words of commands that do not take names alone: they may have secrets. */
static char *new_target(const struct cli *c, char *const *operands)
{
    bool all_are_names = strcmp(c->command->operands, "NAME...") == 0;
    char *const made[] = {(char *)c->box, NULL};
    char *text = strdup(c->command->name);

    if (*c->box)
        operands = made;
    for (; text && operands && *operands; operands++) {
        _cleanup_free_ char *before = text;
        size_t len = 0;
        _cleanup_free_ char *word = str_escape(*operands, strlen(*operands), "", &len);

        if (!word ||
            asprintf(&text, "%s %.*s", before,
                     (int)str_utf8_whole(word, len < WORD_BYTES ? len : WORD_BYTES), word) < 0)
            return NULL;
        if (!all_are_names || strlen(text) > AUDIT_TARGET_BYTES)
            break;
    }
    return text;
}

static void name_user(char *out, size_t n)
{
    const struct passwd *user = getpwuid(getuid());

    if (user && str_is_utf8(user->pw_name, strlen(user->pw_name)))
        (void)snprintf(out, n, "user %s", user->pw_name);
    else
        (void)snprintf(out, n, "user %u", (unsigned)getuid());
}

/* As the daemon's (audit.h); the status is the exit status. */
static int record_call(struct cli *c, char *const *operands, int status, int64_t took_ms,
                       struct err *e)
{
    _cleanup_free_ char *target = new_target(c, operands);
    _cleanup_json_ json_t *entry = NULL;
    struct audit *audit = NULL;
    char who[80];
    int r;

    name_user(who, sizeof(who));
    entry = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:I}", "time_ms",
                      (json_int_t)clock_real_ms(), "who", who, "token", "", "owner", "", "from",
                      "command", "verb", "bellhop", "target", target ? target : "", "status",
                      status, "took_ms", (json_int_t)took_ms);
    r = entry ? audit_open(c->opts.state_dir, &audit, e) : err_oom(e);
    if (r == 0)
        r = audit_append(audit, entry, e);
    (void)audit_close(audit);
    return r;
}

static void note_call(struct cli *c, char *const *operands, int status, int64_t took_ms)
{
    struct err e = {0};

    /* A daemon elsewhere has a record of its own. That of our own daemon has the calls, not the command. */
    if (c->ctx && (c->ctx->store || c->ctx->daemon_is_own) && c->command->flags & CLI_CHANGES &&
        !(operands && is_reading_verb(c->command, operands[0])) &&
        record_call(c, operands, status, took_ms, &e) < 0)
        cli_warn(c, "this call is not in the audit record: %s", e.message);
}

static int run_command(struct cli *c, const struct cli_command *cmd, char **argv)
{
    struct bh_error failed = {0};
    struct err e = {0};
    _cleanup_strv_ char **operands = NULL;
    void *args = calloc(1, cmd->args_bytes ? cmd->args_bytes : 1);
    int64_t begun_ms = clock_mono_ms();
    int r;

    c->command = cmd;
    /* Before parsing, so that its errors are JSON too. */
    for (char **a = argv; *a && strcmp(*a, "--") != 0; a++)
        c->json |= strcmp(*a, "--json") == 0 && !(cmd->flags & CLI_STOP_AT_OPERAND);
    r = args ? cli_parse(c, cmd, argv, args, &operands, &e) : err_oom(&e);
    if (r < 0) {
        cli_args_done(cmd, args);
        return usage_error(c, r, &e);
    }
    r = cmd->flags & CLI_NO_CONTEXT ? 0 : read_config(c, args, &failed);
    cli_output_init(c);
    if (r == 0 && !(cmd->flags & CLI_NO_CONTEXT)) {
        r = cli_cancel_init(c, &e);
        if (r == 0)
            r = open_context(c, args, &failed);
    }
    if (r == 0)
        r = cmd->run(c, args, operands, &failed);
    note_call(c, operands, r < 0 ? cli_exit_for(&failed) : r, clock_mono_ms() - begun_ms);
    if (r < 0) {
        cli_config_name_origin(c, &failed);
        cli_print_error(c, &failed);
        r = cli_exit_for(&failed);
    }
    cli_progress_clear(c);
    (void)bh_close(c->ctx);
    cli_args_done(cmd, args);
    cli_limits_done(&c->limits);
    c->config = cli_config_free(c->config);
    return r;
}

/*
 * A closed one would become the next file that is opened, and be read or written as the caller's. Input is empty then,
 * a result that cannot be written is told, and messages are dropped.
 */
static void open_standard_streams(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", modes[fd]); /* the lowest free one: this */
}

int main(int argc, char **argv)
{
    struct cli c = {.program = "bellhop", .opts.cancel_fd = -1};
    const struct cli_command *cmd;
    struct err e = {0};

    (void)argc;
    open_standard_streams();
    c.tty_out = isatty(STDOUT_FILENO) == 1;
    c.tty_err = isatty(STDERR_FILENO) == 1;
    cli_output_init(&c);
    if (!argv[1]) {
        cli_print_overview(stderr);
        return EXIT_CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_print_overview(stdout);
        return EXIT_CLI_OK;
    }
    argv++;
    if (strcmp(*argv, "--version") != 0) {
        int r = cli_parse_common(&c, &argv, &e);

        if (r < 0)
            return usage_error(&c, r, &e);
        if (!*argv) {
            cli_print_overview(stderr);
            return EXIT_CLI_USAGE;
        }
    }
    cmd = strcmp(*argv, "--version") == 0 ? &cmd_version : cli_find_command(*argv);
    if (!cmd) {
        (void)err_field(&e, ERR_INVALID, "command", "unknown command '%.100s'", *argv);
        (void)usage_error(&c, -ERR_INVALID, &e);
        if (!c.json)
            (void)fputs("Try 'bellhop help'.\n", stderr);
        return EXIT_CLI_USAGE;
    }
    if (wants_help(argv + 1, cmd)) {
        cli_print_help(stdout, cmd);
        return EXIT_CLI_OK;
    }
    return run_command(&c, cmd, argv + 1);
}
