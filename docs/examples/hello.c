/* hello: makes a box from a directory, runs a command in it, writes and reads a file, removes it.
 *     cc hello.c -o hello -lbellhop && ./hello STATE_DIR CACHE_DIR PROVIDER PROJECT */
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
    const char *const argv[] = {"sh", "-c", "echo hello from $BELLHOP_BOX; ls", NULL};
    struct bh_run_options run = {
        .size = sizeof(run), .argv = argv, .stdin_fd = -1, .output = print};
    struct bh_run_result result = {.size = sizeof(result)};
    char *text, *url;
    size_t len;

    if (bh_run(box, &run, &result, e) < 0)
        return -1;
    printf("%s with %d after %lld ms\n", result.reason, result.code, (long long)result.wall_ms);

    if (bh_write(box, "note.txt", "kept\n", 5, 0644, e) < 0 ||
        bh_read(box, "note.txt", 4096, &text, &len, e) < 0 || bh_get_url(box, 8080, &url, e) < 0)
        return -1;
    printf("note.txt has %zu bytes: %sport 8080 of the box is %s\n", len, text, url);
    free(text);
    free(url);
    return 0;
}

int main(int argc, char **argv)
{
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_create_options create = {.size = sizeof(create), .name = "hello"};
    struct bh_error e;
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int r = -1;

    if (argc != 5)
        return 2;
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    create.provider = argv[3];
    create.project = argv[4];
    if (bh_open(&opts, &ctx, &e) == 0 && bh_create(ctx, &create, &box, &e) == 0) {
        r = use(box, &e);
        if (bh_destroy(box, 0, r < 0 ? NULL : &e) < 0) /* keep the first error */
            r = -1;
    }
    if (r < 0)
        fprintf(stderr, "%s: %s\n", bh_code_name(e.code), e.message);
    bh_box_free(box);
    bh_close(ctx);
    return r < 0 ? 1 : 0;
}
