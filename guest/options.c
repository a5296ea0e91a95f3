#include "options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "api/proxy/forward.h"
#include "http/gate.h"
#include "system/log.h"

#define REQUIRED_DEFAULT "fd,rg,git"
#define MAX_COMMANDS 100000
#define MIN_TIME_MS 100
#define MAX_KEEPALIVE_MS (3600 * 1000)
#define MAX_KEEP_MS (7 * 24 * 3600 * 1000)
#define MIN_SIZE_BYTES (64 * 1024)
#define MAX_SIZE_BYTES ((uint64_t)1 << 40)

enum option_kind {
    OPTION_FLAG,
    OPTION_STRING,
    OPTION_LIST,  /* may be given several times */
    OPTION_HOST,  /* a host name; may be given several times */
    OPTION_WORDS, /* comma-separated */
    OPTION_FD,
    OPTION_COUNT,
    OPTION_KEEPALIVE, /* a duration in ms as int64_t, up to an hour */
    OPTION_TIME,      /* the same, up to a week */
    OPTION_SIZE,      /* bytes as size_t */
    OPTION_NUMBER,    /* as size_t */
    OPTION_AUTH,
    OPTION_LOG,
};

struct option_row {
    const char *name;
    const char *value; /* as --help calls it; NULL: takes none */
    enum option_kind kind;
    size_t offset;
    const char *help;
};

#define AT(member) offsetof(struct options, member)

static const struct option_row option_rows[] = {
    {"listen", "ADDR:PORT", OPTION_LIST, AT(listen),
     "accept TCP connections here; port 0 picks a free one; may be given again"},
    {"unix", "PATH", OPTION_LIST, AT(unix_paths), "accept connections on this unix socket"},
    {"token-file", "FILE", OPTION_STRING, AT(token_file),
     "the secret that clients must send; a file nobody else can use (0600, or root's 0440)"},
    {"token-fd", "N", OPTION_FD, AT(token_fd), "the same, read from an inherited descriptor"},
    {"token-once", NULL, OPTION_FLAG, AT(token_once),
     "remove the token file once it is read, before anything is served (--init does so too)"},
    {"auth", "open", OPTION_AUTH, AT(auth_open),
     "let everybody in who can reach a listener, but for the web pages in their browsers"},
    {"allow-host", "NAME", OPTION_HOST, AT(allow_hosts),
     "with --auth=open: answer to this host name too, besides addresses and localhost; .NAME: "
     "and to all names below it; may be given again"},
    {"cors", NULL, OPTION_FLAG, AT(cors),
     "with --auth=open: let web pages of any site call E2B's routes, as E2B's own agent does"},
    {"root", "DIR", OPTION_STRING, AT(root), "nothing outside can be reached by path (default /)"},
    {"user", "USER", OPTION_STRING, AT(user), "run commands and own files as this user"},
    {"workdir", "DIR", OPTION_STRING, AT(workdir),
     "where commands and relative paths start (default: the user's home)"},
    {"ready-fd", "N", OPTION_FD, AT(ready_fd),
     "write one line of JSON with the addresses there once the agent answers"},
    {"require", "LIST", OPTION_WORDS, AT(required),
     "tools without which /v1/ready says no (default fd,rg,git)"},
    {"read-only", NULL, OPTION_FLAG, AT(read_only), "refuse everything that changes something"},
    {"init", NULL, OPTION_FLAG, AT(init),
     "be the box's first process: mount, reap, end the box with a lease"},
    {"start-file", "FILE", OPTION_STRING, AT(start_file),
     "run this shell script, as a command with the id 'start', once the agent answers"},
    {"env-file", "FILE", OPTION_STRING, AT(env_file),
     "variables for all commands, a line NAME=VALUE each"},
    {"max-connections", "N", OPTION_COUNT, AT(max_connections), "at a time (default 1024)"},
    {"keepalive", "TIME", OPTION_KEEPALIVE, AT(keepalive_ms),
     "say something in a stream that was silent for so long (default 10s)"},
    {"max-commands", "N", OPTION_NUMBER, AT(exec.max_running), "running at a time (default 1024)"},
    {"keep-results", "TIME", OPTION_TIME, AT(exec.keep_ms),
     "how long the result of a command can be read after its end (default 10m)"},
    {"max-results", "N", OPTION_NUMBER, AT(exec.max_kept), "how many are kept (default 1000)"},
    {"output-memory", "SIZE", OPTION_SIZE, AT(exec.output_bytes),
     "for the output kept of all commands (default 64M)"},
    {"spill-disk", "SIZE", OPTION_SIZE, AT(exec.spill_bytes),
     "for the output that commands ask to be spilled to a file (default 1G)"},
    {"spill-dir", "DIR", OPTION_STRING, AT(exec.spill_dir),
     "where those files are; they have no names (default /var/tmp, or else /tmp)"},
    {"forward-localhost", "ADDR", OPTION_STRING, AT(forward_localhost),
     "let this address of the machine reach, without a token, TCP ports on localhost (default: "
     "none)"},
    {"hold-socket", "PATH", OPTION_STRING, AT(hold_socket),
     "where `bellhopd hold` finds this agent (default: none; as pid 1 of a box one in /run)"},
    {"log", "LEVEL", OPTION_LOG, 0, "error, info (default) or debug, to standard error"},
};

