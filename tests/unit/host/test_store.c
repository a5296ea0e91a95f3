#include "test.h"

#include <fcntl.h>
#include <sqlite3.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "lib/box/history.h"
#include "lib/box/store.h"
#include "store_help.h"

TEST(a_name_is_taken_once)
{
    struct store *s = open_here();
    json_t *spec = json_object();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    T_INT(store_add(s, "a", spec, NULL, &row, &e), -ERR_EXISTS);
    T_STR(e.field, "name");
    T_OK(!row.name);
    json_decref(spec);
    (void)store_close(s);
}

TEST(what_is_written_is_read_by_another_who_opens_the_store)
{
    struct store *s = open_here();
    struct store *other = open_here();
    json_t *agent = json_pack("{s:s, s:i}", "name", "opencode", "port", 7777);
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    T_INT(store_set_agent(s, id, agent, &e), 0);
    T_INT(store_set_port(s, id, 7777, 40123, &e), 0);
    T_INT(store_set_port(s, id, 80, 40124, &e), 0);
    T_INT(store_set_deadline(s, id, 123456, store_now_ms(s), &e), 0);
    T_INT(store_find(other, "a", &row, &e), 0);
    T_STR(row.id, id);
    T_INT(json_integer_value(json_object_get(row.ports, "7777")), 40123);
    T_INT(json_integer_value(json_object_get(row.ports, "80")), 40124);
    T_INT(json_integer_value(json_object_get(row.agent, "port")), 7777);
    T_INT(row.deadline_ms, 123456);
    box_row_done(&row);
    json_decref(agent);
    (void)store_close(s);
    (void)store_close(other);
}

static int64_t earlier_by_a_day(void *arg)
{
    (void)arg;
    return clock_real_ms() - 24 * 3600 * 1000;
}

TEST(a_stop_since_a_mark_is_found_also_after_a_restart_and_when_the_clock_was_set_back)
{
    struct store *s = open_here();
    _cleanup_free_ char *cause = NULL;
    struct err e = {0};
    int64_t mark = 0;
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    for (int state = BH_STATE_PROVISIONING; state <= BH_STATE_RUNNING; state++)
        walk(s, id, (enum bh_state)state);
    walk(s, id, BH_STATE_STOPPING);
    walk(s, id, BH_STATE_STOPPED);
    walk(s, id, BH_STATE_PROVISIONING);
    walk(s, id, BH_STATE_BOOTSTRAPPING);
    walk(s, id, BH_STATE_RUNNING);
    store_set_clock(s, earlier_by_a_day, NULL);
    T_INT(store_last_event(s, id, &mark, &e), 0);
    walk(s, id, BH_STATE_PAUSING);
    walk(s, id, BH_STATE_PAUSED);
    T_INT(store_find_stop(s, id, mark, &cause, &e), 0); /* neither the stop before, nor a pause */
    T_OK(!cause);
    T_INT(store_set_state(s, id, BH_STATE_STOPPING, "why", &e), 0);
    walk(s, id, BH_STATE_STOPPED);
    walk(s, id, BH_STATE_PROVISIONING);
    T_INT(store_find_stop(s, id, mark, &cause, &e), 1);
    T_STR(cause, "why");
    T_INT(store_last_event(s, "0000000000000000", &mark, &e), 0);
    T_INT(mark, 0);
    (void)store_close(s);
}

TEST(an_edge_that_is_not_in_the_table_changes_nothing)
{
    struct store *s = open_here();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    T_INT(store_set_state(s, id, BH_STATE_RUNNING, "", &e), -ERR_PRECONDITION);
    T_STR(e.field, "state");
    T_INT(store_get(s, id, &row, &e), 0);
    T_INT(row.state, BH_STATE_REQUESTED);
    box_row_done(&row);
    (void)store_close(s);
}

