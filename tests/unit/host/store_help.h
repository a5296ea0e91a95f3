#pragma once
/* store_help: a store in the test's directory, and boxes in it. */
#include "test.h"

#include <jansson.h>
#include <string.h>

#include "lib/box/store.h"

static inline struct store *open_here(void)
{
    struct store *s = NULL;
    struct err e = {0};

    if (store_open(".", &s, &e) < 0)
        t_fail(__FILE__, __LINE__, "open: %s", e.message);
    return s;
}

static inline void add(struct store *s, const char *name, char id[BOX_ID_BYTES])
{
    json_t *spec = json_pack("{s:s}", "provider", "process");
    struct box_row row = {0};
    struct err e = {0};

    T_INT(store_add(s, name, spec, NULL, &row, &e), 0);
    T_INT(row.state, BH_STATE_REQUESTED);
    T_INT(strlen(row.id), 16);
    T_OK(!row.made && row.times.created_ms > 0);
    memcpy(id, row.id, BOX_ID_BYTES);
    box_row_done(&row);
    json_decref(spec);
}

static inline void walk(struct store *s, const char *id, enum bh_state to)
{
    struct err e = {0};

    if (store_set_state(s, id, to, "", &e) < 0)
        t_fail(__FILE__, __LINE__, "to %s: %s", bh_state_name(to), e.message);
}
