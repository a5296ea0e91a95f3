/*
 * files_client STATE_DIR CACHE_DIR URL get PATH DIR
 * files_client STATE_DIR CACHE_DIR URL sync REMOTE LOCAL [delete] [git] [exclude=GLOB]
 * Files of an agent that is there already, into a directory of this machine; prints "ok", or the
 * error's code, field and message.
 */
#include <bellhop/bellhop.h>
#include <stdio.h>
#include <string.h>

static int sync_down(struct bh_box *box, char **argv, struct bh_error *e)
{
    struct bh_sync_options o = {
        .size = sizeof(o), .remote = argv[5], .local = argv[6], .to_local = true};
    struct bh_sync_result result = {.size = sizeof(result)};
    const char *excludes[2] = {NULL, NULL};

    for (char **p = argv + 7; *p; p++) {
        o.delete_extra = o.delete_extra || strcmp(*p, "delete") == 0;
        o.with_git = o.with_git || strcmp(*p, "git") == 0;
        if (strncmp(*p, "exclude=", 8) == 0)
            excludes[0] = *p + 8;
    }
    o.excludes = excludes;
    return bh_sync(box, &o, &result, e);
}

int main(int argc, char **argv)
{
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_connect_options connect = {.size = sizeof(connect), .name = "there"};
    struct bh_error e;
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int r = -1;

    if (argc < 7)
        return 2;
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    connect.url = argv[3];
    connect.workdir = "/workspace";
    connect.timeout_ms = 30000;
    if (bh_open(&opts, &ctx, &e) == 0 && bh_connect(ctx, &connect, &box, &e) == 0)
        r = strcmp(argv[4], "get") == 0 ? bh_download(box, argv[5], argv[6], &e)
                                        : sync_down(box, argv, &e);
    if (r < 0)
        printf("%s: %s: %s\n", bh_code_name(e.code), e.field, e.message);
    else
        printf("ok\n");
    bh_box_free(box);
    bh_close(ctx);
    return r < 0 ? 1 : 0;
}
