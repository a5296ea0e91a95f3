#include "lib/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/path.h"

#include "common/banned.h"

int image_resolve(const struct bh_ctx *ctx, const char *image, char **ret_dir, struct err *e)
{
    bool is_path = strchr(image, '/') || strcmp(image, ".") == 0 || strcmp(image, "..") == 0;
    _cleanup_free_ char *dir = is_path ? strdup(image) : path_join(ctx->image_dir, image);
    _cleanup_free_ char *real = dir ? realpath(dir, NULL) : NULL;
    _cleanup_free_ char *rootfs = real ? path_join(real, "rootfs") : NULL;
    struct stat st;

    if (!dir || (real && !rootfs))
        return err_oom(e);
    if (!real && !is_path)
        return err_field(e, ERR_NOT_FOUND, "image",
                         "there is no image '%.100s' in '%.200s' ('make image' builds 'slim')",
                         image, ctx->image_dir);
    if (!real)
        return err_at(e, err_sys(e, errno, "image '%.300s'", image), "image");
    if (stat(rootfs, &st) < 0 || !S_ISDIR(st.st_mode))
        return err_field(e, ERR_NOT_FOUND, "image", "image '%.300s' has no directory 'rootfs'",
                         image);
    *ret_dir = TAKE(real);
    return 0;
}
