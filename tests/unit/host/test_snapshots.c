/* Rows of snapshots, and who has which layer. */
#include "store_help.h"

#include <sqlite3.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "lib/box/history.h"
#include "lib/box/store_snapshots.h"

static struct snapshot_row new_row(const char *name, const char *box_id)
{
    struct snapshot_row row = {
        .name = strdup(name), .box_name = strdup("one"), .remote = strdup("")};

    (void)snprintf(row.box_id, sizeof(row.box_id), "%s", box_id);
    return row;
}

/* A snapshot of the box with these layers. */
static struct snapshot_row add_snapshot(struct store *s, const char *name, const char *box_id,
                                        const char *low, const char *high)
{
    struct snapshot_row row = new_row(name, box_id);
    struct err e = {0};

    T_INT(store_add_snapshot(s, &row, &e), 0);
    T_INT(strv_push(&row.layers, low, &e), 0);
    if (high)
        T_INT(strv_push(&row.layers, high, &e), 0);
    row.facts = json_pack("{s:i}", "bytes", 7);
    T_INT(store_finish_snapshot(s, &row, &e), 0);
    return row;
}

static void check_user(struct store *s, const char *layer, bool only_boxes, const char *want)
{
    _cleanup_free_ char *user = NULL;
    struct err e = {0};

    T_INT(store_layer_user(s, layer, only_boxes, &user, &e), 0);
    T_STR(user, want);
}

TEST(a_snapshot_is_found_once_it_is_ready_and_its_name_is_taken_before)
{
    struct store *s = open_here();
    char box[BOX_ID_BYTES];
    struct snapshot_row row, same, found = {0};
    struct err e = {0};

    add(s, "one", box);
    row = new_row("s", box);
    T_INT(store_add_snapshot(s, &row, &e), 0);
    T_INT(store_find_snapshot(s, "s", &found, &e), -ERR_NOT_FOUND);
    T_INT(store_has_snapshot(s, row.id, &e), 1);
    same = new_row("s", box);
    T_INT(store_add_snapshot(s, &same, &e), -ERR_EXISTS);
    T_STR(e.field, "name");
    T_INT(strv_push(&row.layers, "aa", &e), 0);
    row.facts = json_pack("{s:s}", "k", "v");
    T_INT(store_finish_snapshot(s, &row, &e), 0);
    T_INT(store_find_snapshot(s, "s", &found, &e), 0);
    T_STR(found.layers[0], "aa");
    T_STR(json_string_value(json_object_get(found.facts, "k")), "v");
    T_OK(found.is_ready && !found.is_temporary);
    snapshot_row_done(&found);
    T_INT(store_remove_snapshot(s, row.id, &e), 0);
    T_INT(store_remove_snapshot(s, row.id, &e), 0);
    T_INT(store_has_snapshot(s, row.id, &e), 0);
    T_INT(store_finish_snapshot(s, &row, &e), -ERR_ABORTED); /* gc took it for a dead one's */
    check_user(s, "aa", false, NULL);
    snapshot_row_done(&row);
    snapshot_row_done(&same);
    (void)store_close(s);
}

TEST(a_layer_has_users_until_the_last_box_or_snapshot_with_it_is_removed)
{
    struct store *s = open_here();
    char one[BOX_ID_BYTES], two[BOX_ID_BYTES];
    struct snapshot_row low, high;
    struct err e = {0};

    add(s, "one", one);
    add(s, "two", two);
    walk(s, one, BH_STATE_PROVISIONING);
    low = add_snapshot(s, "low", one, "aa", NULL);
    high = add_snapshot(s, "high", one, "aa", "bb");
    check_user(s, "bb", false, "the snapshot 'high'");
    check_user(s, "bb", true, NULL);
    T_INT(store_add_layers(s, two, &low, &e), 0);
    T_INT(store_add_layers(s, two, &high, &e),
          0); /* both, while it is not known which disk it has */
    check_user(s, "bb", true, "the box 'two'");
    T_INT(store_set_layers(s, two, low.layers, &e), 0);
    check_user(s, "bb", true, NULL);
    check_user(s, "aa", true, "the box 'two'");
    T_INT(store_remove_snapshot(s, low.id, &e), 0);
    T_INT(store_remove_snapshot(s, high.id, &e), 0);
    check_user(s, "bb", false, NULL);
    check_user(s, "aa", false, "the box 'two'");
    T_INT(store_add_layers(s, one, &low, &e), -ERR_NOT_FOUND); /* it was removed meanwhile */
    check_user(s, "aa", false, "the box 'two'");
    T_INT(store_remove(s, two, &(struct store_end){.cause = "x"}, &e), 0);
    check_user(s, "aa", false, NULL);
    snapshot_row_done(&low);
    snapshot_row_done(&high);
    (void)store_close(s);
}

static int count_event(void *arg, const struct event_row *event)
{
    size_t *n = arg;

    *n += str_eq(event->kind, "snapshot") && event->before == event->after &&
          str_eq(event->cause, "the snapshot 's'");
    return 0;
}

TEST(a_ready_snapshot_is_an_event_of_its_box_and_outlives_it_as_its_last_one)
{
    struct store *s = open_here();
    char box[BOX_ID_BYTES];
    struct snapshot_row row, fork;
    _cleanup_free_ char *last = NULL, *other = NULL;
    struct err e = {0};
    size_t n = 0;

    add(s, "one", box);
    row = add_snapshot(s, "s", box, "aa", NULL);
    fork = new_row("fork-1", box);
    fork.is_temporary = true;
    T_INT(store_add_snapshot(s, &fork, &e), 0);
    fork.facts = json_object();
    T_INT(store_finish_snapshot(s, &fork, &e), 0);
    T_INT(store_list_events(s, box, 0, count_event, &n, &e), 0);
    T_INT(n, 1);
    T_INT(store_remove(s, box, &(struct store_end){.cause = "x"}, &e), 0);
    T_INT(store_last_snapshot(s, box, &last, &e), 0);
    T_STR(last, "s");
    T_INT(store_last_snapshot(s, "0000000000000000", &other, &e), 0);
    T_STR(other, NULL);
    T_INT(store_not_found(s, "name", "one", &e), -ERR_NOT_FOUND);
    T_OK(strstr(e.message, "'bellhop up --from s'") != NULL);
    snapshot_row_done(&row);
    snapshot_row_done(&fork);
    (void)store_close(s);
}

TEST(the_layers_that_an_older_store_uses_are_known_as_its_own)
{
    struct store *s = open_here();
    struct err e = {0};
    sqlite3 *db = NULL;

    (void)store_close(s);
    T_INT(sqlite3_open("store.db", &db), SQLITE_OK);
    T_INT(sqlite3_exec(db,
                       "DROP TABLE layers; PRAGMA user_version=5;"
                       "INSERT INTO layer_uses VALUES('aa', 'one'), ('aa', 'two'), ('bb', 'one')",
                       NULL, NULL, NULL),
          SQLITE_OK);
    (void)sqlite3_close(db);
    s = open_here();
    T_INT(store_has_layer(s, "aa", &e), 1);
    T_INT(store_has_layer(s, "bb", &e), 1);
    T_INT(store_has_layer(s, "cc", &e), 0);
    T_INT(store_add_layer(s, "cc", &e), 0);
    T_INT(store_has_layer(s, "cc", &e), 1);
    T_INT(store_forget_layer(s, "cc", &e), 0);
    T_INT(store_has_layer(s, "cc", &e), 0);
    (void)store_close(s);
}
