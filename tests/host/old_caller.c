/*
 * old_caller STATE_DIR CACHE_DIR BOX: a program built against the header of commit 8d21180: the
 * declarations below are that header's. The library must not write past an old struct. Prints the
 * code of bh_get() of a box that was destroyed, or the struct that was overrun.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct bh_error {
    int code;
    int sys;
    char field[96];
    char message[512];
    char step[32];
    char detail[4096];
};
struct bh_progress;
struct bh_options {
    size_t size;
    const char *state_dir;
    const char *cache_dir;
    const char *agent_path;
    const char *monitor_path;
    const char *recipe_dir;
    const char *image_dir;
    int cancel_fd;
    void (*progress)(void *arg, const struct bh_progress *p);
    void *progress_arg;
    bool no_resume;
    const char *npm_registry;
    const char *template_dir;
    const char *image_cache_dir;
    int64_t answer_timeout_ms;
};
struct bh_ctx;
struct bh_box;
const char *bh_code_name(int code);
int bh_open(const struct bh_options *opts, struct bh_ctx **ret_ctx, struct bh_error *err);
void bh_get_options(const struct bh_ctx *ctx, struct bh_options *ret_opts);
struct bh_ctx *bh_close(struct bh_ctx *ctx);
int bh_get(struct bh_ctx *ctx, const char *name, struct bh_box **ret_box, struct bh_error *err);

#define GUARD_BYTES 1024

static struct {
    struct bh_error e;
    char guard[GUARD_BYTES];
} error;
static struct {
    struct bh_options o;
    char guard[GUARD_BYTES];
} options;

static int check_guard(const char *guard, const char *what)
{
    size_t n = 0;

    for (size_t i = 0; i < GUARD_BYTES; i++)
        n += guard[i] != 'G';
    if (n)
        printf("%s: %zu bytes after the struct were written\n", what, n);
    return n != 0;
}

int main(int argc, char **argv)
{
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int bad = 0;

    if (argc != 4)
        return 2;
    memset(error.guard, 'G', GUARD_BYTES);
    memset(&options, 'G', sizeof(options)); /* an old caller need not set its size */
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    if (bh_open(&opts, &ctx, &error.e) < 0) {
        printf("bh_open: %s\n", error.e.message);
        return 1;
    }
    bh_get_options(ctx, &options.o);
    bad |= check_guard(options.guard, "bh_options");
    bad |= strcmp(options.o.state_dir, opts.state_dir) != 0;
    if (bh_get(ctx, argv[3], &box, &error.e) < 0)
        puts(bh_code_name(error.e.code));
    bad |= check_guard(error.guard, "bh_error");
    (void)bh_close(ctx);
    return bad;
}
