#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

#include "common/banned.h"

/* ":/path" is a path in the box. */
static int box_path(const char *word, const char *field, const char **ret, struct bh_error *err)
{
    if (word[0] != ':' || !word[1])
        return cli_fail(err, BH_INVALID_ARGUMENT, field,
                        "'%.200s': a path in the box starts with a colon, such as :/workspace",
                        word);
    *ret = word + 1;
    return 0;
}

static int check_local(const char *path, struct bh_error *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return cli_fail(err, BH_NOT_FOUND, path, "'%.300s' is not here", path);
    return 0;
}

static int run_put(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    size_t n = strv_len(operands);
    uint64_t files = 0, bytes = 0;
    _cleanup_box_ struct bh_box *box = NULL;
    const char *dest = NULL;
    char size[24];
    int r;

    (void)args;
    r = box_path(operands[n - 1], "dest", &dest, err);
    for (size_t i = 1; r == 0 && i + 1 < n; i++)
        r = check_local(operands[i], err);
    if (r == 0)
        r = cli_get_box(c, operands[0], &box, err);
    for (size_t i = 1; r == 0 && i + 1 < n; i++) {
        struct bh_upload_options o = {.size = sizeof(o), .git = "as-is", .with_secrets = true};
        struct bh_upload_result result = {.size = sizeof(result)};

        o.source = operands[i];
        o.dest = dest;
        r = bh_upload(box, &o, &result, err);
        files += result.files;
        bytes += result.bytes;
        free(result.left_out);
    }
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(
            json_pack("{s:I, s:I}", "files", (json_int_t)files, "bytes", (json_int_t)bytes));
    if (!c->quiet)
        (void)printf("%llu files, %s\n", (unsigned long long)files,
                     str_format_size(bytes, size, sizeof(size)));
    return EXIT_CLI_OK;
}

const struct cli_command cmd_put = {
    .name = "put",
    .group = "Files",
    .operands = "NAME FILE... :DIR",
    .summary = "copy files and directories into a box",
    .details = "Each FILE or directory goes into the directory DIR, which is made when it is not\n"
               "there. A directory's content arrives whole or not at all.",
    .examples = "  bellhop put api notes.txt data/ :/workspace\n",
    .min_operands = 3,
    .max_operands = 4096,
    .flags = CLI_TAKES_BOX,
    .run = run_put,
};

static int run_get(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const char *dir = operands[2] ? operands[2] : ".";
    _cleanup_box_ struct bh_box *box = NULL;
    const char *path = NULL;
    int r;

    (void)args;
    r = box_path(operands[1], "path", &path, err);
    if (r == 0)
        r = cli_get_box(c, operands[0], &box, err);
    if (r == 0)
        r = bh_download(box, path, dir, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:s, s:s}", "path", path, "dir", dir));
    return EXIT_CLI_OK;
}

const struct cli_command cmd_get = {
    .name = "get",
    .group = "Files",
    .operands = "NAME :PATH [DIR]",
    .summary = "copy a file or directory out of a box",
    .details = "PATH goes into DIR (default: here) under its own name; DIR is made if need be.",
    .examples = "  bellhop get api :/workspace/report.pdf\n"
                "  bellhop get api :/workspace/src out\n",
    .min_operands = 2,
    .max_operands = 3,
    .flags = CLI_TAKES_BOX,
    .run = run_get,
};
