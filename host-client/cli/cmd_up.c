#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/provider.h"

#define NEXT_COLUMN 40

struct args {
    const char *name, *key, *provider, *image, *runtime, *agent, *agent_config, *network,
        *privilege;
    const char *pool, *on_timeout, *on_idle, *on_gone, *dest, *git, *repo, *git_token_file,
        *env_file, *from;
    int64_t timeout_ms, idle_ms, start_timeout_ms;
    uint32_t cpu_millis, pids;
    uint64_t memory_bytes, disk_bytes;
    uint16_t port;
    bool with_secrets, empty, read_only;
    char **env, **secrets, **labels, **allow_missing;
};

static const char *const network_modes[] = {"user", "none", "host", NULL};
static const char *const privilege_modes[] = {"sudo", "strict", NULL};
static const char *const agent_names[] = {"opencode", "pi", "none", NULL};
static const char *const git_modes[] = {"full", "shallow", "none", NULL};
static const char *const timeout_actions[] = {"stop", "snapshot", "rm", NULL};
static const char *const idle_actions[] = {"pause", "stop", "rm", "keep", NULL};
static const char *const gone_actions[] = {"destroy", "recreate", NULL};
static const char *const runtime_names[] = {"runc", "crun", "runsc", "auto", NULL};

static const struct cli_option up_options[] = {
    CLI_OPT("name", 'n', CLI_STR, name, "NAME",
            "the box's name (default: the name of the directory or repository)"),
    CLI_OPT("key", 'k', CLI_STR, key, "STRING",
            "the box of this string, such as the id of a conversation"),
    CLI_OPT_VALUES("agent", 'a', CLI_STR, agent, "AGENT",
                   "opencode, pi, none, NAME@VERSION or a recipe file", agent_names),
    CLI_OPT("agent-config", 0, CLI_STR, agent_config, "DIR", "the agent's own configuration files"),
    CLI_OPT_VALUES("provider", 'p', CLI_STR, provider, "P",
                   "oci (default), docker (or Podman), kubernetes, process (no isolation)",
                   provider_names),
    {"image", 'i', CLI_STR, offsetof(struct args, image), "IMAGE",
     "NAME[:VERSION], an e2b.toml, or host (default: $BELLHOP_IMAGE or slim)", NULL,
     "BELLHOP_IMAGE"},
    CLI_OPT_VALUES("runtime", 0, CLI_STR, runtime, "R",
                   "oci: runc, crun, runsc; docker: its names, auto; kubernetes: a class",
                   runtime_names),
    CLI_OPT("pool", 0, CLI_STR, pool, "NAME", "kubernetes: take the box from this SandboxWarmPool"),
    CLI_OPT("timeout", 't', CLI_DURATION, timeout_ms, "TIME",
            "time to live, which use extends (default: 10m)"),
    CLI_OPT_VALUES("on-timeout", 0, CLI_STR, on_timeout, "WHAT",
                   "stop (default: keep the disk), snapshot (before the stop) or rm",
                   timeout_actions),
    CLI_OPT("idle", 0, CLI_DURATION, idle_ms, "TIME",
            "idle time: how long the box may be unused (default: 10m)"),
    CLI_OPT_VALUES("on-idle", 0, CLI_STR, on_idle, "WHAT",
                   "pause (default where it works), stop, rm or keep: nothing", idle_actions),
    CLI_OPT_VALUES("on-gone", 0, CLI_STR, on_gone, "WHAT",
                   "if a command finds the box gone: destroy (default) or recreate it",
                   gone_actions),
    CLI_OPT_VALUES("network", 0, CLI_STR, network, "MODE", "user (default), none or host",
                   network_modes),
    CLI_OPT_VALUES("privilege", 0, CLI_STR, privilege, "MODE", "sudo (default) or strict",
                   privilege_modes),
    CLI_OPT("cpus", 0, CLI_CPUS, cpu_millis, "N",
            "limit in processors, such as 1.5 (default: all but one, or 4/5)"),
    CLI_OPT("memory", 'm', CLI_SIZE, memory_bytes, "SIZE",
            "memory limit, such as 2G (default: 80 % of the machine's)"),
    CLI_OPT("disk", 0, CLI_SIZE, disk_bytes, "SIZE",
            "disk limit (default: 80 % of the free space)"),
    CLI_OPT("pids", 0, CLI_U32, pids, "N", "limit in processes (default: 4096)"),
    CLI_OPT("read-only", 0, CLI_FLAG, read_only, NULL,
            "a root that cannot be written; /tmp, home and --dest are memory"),
    CLI_OPT("port", 0, CLI_U16, port, "PORT", "the agent's port in the box"),
    CLI_OPT("env", 'e', CLI_LIST, env, "K=V|K",
            "an environment variable; K alone passes on your value"),
    CLI_OPT("env-file", 0, CLI_STR, env_file, "FILE", "a file of K=V lines"),
    CLI_OPT("secret", 0, CLI_LIST, secrets, "K",
            "your variable K as the file /run/secrets/K, mode 0600, in the box"),
    CLI_OPT("label", 'l', CLI_LIST, labels, "K=V", "a label, which status and ls --json show"),
    CLI_OPT("dest", 0, CLI_STR, dest, "DIR",
            "the project's directory in the box (default: /workspace)"),
    CLI_OPT_VALUES("git", 0, CLI_STR, git, "MODE", "send .git: full (default), shallow, none",
                   git_modes),
    CLI_OPT("with-secrets", 0, CLI_FLAG, with_secrets, NULL,
            "upload untracked files that look like secrets too"),
    CLI_OPT("empty", 0, CLI_FLAG, empty, NULL, "upload nothing"),
    CLI_OPT("repo", 0, CLI_STR, repo, "URL",
            "clone this repository in the box instead of uploading"),
    CLI_OPT("from", 0, CLI_STR, from, "SNAPSHOT",
            "a box with this snapshot's content and its box's options"),
    CLI_OPT("git-token-file", 0, CLI_STR, git_token_file, "FILE", "the token for --repo"),
    CLI_OPT("allow-missing", 0, CLI_LIST, allow_missing, "PIECE",
            "oci: start even if this piece of isolation is missing (see status)"),
    CLI_OPT("start-timeout", 0, CLI_DURATION, start_timeout_ms, "TIME",
            "limit for the whole start, until the agent is healthy (default: 5m)"),
    {0},
};

