#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"

struct args {
    bool dry_run;
    bool delete_extra;
    bool checksum;
    bool with_git;
    bool with_secrets;
    uint32_t max_files;
    char **excludes;
};

static const struct cli_option sync_options[] = {
    CLI_OPT("dry-run", 'n', CLI_FLAG, dry_run, NULL, "print the changes, but make none"),
    CLI_OPT("delete", 0, CLI_FLAG, delete_extra, NULL, "remove files that only the target has"),
    CLI_OPT("checksum", 0, CLI_FLAG, checksum, NULL, "compare contents instead of sizes and times"),
    CLI_OPT("exclude", 0, CLI_LIST, excludes, "GLOB",
            "skip matches of the whole path (with a slash) or a name; repeatable"),
    CLI_OPT("with-git", 0, CLI_FLAG, with_git, NULL, "include the repository's .git"),
    CLI_OPT("with-secrets", 0, CLI_FLAG, with_secrets, NULL,
            "include untracked files that look like secrets"),
    CLI_OPT("max-files", 0, CLI_U32, max_files, "N",
            "limit of files that only the box has (default: 100000)"),
    {0},
};

static int print_change(void *arg, const char *what, const char *name)
{
    (void)arg;
    (void)printf("%s ", what);
    cli_put_name(name, strlen(name));
    return putchar('\n') == EOF;
}

/* "NAME DIR :/dest" or "NAME :/src DIR". */
static int read_operands(char **operands, struct bh_sync_options *o, struct bh_error *err)
{
    bool from = operands[1][0] == ':', to = operands[2][0] == ':';
    const char *remote = operands[from ? 1 : 2];

    if (from == to || !remote[1])
        return cli_fail(err, BH_INVALID_ARGUMENT, "path",
                        "one of '%.100s' and '%.100s' must be a directory here, the other one in "
                        "the box, such as :/workspace",
                        operands[1], operands[2]);
    o->to_local = from;
    o->remote = remote + 1;
    o->local = operands[from ? 2 : 1];
    return 0;
}

static int take_is_there(void *arg, const struct bh_file_info *info)
{
    (void)info;
    *(bool *)arg = true;
    return 0;
}

/* Out of a box, the work is in files and in commits. */
static void print_commits(struct bh_box *box, const struct bh_sync_options *o)
{
    _cleanup_free_ char *git = o->to_local && !o->with_git ? path_join(o->remote, ".git") : NULL;
    bool is_there = false;

    if (git && bh_file_stat(box, git, false, take_is_there, &is_there, NULL) == 0 && is_there)
        (void)printf("commits stayed in the box: --with-git also fetches '%s'\n", cli_text(git));
}

static int print_result(const struct cli *c, bool is_dry, struct bh_box *box,
                        const struct bh_sync_options *o, const struct bh_sync_result *res)
{
    const char *verb = o->to_local ? is_dry ? "fetch" : "fetched" : is_dry ? "send" : "sent";
    char size[24];

    if (c->json)
        return cli_print_json_take(
            json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "dry_run", (int)is_dry, "sent",
                      (json_int_t)res->sent, "sent_bytes", (json_int_t)res->sent_bytes, "removed",
                      (json_int_t)res->removed, "touched", (json_int_t)res->touched, "unchanged",
                      (json_int_t)res->unchanged, "kept", (json_int_t)res->kept));
    if (!c->quiet) {
        (void)printf("%s%s %llu file%s, %s; removed %llu; %llu unchanged", is_dry ? "would " : "",
                     verb, (unsigned long long)res->sent, res->sent == 1 ? "" : "s",
                     str_format_size(res->sent_bytes, size, sizeof(size)),
                     (unsigned long long)res->removed, (unsigned long long)res->unchanged);
        if (res->touched)
            (void)printf("; mode or time of %llu", (unsigned long long)res->touched);
        if (res->kept)
            (void)printf("; kept %llu that only the other side has", (unsigned long long)res->kept);
        (void)printf("\n");
        print_commits(box, o);
    }
    return EXIT_CLI_OK;
}

static int run_sync(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_box_ struct bh_box *box = NULL;
    struct bh_sync_result res = {.size = sizeof(res)};
    struct bh_sync_options o = {
        .size = sizeof(o),
        .dry_run = a->dry_run,
        .delete_extra = a->delete_extra,
        .checksum = a->checksum,
        .with_git = a->with_git,
        .with_secrets = a->with_secrets,
        .max_files = a->max_files,
        .excludes = (const char *const *)a->excludes,
        .change = a->dry_run && !c->json ? print_change : NULL,
    };
    int r = read_operands(operands, &o, err);

    if (r == 0)
        r = bh_get(c->ctx, operands[0], &box, err);
    if (r == 0)
        r = bh_sync(box, &o, &res, err);
    return r < 0 ? r : print_result(c, a->dry_run, box, &o, &res);
}

const struct cli_command cmd_sync = {
    .name = "sync",
    .group = "Files",
    .operands = "NAME FROM TO",
    .summary = "make a directory in a box like one here, or the other way round",
    .details =
        "FROM and TO are a local directory and, with a colon, a directory in the box. Files that\n"
        "differ in size or time are sent; if only the time differs, the content decides. Files "
        "that\n"
        "were removed from FROM since the last sync of the pair are removed from TO. Files that "
        "only\n"
        "TO has are kept, unless --delete is given. Files that .gitignore or .bellhopignore "
        "excludes\n"
        "are neither sent nor removed, and .git stays as it is on both sides. A sync into a box "
        "is\n"
        "all or nothing. Out of a box each file is put in place whole, and the next sync finishes "
        "an\n"
        "interrupted one.\n"
        "\n"
        "Out of a box, a name that git could take for a repository (.git in any case) is an error\n"
        "that changes nothing. With --with-git the box's .git is sent too, and git runs the hooks "
        "and\n"
        "the programs that its configuration names: use it only with a box that you trust.\n"
        "The box may have 100,000 files more than the local side; --max-files raises this limit.",
    .examples = "  bellhop sync api . :/workspace\n"
                "  bellhop sync api :/workspace . -n\n",
    .options = sync_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 3,
    .max_operands = 3,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_sync,
};
