#pragma once
/* docker_user: the user of a box's image, whose ids the engine does not look up. */
#include <stdint.h>

#include "common/err.h"
#include "lib/provider/provider.h"

struct docker_user {
    char name[64];
    uint32_t uid, gid;
};

/* Of the manifest of the image (image/README.md). */
int docker_user_of(const struct provider_box *b, struct docker_user *ret, struct err *e);