/* With --from, the options that no flag gave are those of the snapshot's box, not of a file. */
static void keep_flags(const struct cli *c, struct args *a)
{
    static const size_t bytes[] = {
        [CLI_FLAG] = sizeof(bool),     [CLI_STR] = sizeof(char *),
        [CLI_LIST] = sizeof(char **),  [CLI_DURATION] = sizeof(int64_t),
        [CLI_SIZE] = sizeof(uint64_t), [CLI_U16] = sizeof(uint16_t),
        [CLI_CPUS] = sizeof(uint32_t), [CLI_U32] = sizeof(uint32_t),
    };

    for (const struct cli_option *o = up_options; o->name; o++)
        if (cli_source_of(c, o->name) != CLI_FROM_FLAG)
            memset((char *)a + o->offset, 0, bytes[o->type]);
}

/* For the library 0 is the default, which nobody means who writes 0. */
static int check_zeros(const struct cli *c, const struct args *a, struct bh_error *err)
{
    for (const struct cli_option *o = up_options; o->name; o++) {
        const char *at = (const char *)a + o->offset;
        bool is_zero = (o->type == CLI_DURATION && *(const int64_t *)at == 0) ||
                       (o->type == CLI_SIZE && *(const uint64_t *)at == 0) ||
                       (o->type == CLI_U32 && *(const uint32_t *)at == 0);

        if (is_zero && cli_source_of(c, o->name) != CLI_BUILT_IN)
            return cli_fail(err, BH_INVALID_ARGUMENT, o->name,
                            "--%s: must be more than 0; without the option it is the default",
                            o->name);
    }
    return 0;
}