TEST(a_box_that_was_running_once_is_made_and_a_stopped_one_has_no_deadline)
{
    struct store *s = open_here();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    walk(s, id, BH_STATE_PROVISIONING);
    walk(s, id, BH_STATE_BOOTSTRAPPING);
    walk(s, id, BH_STATE_RUNNING);
    T_INT(store_set_deadline(s, id, 99, store_now_ms(s), &e), 0);
    walk(s, id, BH_STATE_STOPPING);
    T_INT(store_set_state(s, id, BH_STATE_STOPPED, "because", &e), 0);
    T_INT(store_get(s, id, &row, &e), 0);
    T_OK(row.made);
    T_STR(row.cause, "because");
    T_INT(row.deadline_ms, 0);
    box_row_done(&row);
    (void)store_close(s);
}

TEST(what_is_removed_is_not_found_and_setting_it_is_an_error)
{
    struct store *s = open_here();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    T_INT(store_remove(s, id, &(struct store_end){.cause = "because"}, &e), 0);
    T_INT(store_find(s, "a", &row, &e), -ERR_NOT_FOUND);
    T_INT(store_get(s, id, &row, &e), -ERR_NOT_FOUND);
    T_INT(store_set_deadline(s, id, 1, store_now_ms(s), &e), -ERR_NOT_FOUND);
    T_INT(store_set_state(s, id, BH_STATE_ERROR, "", &e), -ERR_NOT_FOUND);
    (void)store_close(s);
}

static int note(void *arg, struct box_row *row)
{
    char *names = arg;

    (void)strncat(names, row->name, 8);
    return row->name[0] == 'x' ? 7 : 0;
}

TEST(the_list_is_by_name_and_ends_when_its_receiver_says_so)
{
    struct store *s = open_here();
    struct err e = {0};
    char id[BOX_ID_BYTES];
    char names[64] = "";

    add(s, "c", id);
    add(s, "a", id);
    T_INT(store_list(s, note, names, &e), 0);
    T_STR(names, "ac");
    add(s, "x", id);
    add(s, "z", id);
    names[0] = '\0';
    T_INT(store_list(s, note, names, &e), 7);
    T_STR(names, "acx");
    (void)store_close(s);
}

struct list_count {
    struct store *s;
    bool removes;
    int n;
    char last[16];
};

static int count_and_remove(void *arg, struct box_row *row)
{
    struct store_end end = {.cause = "in its list"};
    struct list_count *c = arg;

    T_OK(strcmp(row->name, c->last) > 0);
    (void)snprintf(c->last, sizeof(c->last), "%s", row->name);
    c->n++;
    return c->removes ? store_remove(c->s, row->id, &end, NULL) : 0;
}

static int count_some(struct store *s, const struct store_filter *f)
{
    struct list_count c = {.s = s};

    T_INT(store_list_some(s, f, count_and_remove, &c, NULL), 0);
    return c.n;
}

TEST(a_list_is_of_any_length_has_filters_and_stands_that_its_boxes_are_removed_meanwhile)
{
    struct store *s = open_here();
    struct list_count c = {.s = s, .removes = true};
    char name[16], id[BOX_ID_BYTES];
    struct err e = {0};

    for (int i = 0; i < 200; i++) {
        json_t *spec = json_pack("{s:[s,s]}", "labels", i % 2 ? "odd=1" : "odd=0", "ab");
        struct box_row row = {0};

        (void)snprintf(name, sizeof(name), "b%03d", i);
        T_INT(store_add(s, name, spec, NULL, &row, &e), 0);
        memcpy(id, row.id, sizeof(id));
        box_row_done(&row);
        json_decref(spec);
    }
    walk(s, id, BH_STATE_PROVISIONING);
    T_INT(count_some(s, &(struct store_filter){0}), 200);
    T_INT(count_some(s, &(struct store_filter){.after = "b049"}), 150);
    T_INT(count_some(s, &(struct store_filter){.states = "running,provisioning"}), 1);
    T_INT(count_some(s, &(struct store_filter){.states = "provision"}), 0);
    T_INT(count_some(s, &(struct store_filter){.states = "requested,running"}), 199);
    T_INT(count_some(s, &(struct store_filter){.label = "odd=1"}), 100);
    T_INT(count_some(s, &(struct store_filter){.label = "odd"}), 200);
    T_INT(count_some(s, &(struct store_filter){.label = "od"}), 0);
    T_INT(count_some(s, &(struct store_filter){.label = "ab"}), 200);
    T_INT(count_some(s, &(struct store_filter){.label = "odd=", .after = ""}), 0);
    T_INT(count_some(
              s, &(struct store_filter){.label = "odd=0", .after = "b099", .states = "requested"}),
          50);
    T_INT(store_list(s, count_and_remove, &c, &e), 0);
    T_INT(c.n, 200);
    T_INT(count_some(s, &(struct store_filter){0}), 0);
    (void)store_close(s);
}

