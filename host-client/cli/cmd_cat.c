#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"

struct cat {
    struct cli_held held;
    int sys; /* errno of a failed write to standard output; 0: none */
};

static int put_content(struct cat *cat, const char *data, size_t len, bool is_last)
{
    _cleanup_free_ char *text = NULL;

    if (!cli_shows_raw(STDOUT_FILENO)) {
        text = cli_escape_content(&cat->held, data, len, is_last, &len);
        data = text;
    }
    if (!data && len == 0)
        return 0;
    if (data && fwrite(data, 1, len, stdout) == len)
        return 0;
    cat->sys = data ? errno : ENOMEM;
    return 1;
}

static int to_stdout(void *arg, const char *data, size_t len)
{
    return put_content(arg, data, len, false);
}

static int run_cat(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    _cleanup_box_ struct bh_box *box = NULL;
    const char *path = NULL;
    struct cat cat = {0};
    int r = 0;

    (void)args;
    for (char **p = operands + 1; r == 0 && *p; p++)
        r = cli_box_path(*p, "path", &path, err);
    if (r == 0)
        r = bh_get(c->ctx, operands[0], &box, err);
    for (char **p = operands + 1; r == 0 && *p; p++) {
        struct bh_file_read_options o = {
            .size = sizeof(o), .path = *p + 1, .write = to_stdout, .arg = &cat};

        r = bh_file_read(box, &o, NULL, err);
        if (!cat.sys)
            (void)put_content(&cat, NULL, 0, true);
    }
    if (fflush(stdout) != 0 && !cat.sys)
        cat.sys = errno;
    if (cat.sys == EPIPE) /* as cat(1) ends */
        return 128 + SIGPIPE;
    errno = cat.sys;
    return cat.sys ? cli_fail(err, BH_UNKNOWN, "", "writing standard output: %m") : r;
}

const struct cli_command cmd_cat = {
    .name = "cat",
    .group = "Files",
    .operands = "NAME :PATH...",
    .summary = "print files of a box, byte for byte",
    .examples = "  bellhop cat api :package.json | jq .scripts\n"
                "  bellhop cat api :/etc/os-release\n",
    .min_operands = 2,
    .max_operands = 256,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_cat,
};