/* The project is a directory, a repository or nothing: these options exclude each other. */
static int check_source(const struct args *a, const char *dir, struct bh_error *err)
{
    if (a->from && (dir || a->repo || a->empty))
        return cli_fail(err, BH_INVALID_ARGUMENT, "from",
                        "--from and a directory, --repo or --empty exclude each other");
    if (a->empty && dir)
        return cli_fail(err, BH_INVALID_ARGUMENT, "empty",
                        "--empty and a directory exclude each other");
    if (a->repo && dir)
        return cli_fail(err, BH_INVALID_ARGUMENT, "repo",
                        "--repo and a directory exclude each other");
    if (a->repo && a->empty)
        return cli_fail(err, BH_INVALID_ARGUMENT, "repo", "--repo and --empty exclude each other");
    return 0;
}

static int gather_variables(const struct args *a, char ***env, char ***secrets, struct err *e)
{
    int r = 0;

    if (a->env_file)
        r = cli_read_env_file(a->env_file, env, e);
    if (r == 0)
        r = cli_expand_env(a->env, "env", false, env, e);
    if (r == 0)
        r = cli_expand_env(a->secrets, "secret", true, secrets, e);
    return r;
}

/* The two texts as one word of a shell's command. free() it; NULL: no memory. */
static char *shell_word(const char *prefix, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789%+,-./:=@_";
    struct buf b;

    buf_init(&b, strlen(prefix) + 4 * strlen(text) + 2);
    if (!text[strspn(text, plain)]) {
        (void)buf_addf(&b, NULL, "%s%s", prefix, text);
        return buf_take(&b);
    }
    (void)buf_addf(&b, NULL, "'%s", prefix);
    for (; *text; text++)
        (void)(*text == '\'' ? buf_adds(&b, "'\\''", NULL) : buf_add(&b, text, 1, NULL));
    (void)buf_adds(&b, "'", NULL);
    return buf_take(&b);
}

/* Prints a suggested command and its purpose. */
__attribute__((format(printf, 2, 3))) static void print_next(const char *what, const char *fmt, ...)
{
    _cleanup_free_ char *command = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&command, fmt, ap);
    va_end(ap);
    if (n >= 0)
        (void)printf("  %-*s  %s\n", NEXT_COLUMN, command, what);
}

/* Prints the workdir, and the local directory or the repository that the project came from. */
static void print_project(const char *workdir, json_t *project)
{
    json_t *from = json_object_get(project, "path");

    if (json_is_string(from) && !*json_string_value(from))
        from = json_object_get(project, "remote");
    (void)printf("  project   %s", workdir);
    if (from && !(json_is_string(from) && !*json_string_value(from))) {
        (void)fputs(", of ", stdout);
        cli_print_bytes(from);
    }
    (void)fputc('\n', stdout);
}

static bool is_git_project(json_t *project)
{
    const char *path = json_string_value(json_object_get(project, "path"));
    _cleanup_free_ char *git = path && *path ? path_join(path, ".git") : NULL;

    return json_string_length(json_object_get(project, "remote")) ||
           (git && access(git, F_OK) == 0);
}

/* An agent without a URL reads and writes JSON lines (a recipe's mode "rpc"). */
static bool is_spoken_to_in_lines(const struct bh_box_info *i)
{
    return !*i->agent_url && strcmp(i->agent_name, "none") != 0;
}