TEST(a_store_of_a_later_version_is_refused)
{
    struct err e = {0};
    struct store *s = open_here();
    sqlite3 *db = NULL;

    (void)store_close(s);
    T_INT(sqlite3_open("store.db", &db), SQLITE_OK);
    T_INT(sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    T_INT(store_open(".", &s, &e), -ERR_PRECONDITION);
    T_OK(strstr(e.message, "99"));
}

TEST(a_store_that_is_no_database_is_refused)
{
    char junk[8192];
    struct store *s = NULL;
    struct err e = {0};

    memset(junk, 'x', sizeof(junk));
    T_INT(io_write_file(AT_FDCWD, "store.db", junk, sizeof(junk), 0600, false, &e), 0);
    T_INT(store_open(".", &s, &e), -ERR_DATA_LOSS);
}

TEST(many_processes_that_open_a_new_store_at_once_all_can)
{
    pid_t pids[12];
    int status;

    for (size_t i = 0; i < 12; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct store *s = NULL;
            struct err e = {0};
            json_t *spec = json_object();
            struct box_row row = {0};
            char name[16];

            (void)snprintf(name, sizeof(name), "box%zu", i);
            if (store_open(".", &s, &e) < 0 || store_add(s, name, spec, NULL, &row, &e) < 0) {
                (void)fprintf(stderr, "# %s\n", e.message);
                _exit(1);
            }
            _exit(0);
        }
    }
    for (size_t i = 0; i < 12; i++) {
        T_OK(waitpid(pids[i], &status, 0) == pids[i]);
        T_INT(status, 0);
    }
}

TEST(a_writer_that_is_killed_leaves_a_store_that_opens)
{
    struct store *s = open_here();
    struct err e = {0};
    char id[BOX_ID_BYTES];
    int p[2];
    pid_t pid;
    char byte;

    add(s, "a", id);
    (void)store_close(s);
    T_INT(pipe(p), 0);
    pid = fork();
    if (pid == 0) {
        s = open_here();
        for (int64_t i = 1;; i++) {
            (void)store_set_deadline(s, id, i, store_now_ms(s), NULL);
            if (i == 5)
                (void)!write(p[1], "x", 1);
        }
    }
    T_INT(read(p[0], &byte, 1), 1);
    (void)kill(pid, SIGKILL);
    T_OK(waitpid(pid, NULL, 0) == pid);
    s = open_here();
    {
        struct box_row row = {0};

        T_INT(store_find(s, "a", &row, &e), 0);
        T_OK(row.deadline_ms >= 5);
        box_row_done(&row);
    }
    (void)store_close(s);
}

TEST(a_lock_is_held_by_one_and_its_waiter_sees_the_deadline)
{
    struct store *s = open_here();
    struct err e = {0};
    int a = -1;
    int b = -1;

    T_INT(store_lock_name(s, "a", clock_mono_ms() + 60000, -1, &a, &e), 0);
    T_INT(store_lock_name(s, "a", clock_mono_ms() + 60, -1, &b, &e), -ERR_DEADLINE);
    T_INT(store_lock_name(s, "b", clock_mono_ms() + 60000, -1, &b, &e), 0);
    fd_close(b);
    fd_close(a);
    T_INT(store_lock_name(s, "a", clock_mono_ms() + 60000, -1, &a, &e), 0);
    fd_close(a);
    (void)store_close(s);
}

