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
    EXIT_CLI_ERROR = 1, /* anything without a number of its own; grep: no match */
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
    EXIT_EXEC_TIMEOUT = 124, /* exec and shell: as timeout(1), env(1) and docker have them */
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
};

struct cli {
    struct bh_options opts;
    struct bh_ctx *ctx;
    bool json;
    bool quiet;
    bool no_resume;
    bool tty_out;
    bool tty_err;
    const char *program;
    const struct cli_command *command;
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
    /* Returns an enum cli_exit, or a negative bh_code with *err set. */
    int (*run)(struct cli *c, void *args, char **operands, struct bh_error *err);
};

#define CLI_NO_CONTEXT (1u << 0)      /* works without the state directory */
#define CLI_STOP_AT_OPERAND (1u << 1) /* options end at the second operand or at -- (exec) */
#define CLI_TAKES_BOX (1u << 2)       /* the first operand is a box: for completion */

extern const struct cli_command cmd_up, cmd_exec, cmd_shell, cmd_put, cmd_get, cmd_glob, cmd_grep,
    cmd_url, cmd_keep, cmd_logs, cmd_ls, cmd_status, cmd_start, cmd_stop, cmd_rm, cmd_gc,
    cmd_providers, cmd_doctor, cmd_completion, cmd_help, cmd_version;
const struct cli_command *cli_command_at(size_t i); /* NULL past the last */
const struct cli_command *cli_find_command(const char *name);

/* options.c */
extern const struct cli_option cli_common_options[]; /* offsets into struct cli */
int cli_parse(struct cli *c, const struct cli_command *cmd, char **argv, void *args,
              char ***ret_operands, struct err *e);
void cli_args_done(const struct cli_command *cmd, void *args);

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
int cli_print_json_take(json_t *v); /* one document and a line feed; EXIT_CLI_OK or 1 */
int cli_fail(struct bh_error *err, enum bh_code code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A table on a terminal, tab-separated columns in a pipe. */
struct cli_table;
struct cli_table *cli_table_new(const char *const *heads);
void cli_table_add(struct cli_table *t, const char *const *cells); /* copied */
void cli_table_print_free(struct cli_table *t, bool is_tty);
json_t *cli_box_json(const struct bh_box_info *info); /* as `up --json` prints it */

/* progress.c */
void cli_progress(void *arg, const struct bh_progress *p); /* arg: struct cli */
void cli_progress_clear(const struct cli *c);

/* terminal.c */
struct cli_signals; /* a thread that forwards ^C, TERM and the window's size to a command */
int cli_cancel_init(struct cli *c, struct err *e); /* ^C and TERM make opts.cancel_fd readable */
int cli_signals_start(struct cli *c, const char *box, const char *exec_id, bool is_pty,
                      struct cli_signals **ret, struct bh_error *err);
struct cli_signals *cli_signals_stop(struct cli_signals *s);
int cli_raw_mode(int fd, struct bh_error *err); /* undone by cli_raw_restore and at exit */
void cli_raw_restore(void);
void cli_window_size(uint16_t *cols, uint16_t *rows);

/* box.c */
int cli_get_box(struct cli *c, const char *name, struct bh_box **ret, struct bh_error *err);
/* Runs a command of a box with this process's descriptors; the exit status to pass on. */
struct cli_run {
    const char *const *argv;
    const char *shell;
    const char *cwd;
    const char *user;
    const char *const *env;
    int64_t timeout_ms;
    bool pty;
    bool no_stdin;
};
int cli_run_attached(struct cli *c, const char *name, const struct cli_run *run,
                     struct bh_error *err);
int cli_exit_for_run(struct cli *c, const struct bh_run_result *result); /* the command's own */
int cli_exit_for_exec(struct cli *c, const struct bh_error *err); /* prints it; 125, 126 or 127 */
static inline void cli_box_free_p(struct bh_box **b)
{
    (void)bh_box_free(*b);
}
#define _cleanup_box_ __attribute__((cleanup(cli_box_free_p)))
