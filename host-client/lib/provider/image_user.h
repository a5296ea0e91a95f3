#pragma once
/* image_user: the user of a box's image, whose ids an engine does not look up. */
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/provider.h"

struct image_user {
    char name[64];
    char home[128]; /* absolute */
    uint32_t uid, gid;
    char ref[160]; /* "NAME:VERSION" of the image itself; "" in one of an older form */
};

/* Of the manifest of the image (image/README.md). */
int image_user_of(const struct spec *spec, struct image_user *ret, struct err *e);
