#pragma once
/*
 * cli: what the subcommands share. A subcommand is one file and one row in commands[] (main.c):
 * its options are a table, from which parsing, help, completion and the man page come. A command
 * prints its result on standard output (one JSON document with --json), everything else goes to
 * standard error.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

/* Exit statuses. Part of the interface: they do not change. `help exit-codes` prints them. */
enum cli_exit {
    EXIT_CLI_OK = 0,
    EXIT_CLI_ERROR = 1, /* an error without its own number; grep: no match */
    EXIT_CLI_USAGE = 2,
    EXIT_CLI_NOT_FOUND = 3,
    EXIT_CLI_CONFLICT = 4,
    EXIT_CLI_UNAVAILABLE = 5,
    EXIT_CLI_DEADLINE = 6,
    EXIT_CLI_DENIED = 7,
    EXIT_CLI_EXHAUSTED = 8,
    EXIT_CLI_UNSUPPORTED = 9,
    EXIT_CLI_BOOTSTRAP = 10,
    EXIT_CLI_DATA_LOSS = 11,
    EXIT_EXEC_TIMEOUT = 124, /* exec and shell: as timeout(1), env(1) and docker */
    EXIT_EXEC_BELLHOP = 125,
    EXIT_EXEC_CANNOT_RUN = 126,
    EXIT_EXEC_NOT_FOUND = 127,
    EXIT_CLI_INTERRUPTED = 130,
};

enum cli_type {
    CLI_FLAG,     /* bool */
    CLI_STR,      /* const char * */
    CLI_LIST,     /* char **, owned by the parser: strv */
    CLI_DURATION, /* int64_t ms */
    CLI_SIZE,     /* uint64_t bytes */
    CLI_U16,      /* uint16_t, not 0 */
    CLI_CPUS,     /* uint32_t, thousandths: "1.5" is 1500 */
    CLI_U32,      /* uint32_t */
};

struct cli_option {
    const char *name; /* without the dashes */
    char letter;      /* or 0 */
    enum cli_type type;
    size_t offset;   /* in the command's args struct */
    const char *arg; /* "NAME", NULL for a flag */
    const char *help;
    const char *const *values; /* the values that completion offers, or NULL */
    const char *env;           /* the variable that has its value, or NULL */
};

/* A row of a command's table; the command's file calls its arguments `struct args`. */
#define CLI_OPT(name, letter, type, member, arg, help) \
    CLI_OPT_VALUES(name, letter, type, member, arg, help, NULL)
#define CLI_OPT_VALUES(name, letter, type, member, arg, help, values) \
    { \
        name, letter, type, offsetof(struct args, member), arg, help, values \
    }

/* Values that no flag sets, but the environment and the files do. NULL, 0: built-in. */
struct cli_settings {
    const char *state_dir, *cache_dir, *agent_path, *monitor_path, *recipe_dir, *image_dir,
        *template_dir, *image_cache_dir, *npm_registry, *docker_host, *kubeconfig, *kube_context,
        *kube_namespace, *kube_registry, *debug_log;
    int64_t answer_timeout_ms, provider_timeout_ms, records_for_ms;
};

/* The lists are owned; cli_limits_done() frees them. */
struct cli_limits {
    struct bh_limits values;
    char **providers, **networks, **privileges;
};

struct cli {
    struct bh_options opts;
    struct bh_ctx *ctx;
    bool json;
    bool quiet;
    bool no_resume;
    bool raw; /* do not escape names and content from a box */
    bool debug;
    const char *daemon; /* a URL, "auto" or "none"; NULL: auto */
    const char *token_file, *daemon_ca;
    bool tty_out;
    bool tty_err;
    const char *program;
    const struct cli_command *command;
    uint64_t given, given_common; /* a bit for each row of the options: a flag gave the value */
    struct cli_config *config;    /* or NULL: no file was read */
    struct cli_settings settings;
    struct cli_limits limits;
    int debug_fd;
    const char *debug_path;  /* of its file, or NULL: standard error */
    const char *debug_parts; /* "http,host", or NULL: all */
    char box[64];            /* the one that the command made or found, for the record of calls */
};