void options_print_help(void)
{
    (void)printf(
        "Usage: bellhopd (--listen ADDR:PORT | --unix PATH)... \\\n"
        "                (--token-file FILE | --token-fd N | --auth=open) [OPTION...]\n"
        "       bellhopd hold [--for TIME] [--reason TEXT] [-- COMMAND...]\n"
        "       bellhopd dial PATH|PORT\n\n"
        "Serves commands, files, search and archives of this machine on one port, for the\n"
        "programs that use it as a sandbox.\n\n");
    for (size_t i = 0; i < N_ELEMENTS(option_rows); i++) {
        char left[64];

        (void)snprintf(left, sizeof(left), "--%s%s%s", option_rows[i].name,
                       option_rows[i].value ? " " : "",
                       option_rows[i].value ? option_rows[i].value : "");
        (void)printf("  %-24s %s\n", left, option_rows[i].help);
    }
    (void)printf("  %-24s %s\n  %-24s %s\n", "--version", "print versions", "--help", "print this");
    (void)printf(
        "\nIts own PATH is the commands' PATH; nothing else of its environment is passed on. "
        "Without root,\n"
        "it notes what the next agent needs below $HOME/.local/state/bellhop.\n"
        "\nTry it:\n"
        "  bellhopd --listen 127.0.0.1:7070 --auth=open &\n"
        "  curl -H 'Content-Type: application/json' -d '{\"argv\":[\"uname\",\"-a\"]}' \\\n"
        "       http://127.0.0.1:7070/bellhop.v1.Exec/Run\n"
        "  curl 'http://127.0.0.1:7070/v1/files?path=/etc/hostname'\n");
}

static int set_words(char ***list, const char *text, struct err *e)
{
    _cleanup_free_ char *copy = strdup(text);
    char *rest = copy, *word;

    if (!copy)
        return err_oom(e);
    *list = strv_free(*list);
    while ((word = strsep(&rest, ",")))
        if (*word && strv_push(list, word, e) < 0)
            return -ERR_EXHAUSTED;
    if (!*list) /* an empty list is not the default one */
        *list = calloc(1, sizeof(char *));
    return *list ? 0 : err_oom(e);
}

