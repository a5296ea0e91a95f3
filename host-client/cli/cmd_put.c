#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"

#define STDIN_NAME "-"

static int check_local(const char *path, struct bh_error *err)
{
    struct stat st;

    if (!str_eq(path, STDIN_NAME) && stat(path, &st) < 0)
        return cli_fail(err, BH_NOT_FOUND, path, "'%.300s' is not here", path);
    return 0;
}

static bool is_dir_here(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* As cp has it: into what ends with a slash or is a directory there, else under that name. */
static bool is_dir_there(struct bh_box *box, const char *path)
{
    json_t *v = NULL;
    bool is_dir;

    if (str_has_suffix(path, "/"))
        return true;
    if (cli_call_take(box, "Fs/Stat", json_pack("{s:s}", "path", path), &v, NULL) < 0)
        return false;
    is_dir = str_eq(json_string_value(json_object_get(v, "type")), "directory");
    json_decref(v);
    return is_dir;
}

#define PUT_MATCH_MAX_BYTES ((size_t)1 << 30) /* with --if-match the file is read first */

struct put_args {
    const char *if_match;
};

struct put {
    struct bh_box *box;
    const char *dest;
    bool into; /* dest is a directory to put things into */
    uint64_t files, bytes;
};

/* "src" arrives as dest/src, "src/." as what is in it; a file under its own name or dest's. */
static int put_one(struct put *p, const char *source, struct bh_error *err)
{
    struct bh_upload_options o = {.size = sizeof(o), .git = "as-is", .with_secrets = true};
    struct bh_upload_result result = {.size = sizeof(result)};
    _cleanup_free_ char *real = realpath(source, NULL);
    _cleanup_free_ char *below = NULL;
    bool whole = str_has_suffix(source, "/.") || str_eq(source, ".");
    int r;

    if (!real)
        return cli_fail(err, BH_NOT_FOUND, source, "'%.300s' is not here", source);
    if (is_dir_here(real))
        below = p->into && !whole ? path_join(p->dest, path_name(real)) : strdup(p->dest);
    else
        below = p->into ? strdup(p->dest) : path_dir(p->dest);
    if (!below)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    if (!is_dir_here(real) && !p->into)
        o.as = path_name(p->dest);
    o.source = real;
    o.dest = below;
    r = bh_upload(p->box, &o, &result, err);
    p->files += result.files;
    p->bytes += result.bytes;
    free(result.left_out);
    return r;
}

/* All of standard input into a file. A wait for it ends with the cancel descriptor. */
static int spool_stdin(const struct cli *c, int fd, struct err *e)
{
    struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                         {.fd = c->opts.cancel_fd, .events = POLLIN}};
    char data[8192];
    ssize_t n = 1;
    int r;

    while (n > 0) {
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return err_sys(e, errno, "standard input");
        if (p[1].revents)
            return err_set(e, ERR_CANCELED, "interrupted");
        if (!p[0].revents)
            continue;
        n = read(STDIN_FILENO, data, sizeof(data));
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return err_sys(e, errno, "standard input");
        if (n < 0)
            n = 1;
        else if ((r = io_write_all(fd, data, (size_t)n, e)) < 0)
            return r;
    }
    return 0;
}

/* It has no size that is known beforehand: it is kept here first, so that it arrives whole or not. */
static int put_stdin(const struct cli *c, struct put *p, struct bh_error *err)
{
    struct bh_upload_options o = {.size = sizeof(o), .git = "as-is", .with_secrets = true};
    struct bh_upload_result result = {.size = sizeof(result)};
    const char *tmp = getenv("TMPDIR");
    _cleanup_free_ char *path = path_join(tmp && *tmp ? tmp : "/tmp", "bellhop-put-XXXXXX");
    _cleanup_free_ char *below = path_dir(p->dest);
    _cleanup_close_ int fd = -1;
    struct err e = {0};
    int r;

    if (p->into)
        return cli_fail(err, BH_INVALID_ARGUMENT, "dest",
                        "standard input has no name: say it in :PATH");
    fd = path && below ? mkostemp(path, O_CLOEXEC) : -1;
    if (fd < 0 || fchmod(fd, 0644) < 0)
        return cli_fail(err, BH_UNKNOWN, "", "a file for standard input: %m");
    r = spool_stdin(c, fd, &e);
    if (r < 0) {
        r = cli_fail(err, (enum bh_code) - r, "", "%s", e.message);
    } else {
        o.source = path;
        o.dest = below;
        o.as = path_name(p->dest);
        r = bh_upload(p->box, &o, &result, err);
    }
    (void)unlink(path);
    p->files += result.files;
    p->bytes += result.bytes;
    free(result.left_out);
    return r;
}

