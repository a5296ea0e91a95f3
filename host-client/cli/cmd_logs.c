#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"

struct args {
    bool follow;
    const char *id;
};

static const struct cli_option logs_options[] = {
    CLI_OPT("follow", 'f', CLI_FLAG, follow, NULL, "print new output until the command ends"),
    CLI_OPT("id", 0, CLI_STR, id, "ID",
            "id of a command (printed by exec -d), instead of the coding agent"),
    {0},
};

struct logs {
    struct cli *cli;
    struct bh_exec *exec;
    struct cli_held held[3]; /* by stream, 1 and 2 */
};

static int put_logs(struct cli_held *held, const char *data, size_t len, bool is_last)
{
    _cleanup_free_ char *text = NULL;

    if (!cli_shows_raw(STDOUT_FILENO)) {
        text = cli_escape_content(held, data, len, is_last, &len);
        data = text;
    }
    return data ? io_write_all(STDOUT_FILENO, data, len, NULL) : -1;
}

static int on_output(void *arg, int stream, const char *data, size_t len)
{
    struct logs *l = arg;

    return put_logs(&l->held[stream], data, len, false);
}

static int put_part(struct cli_held *held, json_t *part)
{
    size_t len;
    _cleanup_free_ char *bytes = cli_bytes_of(part, &len);

    return bytes ? put_logs(held, bytes, len, false) : 0;
}

/* Prints the kept output of each stream: head and tail, with a warning between them if bytes were
 * dropped. */
static int print_kept(void *arg, const struct bh_exec_info *info)
{
    static const char *const streams[] = {NULL, "stdout", "stderr"};
    _cleanup_json_ json_t *whole = json_loads(info->json, JSON_ALLOW_NUL, NULL);
    struct logs *l = arg;
    int r = 0;

    for (int i = 1; r == 0 && i <= 2; i++) {
        json_t *stream = json_object_get(whole, streams[i]);
        json_int_t dropped = json_integer_value(json_object_get(stream, "dropped_bytes"));

        bh_exec_seek(l->exec, i, i == 1 ? info->stdout_bytes : info->stderr_bytes);
        r = put_part(&l->held[i], stream);
        if (r == 0 && dropped) {
            cli_warn(l->cli, "%lld bytes are not held any more", (long long)dropped);
            r = put_part(&l->held[i], json_object_get(stream, "tail"));
        }
    }
    return r ? EXIT_CLI_ERROR : 0;
}

static int print_document(void *arg, const struct bh_exec_info *info)
{
    (void)arg;
    cli_puts_json(info->json);
    return 0;
}

static int show_logs(struct cli *c, struct bh_box *box, const char *id, bool follow,
                     struct bh_error *err)
{
    struct logs l = {.cli = c};
    struct bh_follow_options f = {
        .size = sizeof(f), .stdin_fd = -1, .output = on_output, .arg = &l};
    int r = bh_exec_attach(box, id, &l.exec, err);

    if (r == 0 && c->json) {
        /* One document; with --follow, after the command's end. */
        r = follow ? bh_exec_wait(l.exec, 0, NULL, err) : 0;
        if (r == 0)
            r = bh_exec_get(l.exec, print_document, NULL, err);
    } else if (r == 0) {
        r = bh_exec_get(l.exec, print_kept, &l, err);
        if (r == 0 && follow)
            r = bh_exec_follow(l.exec, &f, NULL, err);
        for (int i = 1; r == 0 && i <= 2; i++)
            if (l.held[i].n)
                r = put_logs(&l.held[i], "", 0, true) ? EXIT_CLI_ERROR : 0;
    }
    (void)bh_exec_free(l.exec);
    return r;
}

static int run_logs(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    const char *id = a->id;
    json_t *info;
    int r = bh_get(c->ctx, operands[0], &box, err);

    if (r < 0)
        return r;
    info = json_loads(bh_box_info(box)->json, JSON_ALLOW_NUL, NULL);
    if (!id)
        id = json_string_value(json_object_get(json_object_get(info, "agent"), "exec_id"));
    if (!id || !*id)
        r = cli_fail(err, BH_NOT_FOUND, "id", "'%s' has no coding agent; name a command with --id",
                     operands[0]);
    else
        r = show_logs(c, box, id, a->follow, err);
    json_decref(info);
    return r;
}

const struct cli_command cmd_logs = {
    .name = "logs",
    .group = "Work",
    .operands = "NAME",
    .summary = "show what the coding agent has printed",
    .examples = "  bellhop logs api\n"
                "  bellhop logs -f api\n",
    .options = logs_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_logs,
};
