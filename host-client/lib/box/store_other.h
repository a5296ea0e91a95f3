#pragma once
/*
 * store_other: a look into the store of another state directory. It changes nothing there, makes no
 * file, and waits for nobody.
 */
#include "common/err.h"

enum store_other {
    STORE_OTHER_HAS, /* a row of that id; its destroyed boxes do not count */
    STORE_OTHER_LACKS,
    STORE_OTHER_GONE,   /* there is no store */
    STORE_OTHER_CLOSED, /* it is another user's, or cannot be read */
};

enum store_other store_other_find(const char *state_dir, const char *id);
