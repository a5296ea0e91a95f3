#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"

#define TOKEN_MAX_BYTES 4096

struct args {
    const char *url, *token_file, *name, *dest;
    bool input, only_new;
    uint64_t stdout_offset, stderr_offset;
};

/* ---- a box that somebody else runs ---- */

static int attach_url(struct cli *c, const struct args *a, char **operands, struct bh_error *err)
{
    struct bh_connect_options o = {.size = sizeof(o),
                                   .name = a->name,
                                   .url = a->url,
                                   .workdir = a->dest,
                                   .host_env = (const char *const *)environ};
    _cleanup_box_ struct bh_box *box = NULL;
    _cleanup_free_ char *token = NULL;
    struct err e = {0};
    int r;

    if (operands[0] || !a->name)
        return cli_fail(err, BH_INVALID_ARGUMENT, operands[0] ? "operands" : "name",
                        "with --url: bellhop attach --url URL --name NAME");
    if (a->token_file) {
        r = io_read_file(AT_FDCWD, a->token_file, TOKEN_MAX_BYTES, &token, NULL, &e);
        if (r < 0)
            return cli_fail(err, (enum bh_code) - r, "token-file", "%s", e.message);
        token[strcspn(token, "\r\n")] = '\0';
    }
    o.token = token;
    r = bh_attach(c->ctx, &o, &box, err);
    if (token)
        explicit_bzero(token, strlen(token));
    if (r < 0)
        return r;
    (void)snprintf(c->box, sizeof(c->box), "%s", a->name);
    if (c->json)
        return cli_print_json_take(cli_box_json(bh_box_info(box)));
    (void)printf("%s: attached\n", a->name);
    return EXIT_CLI_OK;
}

static int run_attach(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    struct cli_attach how = {.input = a->input,
                             .only_new = a->only_new,
                             .offset = {0, a->stdout_offset, a->stderr_offset}};

    if (a->url)
        return attach_url(c, a, operands, err);
    if (!operands[0] || !operands[1])
        return cli_fail(err, BH_INVALID_ARGUMENT, "operands",
                        "too few arguments: bellhop attach NAME ID");
    if (a->token_file || a->name || a->dest)
        return cli_fail(err, BH_INVALID_ARGUMENT, "url",
                        "--name, --dest and --token-file need --url");
    return cli_attach(c, operands[0], operands[1], &how, err);
}

static const struct cli_option attach_options[] = {
    CLI_OPT("interactive", 'i', CLI_FLAG, input, NULL,
            "pass input on, if the command's is open (default for a terminal)"),
    CLI_OPT("new", 'n', CLI_FLAG, only_new, NULL, "print only new output"),
    CLI_OPT("stdout-offset", 0, CLI_SIZE, stdout_offset, "N",
            "print standard output from this byte on"),
    CLI_OPT("stderr-offset", 0, CLI_SIZE, stderr_offset, "N",
            "print standard error from this byte on"),
    CLI_OPT("url", 0, CLI_STR, url, "URL", "attach a box that somebody else runs: its agent's URL"),
    CLI_OPT("name", 0, CLI_STR, name, "NAME", "with --url: the box's name here"),
    CLI_OPT("token-file", 0, CLI_STR, token_file, "FILE", "with --url: the agent's token"),
    CLI_OPT("dest", 0, CLI_STR, dest, "DIR", "with --url: working directory in the box"),
    {0},
};

const struct cli_command cmd_attach = {
    .name = "attach",
    .group = "Work",
    .operands = "NAME ID | --url URL",
    .summary = "show the output of a command that runs; attach a box by its URL",
    .details =
        "Prints the output that is kept, then new output as it comes, until the command ends. The\n"
        "exit status is the command's, as with exec. Any number of clients can attach, and none\n"
        "slows the command down. ^C detaches with status 130, and the command goes on. A command\n"
        "with a terminal (exec -dt) gets every key, ^C too; ^P ^Q detaches from it.\n\n"
        "With --url, an agent (bellhopd) that somebody else runs, anywhere, becomes a box of this "
        "state\n"
        "directory: commands, files and searches work as in any box. Nobody here starts, stops, "
        "pauses or\n"
        "ends it; rm forgets it.",
    .examples = "  id=$(bellhop exec -d api -- make all)\n"
                "  bellhop attach api $id\n"
                "  bellhop exec -dt --id top api -- top; bellhop attach api top\n"
                "  echo yes | bellhop attach -i api $id    # started by exec -d -i\n"
                "  bellhop attach --url https://box.example:8443 --name far --token-file token\n",
    .options = attach_options,
    .args_bytes = sizeof(struct args),
    .max_operands = 2,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_attach,
};