TEST(waiting_for_a_lock_can_be_canceled)
{
    struct store *s = open_here();
    struct err e = {0};
    int a = -1;
    int b = -1;
    int p[2];

    T_INT(pipe(p), 0);
    T_INT(write(p[1], "x", 1), 1);
    T_INT(store_lock_name(s, "a", 0, -1, &a, &e), 0);
    T_INT(store_lock_name(s, "a", 0, p[0], &b, &e), -ERR_CANCELED);
    fd_close(a);
    (void)store_close(s);
}

TEST(a_lock_whose_file_was_removed_by_its_owner_is_taken_anew)
{
    struct store *s = open_here();
    struct err e = {0};
    int a = -1;
    int b = -1;
    int c = -1;

    T_INT(store_lock_name(s, "a", 0, -1, &a, &e), 0);
    store_forget_lock(s, "a");
    T_OK(access("locks/a", F_OK) < 0);
    T_INT(store_lock_name(s, "a", clock_mono_ms() + 60000, -1, &b, &e), 0);
    T_INT(store_lock_name(s, "a", clock_mono_ms() + 40, -1, &c, &e), -ERR_DEADLINE);
    fd_close(a);
    fd_close(b);
    (void)store_close(s);
}

/* A store as the program before made it: its boxes are there, their project is not known. */
TEST(a_store_of_version_1_is_opened_and_its_boxes_have_no_known_project)
{
    static const char sql[] =
        "PRAGMA journal_mode=WAL;"
        "CREATE TABLE boxes(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
        " state TEXT NOT NULL, cause TEXT NOT NULL DEFAULT '',"
        " created_ms INTEGER NOT NULL, state_since_ms INTEGER NOT NULL,"
        " deadline_ms INTEGER NOT NULL DEFAULT 0, made INTEGER NOT NULL DEFAULT 0,"
        " spec TEXT NOT NULL, agent TEXT NOT NULL DEFAULT '{}',"
        " ports TEXT NOT NULL DEFAULT '{}') STRICT;"
        "INSERT INTO boxes VALUES('0123456789abcdef', 'old', 'stopped', 'because', 1, 2, 0, 1,"
        " '{}', '{}', '{\"0\":40123}');"
        "PRAGMA user_version=1;";
    struct box_row row = {0};
    struct store *s = NULL;
    struct err e = {0};
    sqlite3 *db = NULL;

    T_INT(sqlite3_open("store.db", &db), SQLITE_OK);
    T_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    for (int i = 0; i < 2; i++) { /* the second finds it as it is now */
        s = open_here();
        T_INT(store_find(s, "old", &row, &e), 0);
        T_INT(row.state, BH_STATE_STOPPED);
        T_STR(row.cause, "because");
        T_OK(!row.project);
        T_STR(row.remote, "");
        T_INT(json_integer_value(json_object_get(row.ports, "0")), 40123);
        box_row_done(&row);
        (void)store_close(s);
    }
    s = open_here();
    T_INT(store_set_project(s, "0123456789abcdef", "/a/app", "https://host/app", &e), 0);
    T_INT(store_find(s, "old", &row, &e), 0);
    T_STR(row.project, "/a/app");
    T_STR(row.remote, "https://host/app");
    box_row_done(&row);
    (void)store_close(s);
}