struct cli_command {
    const char *name;
    const char *group;    /* heading in the overview */
    const char *operands; /* "NAME -- CMD ARG..." */
    const char *summary;
    const char *details;              /* paragraphs of the help, or NULL */
    const char *examples;             /* lines "command  # what it does" */
    const struct cli_option *options; /* ends with a zero row; NULL: none */
    size_t args_bytes;
    unsigned min_operands, max_operands;
    unsigned flags;
    /* Or NULL: the context has its store. True: it has none, and no daemon is looked for. */
    bool (*is_storeless)(const void *args);
    /* Returns an enum cli_exit, or a negative bh_code with *err set. */
    int (*run)(struct cli *c, void *args, char **operands, struct bh_error *err);
};

#define CLI_NO_CONTEXT (1u << 0)      /* works without the state directory */
#define CLI_STOP_AT_OPERAND (1u << 1) /* options end at the second operand or at -- (exec) */
#define CLI_TAKES_BOX (1u << 2)       /* the first operand is a box: for completion */
#define CLI_CHANGES (1u << 3)         /* a line of the audit record */
#define CLI_AT_DAEMON (1u << 4)       /* works with --daemon too */
#define CLI_HERE (1u << 5)            /* is about this machine, whatever --daemon says */

extern const struct cli_command cmd_up, cmd_exec, cmd_shell, cmd_put, cmd_get, cmd_cat, cmd_edit,
    cmd_watch, cmd_sync, cmd_glob, cmd_grep, cmd_prompt, cmd_url, cmd_keep, cmd_logs, cmd_ps,
    cmd_attach, cmd_kill, cmd_wait, cmd_activity, cmd_hold, cmd_release, cmd_ports, cmd_wait_port,
    cmd_ready, cmd_ls, cmd_status, cmd_events, cmd_start, cmd_stop, cmd_pause, cmd_resume,
    cmd_snapshot, cmd_snapshots, cmd_restore, cmd_fork, cmd_rm, cmd_gc, cmd_image, cmd_providers,
    cmd_config, cmd_daemon, cmd_token, cmd_quota, cmd_audit, cmd_doctor, cmd_completion, cmd_help,
    cmd_version;
const struct cli_command *cli_command_at(size_t i); /* NULL past the last */
const struct cli_command *cli_find_command(const char *name);

/* options.c */
extern const struct cli_option cli_common_options[];             /* offsets into struct cli */
int cli_parse_cpus(const char *s, uint32_t *ret, struct err *e); /* "1.5": 1500 */
/* Stores the text as the option's type at `at`; a list grows. NULL: the flag is given. */
int cli_store_value(const struct cli_option *o, void *at, const char *value, struct err *e);
/* Options before the command: those that every command has. Moves *argv past them. */
int cli_parse_common(struct cli *c, char ***argv, struct err *e);
int cli_parse(struct cli *c, const struct cli_command *cmd, char **argv, void *args,
              char ***ret_operands, struct err *e);
/* Variables for boxes and commands, from options and files. */
int cli_expand_env(char **list, const char *field, bool must_be_bare, char ***ret, struct err *e);
int cli_read_env_file(const char *path, char ***ret, struct err *e);
void cli_args_done(const struct cli_command *cmd, void *args);

/*
 * config.c: options that no flag gives have the value of their variable, else of the user's
 * configuration file, else of the system's. A key is the name of a setting or of a common option,
 * or "COMMAND.OPTION"; the tables of options are the list of keys.
 */
