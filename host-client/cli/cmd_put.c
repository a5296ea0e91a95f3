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
        return cli_fail(err, BH_NOT_FOUND, path, "'%.300s' does not exist on this machine", path);
    return 0;
}

static bool is_dir_here(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int take_is_dir(void *arg, const struct bh_file_info *info)
{
    *(bool *)arg = str_eq(info->type, "directory");
    return 0;
}

/* As with cp, the destination is a directory if it ends with a slash or is one in the box; else a
 * name. */
static bool is_dir_there(struct bh_box *box, const char *path)
{
    bool is_dir = str_has_suffix(path, "/");

    if (!is_dir)
        (void)bh_file_stat(box, path, false, take_is_dir, &is_dir, NULL);
    return is_dir;
}

#define PUT_MATCH_MAX_BYTES ((size_t)1 << 30) /* with --if-match the file is read into memory */

struct args {
    const char *if_match;
};

struct put {
    struct bh_box *box;
    const char *dest;
    bool into; /* dest is a directory */
    uint64_t files, bytes;
};

/* "src" becomes dest/src, and "src/." the content of dest; a file keeps its name or gets that of
 * dest. */
static int put_one(struct put *p, const char *source, struct bh_error *err)
{
    struct bh_upload_options o = {.size = sizeof(o), .git = "as-is", .with_secrets = true};
    struct bh_upload_result result = {.size = sizeof(result)};
    _cleanup_free_ char *real = realpath(source, NULL);
    _cleanup_free_ char *below = NULL;
    bool whole = str_has_suffix(source, "/.") || str_eq(source, ".");
    int r;

    if (!real)
        return cli_fail(err, BH_NOT_FOUND, source, "'%.300s' does not exist on this machine",
                        source);
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

/* Copies standard input to a file; the cancel descriptor ends the wait. */
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

/* Standard input has no known size: it is spooled to a file, so that the upload is all or
 * nothing. */
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

/* --if-match: replaces one file if it has the tag. */
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
    const struct args *a = args;
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
        r = bh_get(c->ctx, operands[0], &box, err);
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
        (void)printf("%llu file%s, %s\n", (unsigned long long)p.files, p.files == 1 ? "" : "s",
                     str_format_size(p.bytes, size, sizeof(size)));
    return EXIT_CLI_OK;
}

static const struct cli_option put_options[] = {
    CLI_OPT("if-match", 0, CLI_STR, if_match, "TAG",
            "for one FILE: replace only this version ('*': any), else status 4"),
    {0},
};

const struct cli_command cmd_put = {
    .name = "put",
    .group = "Files",
    .operands = "NAME FILE... :PATH",
    .summary = "copy files and directories into a box",
    .details = "Works like cp -r: FILE goes into PATH if PATH is a directory, ends with a slash, "
               "or there\n"
               "are several FILEs; otherwise it gets the name PATH. DIR/. is the content of DIR, "
               "and '-' is\n"
               "standard input. Each FILE or directory arrives whole or not at all. The upload of "
               "a large\n"
               "file resumes after a broken connection. 'edit --json' and 'put --json' print a "
               "file's tag.",
    .examples = "  bellhop put api notes.txt data :/workspace/\n"
                "  bellhop put api local.cfg :/workspace/app.cfg\n"
                "  git diff | bellhop put api - :/workspace/change.patch\n",
    .options = put_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 3,
    .max_operands = 4096,
    .flags = CLI_TAKES_BOX | CLI_CHANGES | CLI_AT_DAEMON,
    .run = run_put,
};