TEST(a_box_whose_start_failed_has_no_lease_and_is_not_live)
{
    struct store *s = open_here();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    walk(s, id, BH_STATE_PROVISIONING);
    T_INT(store_set_deadline(s, id, clock_real_ms() + 60000, store_now_ms(s), &e), 0);
    walk(s, id, BH_STATE_BOOTSTRAPPING);
    walk(s, id, BH_STATE_ERROR);
    T_INT(store_get(s, id, &row, &e), 0);
    T_OK(box_row_is_live(&row));
    box_row_done(&row);
    walk(s, id, BH_STATE_STOPPING);
    walk(s, id, BH_STATE_ERROR);
    T_INT(store_get(s, id, &row, &e), 0);
    T_OK(!box_row_is_live(&row));
    T_INT(row.deadline_ms, 0);
    box_row_done(&row);
    walk(s, id, BH_STATE_PROVISIONING);
    (void)store_close(s);
}

/* ---- a box that takes another's place ---- */

/* Adds a stopped box with a key, sets it aside and begins the one that takes its place. */
static void begin_replacement(struct store *s, char old[BOX_ID_BYTES], char id[BOX_ID_BYTES])
{
    json_t *spec = json_pack("{s:s}", "provider", "process");
    struct box_row row = {0};
    struct err e = {0};

    add(s, "a", old);
    T_INT(store_set_project(s, old, "/src/a", "https://host/a", &e), 0);
    T_INT(store_add_key(s, old, "key", &e), 0);
    T_INT(store_set_aside(s, old, spec, &row, &e), 0);
    memcpy(id, row.id, BOX_ID_BYTES);
    T_STR(row.name, "a");
    T_STR(row.project, "/src/a");
    T_STR(row.remote, "https://host/a");
    T_OK(strcmp(id, old) != 0);
    box_row_done(&row);
    json_decref(spec);
}

static void has_name(struct store *s, const char *id, const char *name)
{
    struct box_row row = {0};
    struct err e = {0};

    T_INT(store_get(s, id, &row, &e), 0);
    T_STR(row.name, name);
    box_row_done(&row);
}

TEST(a_box_whose_successor_does_not_come_to_run_has_its_name_again)
{
    struct store *s = open_here();
    const struct store_end end = {.cause = "no"};
    char old[BOX_ID_BYTES], id[BOX_ID_BYTES];
    struct box_row row = {0};
    struct err e = {0};

    begin_replacement(s, old, id);
    has_name(s, old, "a" STORE_ASIDE);
    T_INT(store_take_place(s, id, old, &end, &e), -ERR_PRECONDITION); /* it is only requested */
    has_name(s, old, "a" STORE_ASIDE);
    T_INT(store_remove(s, id, &end, &e), 0);
    has_name(s, old, "a");
    T_INT(store_find_key(s, "key", &row, &e), 0);
    T_STR(row.id, old);
    box_row_done(&row);
    T_INT(store_forget_record(s, id, &e), 0);
    (void)store_close(s);
}

TEST(a_box_that_runs_takes_name_and_keys_of_the_other_at_once)
{
    struct store *s = open_here();
    const struct store_end end = {.cause = "its disk is gone"};
    char old[BOX_ID_BYTES], id[BOX_ID_BYTES];
    struct box_row row = {0};
    struct err e = {0};

    begin_replacement(s, old, id);
    walk(s, id, BH_STATE_PROVISIONING);
    walk(s, id, BH_STATE_BOOTSTRAPPING);
    T_INT(store_take_place(s, id, old, &end, &e), 0);
    T_INT(store_find_key(s, "key", &row, &e), 0);
    T_STR(row.id, id);
    T_STR(row.name, "a");
    T_INT(row.state, BH_STATE_RUNNING);
    box_row_done(&row);
    T_INT(store_get(s, old, &row, &e), -ERR_NOT_FOUND);
    T_OK(strstr(e.message, "'a'") && strstr(e.message, "its disk is gone"));
    /* Its end is not the undoing of a replacement. */
    T_INT(store_remove(s, id, &end, &e), 0);
    T_INT(store_find(s, "a", &row, &e), -ERR_NOT_FOUND);
    (void)store_close(s);
}