enum cli_source { CLI_BUILT_IN, CLI_FROM_FILE, CLI_FROM_ENV, CLI_FROM_FLAG };
extern const struct cli_option cli_settings_options[]; /* offsets into struct cli_settings */
/* Reads both files. What is wrong in them is kept for cli_config_check(). */
int cli_config_read(struct cli_config **ret, struct err *e);
struct cli_config *cli_config_free(struct cli_config *g); /* accepts NULL; returns NULL */
/* The first thing that is wrong, by file, line and key; the system's file first. */
int cli_config_check(const struct cli_config *g, struct err *e);
/* Fills in what no flag gave. Strings belong to the environment or to c->config. */
int cli_config_apply(struct cli *c, void *args, struct err *e);
void cli_limits_done(struct cli_limits *l);
enum cli_source cli_source_of(const struct cli *c, const char *name); /* of the command's option */
/* For bh_create_options: the sources of the command's options, and which are files' defaults. */
int cli_sources(const struct cli *c, char ***ret_sources, char ***ret_defaults, struct err *e);
/* Prepends file and line, or the variable, to an error whose field has its value from there. */
void cli_config_name_origin(const struct cli *c, struct bh_error *err);
json_t *cli_config_values(const struct cli *c); /* [{"key","value","source","about"}] */
json_t *cli_config_files(const struct cli_config *g);
/* main.c: where a setting is not set. NULL: its default has no text. */
json_t *cli_setting_default(const char *name);
/* $XDG/bellhop, else ~/HOME/bellhop; `end` follows. NULL: no memory. */
char *cli_user_path(const char *xdg, const char *below_home, const char *end);

/* debug_log.c: with --debug or a debug-log, the library's lines go to standard error or a file. */
int cli_debug_start(struct cli *c, struct err *e);

/* help.c */
void cli_print_overview(FILE *f);
void cli_print_help(FILE *f, const struct cli_command *cmd);
void cli_print_man(FILE *f, const struct cli_command *cmd); /* NULL: bellhop(1) */
int cli_print_topic(FILE *f, const char *topic);            /* -1: no such topic */
int cli_print_completion(FILE *f, const char *shell);       /* -1: no such shell */

