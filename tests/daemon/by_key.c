/* by_key STATE_DIR DAEMON TOKEN KEY: prints the name of the box that has the key, by the library, or its error. */
#include <stdio.h>

#include "bellhop/bellhop.h"

int main(int argc, char **argv)
{
    const struct bh_options opts = {.size = sizeof(opts),
                                    .state_dir = argc == 5 ? argv[1] : "",
                                    .cache_dir = argv[1],
                                    .daemon = argc == 5 && *argv[2] ? argv[2] : NULL,
                                    .daemon_token = argc == 5 && *argv[3] ? argv[3] : NULL};
    struct bh_error e = {0};
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int r = bh_open(&opts, &ctx, &e);

    if (r == 0)
        r = bh_get_by_key(ctx, argv[4], &box, &e);
    if (r == 0)
        printf("%s\n", bh_box_summary(box)->name);
    else
        printf("%s %s%s\n", bh_code_name(e.code), e.field, bh_error_gone(&e, NULL) ? " gone" : "");
    bh_box_free(box);
    bh_close(ctx);
    return r < 0;
}