static int set_log(const char *value, struct err *e)
{
    static const char *const names[] = {"error", "info", "debug"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (str_eq(value, names[i])) {
            log_set_level((enum log_level)i);
            return 0;
        }
    return err_set(e, ERR_INVALID, "must be error, info or debug");
}

static int set_number(const char *value, uint64_t min, uint64_t max, void *at, struct err *e)
{
    uint64_t n;
    int r = str_parse_u64(value, min, max, &n, e);

    if (r == 0)
        *(unsigned *)at = (unsigned)n;
    return r;
}

static int set_option(struct options *o, const struct option_row *row, const char *value,
                      struct err *e)
{
    void *at = (char *)o + row->offset;
    uint64_t bytes;
    bool is_long;
    int64_t ms;
    int r;

    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case OPTION_STRING:
        *(const char **)at = value;
        return 0;
    case OPTION_LIST:
        return strv_push(at, value, e);
    case OPTION_HOST:
        r = origin_check_name(value, e);
        return r < 0 ? r : strv_push(at, value, e);
    case OPTION_WORDS:
        return set_words(at, value, e);
    case OPTION_FD:
        return set_number(value, 0, MAX_FDS, at, e);
    case OPTION_COUNT:
        return set_number(value, 1, MAX_FDS / 2, at, e);
    case OPTION_KEEPALIVE:
    case OPTION_TIME:
        is_long = row->kind == OPTION_TIME;
        r = str_parse_duration(value, &ms, e);
        if (r == 0 && (ms < MIN_TIME_MS || ms > (is_long ? MAX_KEEP_MS : MAX_KEEPALIVE_MS)))
            return err_set(e, ERR_INVALID, "must be from 100ms to %s", is_long ? "7d" : "1h");
        if (r == 0)
            *(int64_t *)at = ms;
        return r;
    case OPTION_SIZE:
        r = str_parse_size(value, &bytes, e);
        if (r == 0 && (bytes < MIN_SIZE_BYTES || bytes > MAX_SIZE_BYTES))
            return err_set(e, ERR_INVALID, "must be from 64K to 1024G");
        if (r == 0)
            *(size_t *)at = (size_t)bytes;
        return r;
    case OPTION_NUMBER:
        r = str_parse_u64(value, 1, MAX_COMMANDS, &bytes, e);
        if (r == 0)
            *(size_t *)at = (size_t)bytes;
        return r;
    case OPTION_AUTH:
        *(bool *)at = true;
        return str_eq(value, "open") ? 0 : err_set(e, ERR_INVALID, "can only be 'open'");
    case OPTION_LOG:
        return set_log(value, e);
    }
    return err_set(e, ERR_INTERNAL, "an option of no kind");
}

static const struct option_row *find_option(const char *arg, const char **ret_value)
{
    size_t len = strcspn(arg, "=");

    for (size_t i = 0; i < N_ELEMENTS(option_rows); i++)
        if (strlen(option_rows[i].name) == len && strncmp(option_rows[i].name, arg, len) == 0) {
            *ret_value = arg[len] ? arg + len + 1 : NULL;
            return &option_rows[i];
        }
    return NULL;
}

int options_parse(int argc, char **argv, struct options *o, struct err *e)
{
    int r = set_words(&o->required, REQUIRED_DEFAULT, e);

    if (r < 0)
        return r;
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        const struct option_row *row =
            str_has_prefix(argv[i], "--") ? find_option(argv[i] + 2, &value) : NULL;

        if (!row)
            return err_set(e, ERR_INVALID, "unknown option '%.80s'", argv[i]);
        if (!row->value && value)
            return err_set(e, ERR_INVALID, "option '--%s' takes no value", row->name);
        if (row->value && !value && !argv[i + 1])
            return err_set(e, ERR_INVALID, "option '--%s' needs a value: %s", row->name,
                           row->value);
        if (row->value && !value)
            value = argv[++i];
        r = set_option(o, row, value, e);
        if (r < 0)
            return err_wrap(e, r, "option '--%s'", row->name);
    }
    return 0;
}

int options_check(const struct options *o, struct err *e)
{
    int n_auth = (o->token_file != NULL) + (o->token_fd >= 0) + o->auth_open;
    int r;

    if (!o->listen && !o->unix_paths)
        return err_set(e, ERR_INVALID,
                       "nowhere to listen: give --listen ADDR:PORT or --unix PATH (see --help)");
    if (n_auth == 0)
        return err_set(e, ERR_INVALID,
                       "no token: give --token-file FILE, --token-fd N, or --auth=open to let "
                       "everybody in");
    if ((o->allow_hosts || o->cors) && !o->auth_open)
        return err_set(e, ERR_INVALID,
                       "%s goes with --auth=open: a token keeps out whoever does not know it",
                       o->cors ? "--cors" : "--allow-host");
    if (o->token_once && !o->token_file)
        return err_set(e, ERR_INVALID, "--token-once goes with --token-file");
    if (n_auth > 1)
        return err_set(e, ERR_INVALID,
                       "--token-file, --token-fd and --auth=open exclude each other");
    if (o->forward_localhost && (r = forward_check_address(o->forward_localhost, e)) < 0)
        return err_wrap(e, r, "option '--forward-localhost'");
    if (o->workdir && o->workdir[0] != '/')
        return err_set(e, ERR_INVALID, "--workdir must be an absolute path");
    return 0;
}

void options_done(struct options *o)
{
    o->listen = strv_free(o->listen);
    o->unix_paths = strv_free(o->unix_paths);
    o->allow_hosts = strv_free(o->allow_hosts);
    o->required = strv_free(o->required);
}