static void print_summary(const struct cli *c, const struct bh_box_info *i)
{
    _cleanup_json_ json_t *info = json_loads(i->json, JSON_ALLOW_NUL, NULL);
    const char *id = json_string_value(json_object_get(json_object_get(info, "agent"), "exec_id"));
    const struct provider *p = provider_find(i->provider);
    _cleanup_free_ char *from = shell_word(":", i->workdir);

    (void)printf("\nThe box '%s' is ready.\n\n", i->name);
    print_project(i->workdir, json_object_get(info, "project"));
    if (*i->agent_url) {
        (void)printf("  agent     %s %s at %s\n", i->agent_name, cli_text(i->agent_version),
                     i->agent_url);
        if (*i->agent_password)
            (void)printf("  password  %s\n", i->agent_password);
    } else if (is_spoken_to_in_lines(i)) {
        (void)printf("  agent     %s %s, which reads and writes JSON lines%s\n", i->agent_name,
                     cli_text(i->agent_version),
                     strcmp(i->agent_name, "pi") == 0
                         ? ": {\"type\":\"prompt\",\"message\":\"hello\"}"
                         : "");
    }
    if (p && !p->isolates)
        (void)printf("  WARNING   the %s provider isolates nothing\n", p->name);
    if (c->quiet)
        return;
    (void)puts("\nNext:");
    if (is_spoken_to_in_lines(i) && id)
        print_next("talk to the agent; ^C leaves it running", "bellhop attach -i -n %s %s", i->name,
                   id);
    print_next("look around in it", "bellhop shell %s", i->name);
    print_next("run a command in it", "bellhop exec %s -- %s", i->name,
               is_git_project(json_object_get(info, "project")) ? "git status" : "ls -A");
    print_next("take its work home", "bellhop sync %s %s out", i->name, from ? from : "");
    print_next("it pauses or stops when unused", "bellhop keep %s --for 2h", i->name);
    print_next("remove it", "bellhop rm %s", i->name);
}

/* $BELLHOP_IMAGE or a file's image replaces the default image, if the box has one of ours. */
static const char *image_of(const struct cli *c, const struct args *a)
{
    const struct provider *p = provider_find(a->provider ? a->provider : provider_names[0]);

    bool has_image = !p || (p->image != PROVIDER_IMAGE_NONE && !a->pool);

    return cli_source_of(c, "image") == CLI_FROM_FLAG || has_image ? a->image : NULL;
}

static int run_up(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct args given = *(struct args *)args;
    struct args *a = &given;
    const struct provider *p = provider_find(a->provider ? a->provider : provider_names[0]);
    const char *dir = operands[0] ? operands[0] : ".";
    struct bh_create_options o = {.size = sizeof(o), .host_env = (const char *const *)environ};
    _cleanup_strv_ char **env = NULL;
    _cleanup_strv_ char **secrets = NULL;
    _cleanup_strv_ char **sources = NULL;
    _cleanup_strv_ char **defaults = NULL;
    _cleanup_box_ struct bh_box *box = NULL;
    struct err e = {0};
    int r;

    r = check_zeros(c, a, err);
    if (r < 0)
        return r;
    if (a->from)
        keep_flags(c, a);
    r = gather_variables(a, &env, &secrets, &e);
    if (r == 0)
        r = cli_sources(c, &sources, &defaults, &e);
    if (r < 0)
        return cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message);
    r = check_source(a, operands[0], err);
    if (r < 0)
        return r;
    o.name = a->name;
    o.provider = a->provider;
    o.image = image_of(c, a);
    o.runtime = a->runtime;
    o.pool = a->pool;
    o.agent = a->agent || a->from ? a->agent : "opencode";
    o.from = a->from;
    o.agent_config = a->agent_config;
    o.key = a->key;
    /* An empty box with --name or --key has no project. */
    o.project = a->repo || a->from || (a->empty && (a->name || a->key)) ? NULL : dir;
    o.no_upload = a->empty;
    o.dest = a->dest;
    o.git = a->git;
    o.with_secrets = a->with_secrets;
    o.repo_url = a->repo;
    o.git_token_file = a->git_token_file;
    o.network = a->network;
    o.privilege = a->privilege;
    o.on_timeout = a->on_timeout;
    o.timeout_ms = a->timeout_ms;
    o.on_idle = a->on_idle;
    o.idle_ms = a->idle_ms;
    o.on_gone = a->on_gone;
    o.cpu_millis = a->cpu_millis;
    o.memory_bytes = a->memory_bytes;
    o.disk_bytes = a->disk_bytes;
    o.pids = a->pids;
    o.read_only = a->read_only;
    o.agent_port = a->port;
    o.env = (const char *const *)env;
    o.secrets = (const char *const *)secrets;
    o.labels = (const char *const *)a->labels;
    o.allow_missing = (const char *const *)a->allow_missing;
    o.start_timeout_ms = a->start_timeout_ms;
    o.sources = (const char *const *)sources;
    o.defaults = (const char *const *)defaults;
    if (p && !p->isolates)
        cli_warn(c, "the %s provider isolates nothing: what runs in the box runs as you", p->name);
    r = bh_create(c->ctx, &o, &box, err);
    if (r < 0)
        return r;
    (void)snprintf(c->box, sizeof(c->box), "%s", bh_box_summary(box)->name);
    if (c->json)
        return cli_print_json_take(cli_box_json(bh_box_info(box)));
    print_summary(c, bh_box_info(box));
    return EXIT_CLI_OK;
}

