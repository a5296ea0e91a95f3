/* connect: attaches by URL to a guest agent that runs already, for example in a container or a cloud.
 *     cc connect.c -o connect -lbellhop && ./connect STATE_DIR CACHE_DIR URL TOKEN WORKDIR */
#include <bellhop/bellhop.h>
#include <stdio.h>
#include <stdlib.h>

static int print(void *arg, int stream, const char *data, size_t len)
{
    (void)arg;
    return fwrite(data, 1, len, stream == 2 ? stderr : stdout) == len ? 0 : -1;
}

static int use(struct bh_box *box, struct bh_error *e)
{
    struct bh_run_options run = {.size = sizeof(run),
                                 .shell = "echo $GREETING from $BELLHOP_BOX; cat note.txt",
                                 .stdin_fd = -1,
                                 .timeout_ms = 60000,
                                 .output = print};
    struct bh_run_result result = {.size = sizeof(result)};

    if (bh_write(box, "note.txt", "kept\n", 5, 0644, e) < 0 || bh_run(box, &run, &result, e) < 0 ||
        bh_health(box, 0, e) < 0)
        return -1;
    printf("%s with %d; its agent: %s\n", result.reason, result.code, bh_box_info(box)->guest_url);
    return 0;
}

/* The lifecycle of an attached box is not managed here: this must fail. */
static void try_to_end(struct bh_box *box)
{
    struct bh_error e;
    char *url;

    printf("stop: %s\n", bh_code_name(bh_stop(box, 0, &e)));
    printf("destroy: %s\n", bh_code_name(bh_destroy(box, 0, &e)));
    printf("start: %s\n", bh_code_name(bh_start(box, 0, &e)));
    printf("extend: %s\n", bh_code_name(bh_extend(box, 60000, NULL, &e)));
    printf("url: %s\n", bh_code_name(bh_get_url(box, 8080, &url, &e)));
}

int main(int argc, char **argv)
{
    const char *const env[] = {"GREETING=hello", NULL};
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_connect_options connect = {.size = sizeof(connect), .name = "there", .env = env};
    struct bh_error e;
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int r = -1;

    if (argc != 6)
        return 2;
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    connect.url = argv[3];
    connect.token = argv[4];
    connect.workdir = argv[5];
    connect.timeout_ms = 5000;
    if (bh_open(&opts, &ctx, &e) == 0 && bh_connect(ctx, &connect, &box, &e) == 0)
        r = use(box, &e);
    if (r < 0)
        fprintf(stderr, "%s: %s\n", bh_code_name(e.code), e.message);
    else
        try_to_end(box);
    bh_box_free(box);
    bh_close(ctx);
    return r < 0 ? 1 : 0;
}
