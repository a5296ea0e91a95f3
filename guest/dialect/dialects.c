#include "dialect/dialects.h"

#include <stddef.h>

#include "dialect/e2b/e2b.h"
#include "dialect/sandboxd/sandboxd.h"

const struct dialect *const dialects[] = {
    &native_dialect,
    &e2b_dialect,
    &sandboxd_dialect,
    NULL,
};