const struct cli_command cmd_up = {
    .name = "up",
    .group = "Boxes",
    .operands = "[DIR]",
    .summary = "make a box with a project and a coding agent in it, or start it again",
    .details =
        "Creates the box, uploads DIR (default: the current directory), installs and starts the\n"
        "coding agent, and returns when it is healthy. In a git repository, the tracked files and\n"
        "the untracked files that are not ignored are sent, as they are on the disk now.\n"
        ".bellhopignore excludes more files. If a step fails, everything is rolled back.\n"
        "A box remembers its project: the directory's path or the repository's URL. A second up\n"
        "starts that box if it is stopped, and uploads nothing again. Another project of the same\n"
        "name gets a box with a short hash after the name. With --name, a box that belongs to\n"
        "another project is an error.\n"
        "With --key, up returns the box that has this key, whatever its name is; concurrent ups "
        "with\n"
        "one key create one box. Without --name, a new box is named after a hash of the key. A "
        "box\n"
        "can have many keys; rm frees them.\n"
        "A box that is not used for --idle is paused, and resumed by any command or connection. "
        "Its\n"
        "time to live (--timeout) then begins anew; at its end the box is stopped. The timer that "
        "ends\n"
        "first acts.\n"
        "\n"
        "With --from, the new box's disk has the content of a snapshot ('bellhop snapshot'), its\n"
        "project and its coding agent's sessions included, and nothing is uploaded. Options that "
        "are\n"
        "not given are those of the snapshot's box, but for values of --env and --secret. Without\n"
        "--name it has that box's name.\n"
        "\n"
        "By default a box leaves a part of the machine to you: it has all processors but one (of\n"
        "fewer than five, 4/5). The disk limit is a quota if the file system has project quotas;\n"
        "otherwise a box that exceeds the limit is stopped, and can be started again to remove\n"
        "files. To lift a limit, set it to a very large number. In Kubernetes a box has no limits\n"
        "of processors and memory unless they are given, and a disk of 10G; docker limits no "
        "disk.\n"
        "An option that a provider cannot honour is refused before anything is made.",
    .examples = "  bellhop up                                  # this directory, with opencode\n"
                "  bellhop up --name api --agent pi ~/src/api  # another one, with pi\n"
                "  bellhop up --agent none --network none .    # just a box, without a network\n"
                "  bellhop up -m 4G --cpus 2 -e GITHUB_USER .  # limits, and a variable of yours\n"
                "  bellhop up --empty -n scratch -a none       # an empty box\n"
                "  bellhop up --empty --key 1234.5678          # the box of a conversation\n"
                "  bellhop up --from before-upgrade -n again   # the content of a snapshot\n",
    .options = up_options,
    .args_bytes = sizeof(struct args),
    .max_operands = 1,
    .flags = CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_up,
};
