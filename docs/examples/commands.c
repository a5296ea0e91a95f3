/*
 * commands: starts a detached command, writes to it, reads its output again from the start, ends it.
 *     cc commands.c -o commands -lbellhop && ./commands STATE_DIR CACHE_DIR BOX
 */
#include <bellhop/bellhop.h>
#include <stdio.h>
#include <string.h>

static int print(void *arg, int stream, const char *data, size_t len)
{
    (void)arg;
    return fwrite(data, 1, len, stream == 2 ? stderr : stdout) == len ? 0 : -1;
}

static int show(void *arg, const struct bh_exec_info *info)
{
    (void)arg;
    printf("%s: %s, %s\n", info->id, info->state, info->command);
    return 0;
}

static int use(struct bh_box *box, struct bh_error *e)
{
    struct bh_run_options run = {.size = sizeof(run), .id = "adder", .stdin_open = true};
    struct bh_follow_options follow = {.size = sizeof(follow), .stdin_fd = -1, .output = print};
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_exec *exec = NULL;
    int r;

    run.shell = "while read -r a b; do echo $((a + b)); done; exit 3";
    r = bh_exec_start(box, &run, &exec, e);
    if (r == 0)
        r = bh_exec_write(exec, "20 22\n1 2\n", 10, 0, e);
    if (r == 0)
        r = bh_exec_list(box, show, NULL, e);
    if (r == 0)
        r = bh_exec_wait(exec, 100, &result, e) == -BH_DEADLINE_EXCEEDED ? 0 : -1;
    if (r == 0)
        r = bh_exec_close_stdin(exec, e);
    for (int i = 0; r == 0 && i < 2; i++) {
        bh_exec_seek(exec, 1, 0); /* the second time the agent sends the kept output */
        r = bh_exec_follow(exec, &follow, &result, e);
    }
    if (r == 0)
        printf("%s with %d, %llu KB at most\n", result.reason, result.code,
               (unsigned long long)(result.max_rss_bytes / 1024));
    if (r == 0)
        r = bh_exec_forget(exec, e);
    bh_exec_free(exec);
    return r;
}

int main(int argc, char **argv)
{
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_error e = {0};
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int r;

    if (argc != 4)
        return 2;
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    r = bh_open(&opts, &ctx, &e);
    if (r == 0)
        r = bh_get(ctx, argv[3], &box, &e);
    if (r == 0)
        r = use(box, &e);
    if (r < 0)
        fprintf(stderr, "%s: %s\n", bh_code_name(e.code), e.message);
    bh_box_free(box);
    bh_close(ctx);
    return r < 0 ? 1 : 0;
}