/* --if-match: one file, in place of the version that has the tag. */
static int put_if_match(struct put *p, const char *source, const char *tag, char *etag,
                        struct bh_error *err)
{
    struct bh_file_write_options o = {
        .size = sizeof(o), .if_match = tag, .digest = true, .mode = 0};
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *data = NULL;
    struct err e = {0};
    size_t len = 0;
    int r;

    if (is_dir_here(source))
        return cli_fail(err, BH_INVALID_ARGUMENT, "if-match",
                        "--if-match is for a file, and '%.300s' is a directory", source);
    if (str_eq(source, STDIN_NAME))
        return cli_fail(err, BH_INVALID_ARGUMENT, "if-match",
                        "--if-match is for a file, not for standard input");
    r = io_read_file(AT_FDCWD, source, PUT_MATCH_MAX_BYTES, &data, &len, &e);
    if (r < 0)
        return cli_fail(err, -r, source, "%s", e.message);
    path = p->into ? path_join(p->dest, path_name(source)) : strdup(p->dest);
    if (!path)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    o.path = path;
    o.data = data;
    o.len = len;
    r = bh_file_write(p->box, &o, etag, err);
    if (r < 0)
        return r;
    p->files++;
    p->bytes += len;
    return 0;
}

static int run_put(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct put_args *a = args;
    size_t n = strv_len(operands);
    char etag[BH_ETAG_BYTES] = "";
    _cleanup_box_ struct bh_box *box = NULL;
    struct put p = {0};
    char size[24];
    int r;

    r = cli_box_path(operands[n - 1], "dest", &p.dest, err);
    if (r == 0 && a->if_match && n > 3)
        r = cli_fail(err, BH_INVALID_ARGUMENT, "if-match", "--if-match is for one file");
    for (size_t i = 1; r == 0 && i + 1 < n; i++)
        r = check_local(operands[i], err);
    if (r == 0)
        r = cli_get_box(c, operands[0], &box, err);
    if (r < 0)
        return r;
    p.box = box;
    p.into = n > 3 || is_dir_there(box, p.dest);
    for (size_t i = 1; r == 0 && i + 1 < n; i++)
        r = a->if_match ? put_if_match(&p, operands[i], a->if_match, etag, err)
            : str_eq(operands[i], STDIN_NAME) ? put_stdin(c, &p, err)
                                              : put_one(&p, operands[i], err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(json_pack("{s:I, s:I, s:s*}", "files", (json_int_t)p.files,
                                             "bytes", (json_int_t)p.bytes, "etag",
                                             *etag ? etag : NULL));
    if (!c->quiet)
        (void)printf("%llu files, %s\n", (unsigned long long)p.files,
                     str_format_size(p.bytes, size, sizeof(size)));
    return EXIT_CLI_OK;
}

static const struct cli_option put_options[] = {
    {"if-match", 0, CLI_STR, offsetof(struct put_args, if_match), "TAG",
     "one FILE, only over the version with this tag ('*': any): status 4", NULL},
    {0},
};

const struct cli_command cmd_put = {
    .name = "put",
    .group = "Files",
    .operands = "NAME FILE... :PATH",
    .summary = "copy files and directories into a box",
    .details =
        "As cp -r does: into PATH when that is a directory, ends with a slash, or there are\n"
        "several FILEs; else under the name PATH. DIR/. stands for what is in DIR. Each\n"
        "FILE or directory arrives whole or not at all; '-' is standard input. 'edit --json' and\n"
        "'put --json' tell a file's tag.",
    .examples = "  bellhop put api notes.txt data :/workspace/\n"
                "  bellhop put api local.cfg :/workspace/app.cfg\n"
                "  git diff | bellhop put api - :/workspace/change.patch\n",
    .options = put_options,
    .args_bytes = sizeof(struct put_args),
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
    r = cli_box_path(operands[1], "path", &path, err);
    if (r == 0)
        r = cli_get_box(c, operands[0], &box, err);
    if (r == 0)
        r = bh_download(box, path, dir, err);
    if (r < 0)
        return r;
    if (c->json)
        return cli_print_json_take(
            json_pack("{s:o, s:o}", "path", jx_new_path(path), "dir", jx_new_path(dir)));
    return EXIT_CLI_OK;
}

const struct cli_command cmd_get = {
    .name = "get",
    .group = "Files",
    .operands = "NAME :PATH [DIR]",
    .summary = "copy a file or directory out of a box",
    .details = "PATH goes into DIR (default: here) under its own name; DIR is made if need be. A "
               "link to a\n"
               "directory arrives as a directory of the link's name, any other link as a link. A "
               "file arrives\n"
               "whole or not at all, and an answer that holds anything else than PATH is refused.",
    .examples = "  bellhop get api :/workspace/report.pdf\n"
                "  bellhop get api :/workspace/src out\n",
    .min_operands = 2,
    .max_operands = 3,
    .flags = CLI_TAKES_BOX,
    .run = run_get,
};

/* ---- cat ---- */

struct cat {
    struct cli_held held;
    int sys; /* why standard output takes no more, an errno */
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
        r = cli_get_box(c, operands[0], &box, err);
    for (char **p = operands + 1; r == 0 && *p; p++) {
        struct bh_file_read_options o = {
            .size = sizeof(o), .path = *p + 1, .write = to_stdout, .arg = &cat};

        r = bh_file_read(box, &o, NULL, err);
        if (!cat.sys)
            (void)put_content(&cat, NULL, 0, true);
    }
    if (fflush(stdout) != 0 && !cat.sys)
        cat.sys = errno;
    if (cat.sys == EPIPE) /* as cat(1): whoever read has had enough */
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
    .flags = CLI_TAKES_BOX,
    .run = run_cat,
};

/* ---- edit ---- */

struct edit_args {
    const char *old_text, *new_text, *if_match;
    uint32_t count;
    bool all, dry_run;
};

#define O(name, letter, type, member, arg, help) \
    { \
        name, letter, type, offsetof(struct edit_args, member), arg, help, NULL \
    }

static int run_edit(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct edit_args *a = args;
    struct bh_edit edit = {a->old_text, a->new_text, a->count, a->all};
    struct bh_edit_options o = {.size = sizeof(o),
                                .edits = &edit,
                                .n_edits = 1,
                                .dry_run = a->dry_run,
                                .if_match = a->if_match};
    struct bh_edit_result result = {.size = sizeof(result)};
    _cleanup_box_ struct bh_box *box = NULL;
    int r = cli_box_path(operands[1], "path", &o.path, err);

    if (r == 0 && (!a->old_text || !a->new_text))
        r = cli_fail(err, BH_INVALID_ARGUMENT, "old",
                     "say what to replace, and by what: --old TEXT --new TEXT");
    if (r == 0)
        r = cli_get_box(c, operands[0], &box, err);
    if (r == 0)
        r = bh_file_edit(box, &o, &result, err);
    if (r < 0)
        return r;
    if (c->json)
        r = cli_print_json_take(json_pack("{s:I, s:s, s:o, s:b}", "replaced",
                                          (json_int_t)result.replaced, "etag", result.etag, "diff",
                                          result.diff ? jx_new_path(result.diff) : json_null(),
                                          "dry_run", (int)a->dry_run));
    else if (result.diff && !c->quiet)
        cli_put_content(result.diff, strlen(result.diff));
    free(result.diff);
    return r;
}

static const struct cli_option edit_options[] = {
    O("old", 0, CLI_STR, old_text, "TEXT", "what is there now; it may span lines"),
    O("new", 0, CLI_STR, new_text, "TEXT", "what is to be there"),
    O("count", 0, CLI_U32, count, "N", "it must be there just N times (default: once)"),
    O("all", 'a', CLI_FLAG, all, NULL, "however often it is there"),
    O("dry-run", 'n', CLI_FLAG, dry_run, NULL, "show what would change, and change nothing"),
    O("if-match", 0, CLI_STR, if_match, "TAG", "only the version with this tag: status 4"),
    {0},
};

const struct cli_command cmd_edit = {
    .name = "edit",
    .group = "Files",
    .operands = "NAME :PATH",
    .summary = "replace text in a file of a box; prints the change as a diff",
    .details =
        "The text is taken literally. When it is not there, or not just so often as was said,\n"
        "nothing is changed and that is an error.",
    .examples = "  bellhop edit api :main.c --old 'int x;' --new 'long x;'\n"
                "  bellhop edit -n api :README.md --old foo --new bar --all\n",
    .options = edit_options,
    .args_bytes = sizeof(struct edit_args),
    .min_operands = 2,
    .max_operands = 2,
    .flags = CLI_TAKES_BOX,
    .run = run_edit,
};