/* output.c */
int cli_exit_for(const struct bh_error *err);
void cli_print_error(struct cli *c, const struct bh_error *err);
void cli_warn(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_print_json_take(json_t *v);   /* one document and a line feed; EXIT_CLI_OK or 1 */
void cli_puts_json(const char *text); /* the same of text that is JSON already */
void cli_put_json(const char *text);  /* a part of a document */
/* The value of "error" in a document; NULL: no memory. */
json_t *cli_error_json(const struct bh_error *err);
/*
 * Text from a box may hold terminal control sequences, or a line feed that forges a line of ours.
 * Names, messages and arguments are always escaped (str_escape); content (of files, a command's
 * output) is escaped on a terminal. --raw turns both off, and so does a zero byte after each name.
 */
/* Escapes a message or a cell of a table; valid until the fourth call after this. */
const char *cli_text(const char *s);
void cli_put_name(const char *s, size_t len);    /* to standard output */
void cli_put_content(const char *s, size_t len); /* complete content */
/* Escapes a piece of content; *held keeps an incomplete character. NULL: out of memory. */
struct cli_held {
    char bytes[4];
    size_t n;
};
char *cli_escape_content(struct cli_held *held, const char *s, size_t len, bool is_last,
                         size_t *ret_len);
void cli_output_init(const struct cli *c);
bool cli_shows_raw(int fd); /* content written there is not escaped */
int cli_fail(struct bh_error *err, enum bh_code code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A table on a terminal, tab-separated columns in a pipe. */
struct cli_table;
struct cli_table *cli_table_new(const char *const *heads);
void cli_table_add(struct cli_table *t, const char *const *cells); /* copied */
void cli_table_print_free(struct cli_table *t, bool is_tty);
/* The output of a command that lists: with --json one document {key: [...]}, else a table. */
struct cli_listing {
    struct cli *cli;
    struct cli_table *table; /* NULL: --json, or no heads */
    json_t *json;            /* NULL: not --json */
};
void cli_listing_begin(struct cli_listing *l, struct cli *c, const char *const *heads);
/* Prints it, and frees it. r: of the listing; if that failed, it is the result. */
int cli_listing_end(struct cli_listing *l, const char *key, int r);
json_t *cli_box_json(const struct bh_box_info *info); /* as `up --json` prints it */

void cli_progress(void *arg, const struct bh_progress *p); /* arg: struct cli */
void cli_progress_clear(const struct cli *c);

/* terminal.c */
struct cli_signals; /* a thread that forwards ^C, TERM and the window's size to a command */
int cli_cancel_init(struct cli *c, struct err *e); /* ^C and TERM make opts.cancel_fd readable */
/* Forwards signals to the command; with is_mine false, a signal only ends the wait. */
int cli_signals_start(struct cli *c, const char *box, const char *exec_id, bool is_pty,
                      bool is_mine, struct cli_signals **ret, struct bh_error *err);
struct cli_signals *cli_signals_stop(struct cli_signals *s);
/* Copies fd to the input of s's command until the keys ^P ^Q come; then cancels s. */
struct cli_keys;
int cli_keys_start(int fd, struct cli_signals *s, struct cli_keys **ret, struct bh_error *err);
/* Returns NULL; *ret_detached: the keys came. */
struct cli_keys *cli_keys_stop(struct cli_keys *k, bool *ret_detached);
int cli_raw_mode(int fd, struct bh_error *err); /* undone by cli_raw_restore and at exit */
void cli_raw_restore(void);
void cli_window_size(uint16_t *cols, uint16_t *rows);

/* named_box.c */
#define CLI_BOX_WAIT_MS (2 * 60 * 1000) /* to start or stop a box */
/*
 * Calls fn for each of several names, also after one that failed; only an interrupt ends it. Each error is printed when it
 * happens, and the exit status is that of the first, or of the interrupt. With --json there is one document: `done` as
 * `key`, and if a name failed, "error", which is the first one, and "errors", each with its "name". The error of a name
 * that is alone is returned, as by any command.
 */
struct cli_each {
    const char *key;
    json_t *done_take; /* filled in by fn */
    /* Without --json it prints what it did. */
    int (*fn)(struct cli *c, void *arg, const char *name, json_t *done, struct bh_error *err);
    void *arg;
};
int cli_each_name(struct cli *c, char **names, const struct cli_each *each, struct bh_error *err);
/* Calls fn for each box and reports it in the state `what` (NULL: the one that it has then), as a
 * line each or one document. */
int cli_each_box(struct cli *c, char **names, const char *what,
                 int (*fn)(struct bh_box *box, int64_t timeout_ms, struct bh_error *err),
                 struct bh_error *err);
const char *cli_time_left(const struct bh_box_info *i, char *out, size_t n);
/* A path, {"text"} or {"b64"} of a reply as bytes with a NUL; free() it. */
char *cli_bytes_of(json_t *v, size_t *ret_len);
void cli_print_bytes(json_t *v);
/* ":/path" is a path in the box. */
int cli_box_path(const char *word, const char *field, const char **ret, struct bh_error *err);

/* attached.c: commands of a box that use this process's descriptors; return the exit status to
 * pass on. */
int cli_run_attached(struct cli *c, const char *name, struct bh_run_options *o,
                     struct bh_error *err);
struct cli_attach {
    bool input; /* copy this process's input to the command */
    bool only_new;
    uint64_t offset[3]; /* by stream, 1 and 2 */
};
int cli_attach(struct cli *c, const char *name, const char *id, const struct cli_attach *a,
               struct bh_error *err);
/* Prints a command's result, and with output its kept output, as one document. */
int cli_print_result(struct bh_box *box, const char *id, bool output, struct bh_error *err);
int cli_exit_for_run(struct cli *c, const struct bh_run_result *result); /* the command's own */
int cli_exit_for_exec(struct cli *c, const struct bh_error *err); /* prints it; 125, 126 or 127 */
static inline void cli_box_free_p(struct bh_box **b)
{
    (void)bh_box_free(*b);
}
#define _cleanup_box_ __attribute__((cleanup(cli_box_free_p)))
