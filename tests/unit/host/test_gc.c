/* The janitor by a virtual clock, and lists of many boxes. Boxes are rows of the process provider that have no
 * processes. */
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "fake_engine.h"
#include "lib/box/bringup.h"
#include "lib/box/history.h"
#include "lib/box/store_other.h"
#include "lib/util/context.h"
#include "store_help.h"

#define DAY_MS (24 * 3600 * 1000LL)
#define START_MS (1800000000LL * 1000)

static int n_statements;

int __real_sqlite3_prepare_v2(sqlite3 *db, const char *sql, int n, sqlite3_stmt **ret,
                              const char **tail);
int __wrap_sqlite3_prepare_v2(sqlite3 *db, const char *sql, int n, sqlite3_stmt **ret,
                              const char **tail);
int __wrap_sqlite3_prepare_v2(sqlite3 *db, const char *sql, int n, sqlite3_stmt **ret,
                              const char **tail)
{
    n_statements++;
    return __real_sqlite3_prepare_v2(db, sql, n, ret, tail);
}

static int64_t now_ms = START_MS;

static int64_t fake_now(void *arg)
{
    (void)arg;
    return now_ms;
}

static struct bh_ctx *open_ctx(void)
{
    struct bh_options o = {.size = sizeof(o), .state_dir = "state", .cache_dir = "cache"};
    struct bh_ctx *ctx = NULL;
    struct bh_error err;

    if (bh_open(&o, &ctx, &err) < 0)
        t_fail(__FILE__, __LINE__, "open: %s", err.message);
    store_set_clock(ctx->store, fake_now, NULL);
    return ctx;
}

static void add_stopped_of(struct bh_ctx *ctx, const char *name, const char *provider)
{
    static const char spec[] =
        "{\"image\":\"\",\"image_dir\":\"\",\"runtime\":\"\",\"agent\":"
        "\"none\",\"dest\":\"/workspace\",\"network\":\"host\",\"privilege\":\"sudo\","
        "\"on_timeout\":\"stop\",\"timeout_ms\":600000,\"cpu_millis\":0,\"memory_bytes\":0,"
        "\"disk_bytes\":0,\"pids\":4096,\"agent_port\":0,\"asked\":0,\"env\":[],\"labels\":[],"
        "\"allow_missing\":[]}";
    json_t *v = json_loads(spec, 0, NULL);
    struct box_row row = {0};
    struct err e = {0};

    (void)json_object_set_new(v, "provider", json_string(provider));
    if (store_add(ctx->store, name, v, NULL, &row, &e) < 0)
        t_fail(__FILE__, __LINE__, "add: %s", e.message);
    walk(ctx->store, row.id, BH_STATE_PROVISIONING);
    walk(ctx->store, row.id, BH_STATE_STOPPING);
    walk(ctx->store, row.id, BH_STATE_STOPPED);
    box_row_done(&row);
    json_decref(v);
}

static void add_stopped(struct bh_ctx *ctx, const char *name)
{
    add_stopped_of(ctx, name, "process");
}

static void count_removed(void *arg, const char *line)
{
    *(int *)arg += strstr(line, ", removed") != NULL;
}

static int run_gc(struct bh_ctx *ctx, int64_t stopped_for_ms, int *ret_removed)
{
    struct bh_gc_options o = {.size = sizeof(o), .stopped_for_ms = stopped_for_ms};
    struct bh_error err;

    *ret_removed = 0;
    return bh_gc_run(ctx, &o, count_removed, ret_removed, &err);
}

/* The number of boxes that a gc removed. */
static int collect(struct bh_ctx *ctx, int64_t stopped_for_ms)
{
    int n = 0;

    T_INT(run_gc(ctx, stopped_for_ms, &n), 0);
    return n;
}

struct destroyed {
    const char *actor;
    int n;
};

static int count_destroyed(void *arg, const struct bh_event *e)
{
    struct destroyed *d = arg;

    d->n += e->after == BH_STATE_DESTROYED;
    T_OK(e->after != BH_STATE_DESTROYED || strcmp(e->actor, d->actor) == 0);
    return 0;
}

static int n_destroyed_by(struct bh_ctx *ctx, const char *actor)
{
    struct bh_event_options o = {.size = sizeof(o)};
    struct destroyed d = {.actor = actor};
    struct bh_error err;

    T_INT(bh_list_events(ctx, &o, count_destroyed, &d, &err), 0);
    return d.n;
}

static int n_destroyed(struct bh_ctx *ctx)
{
    return n_destroyed_by(ctx, "janitor");
}

TEST(seven_days_pass_and_two_janitors_remove_each_of_a_hundred_boxes_once)
{
    struct bh_ctx *ctx = open_ctx();
    int removed[2], p[2][2], status;
    pid_t pids[2];
    char name[16];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "b%d", i);
        add_stopped(ctx, name);
    }
    T_INT(collect(ctx, 7 * DAY_MS), 0);
    now_ms += 7 * DAY_MS - 1;
    T_INT(collect(ctx, 7 * DAY_MS), 0);
    now_ms += 1;
    (void)bh_close(ctx);
    for (int i = 0; i < 2; i++) {
        T_INT(pipe(p[i]), 0);
        pids[i] = fork();
        if (pids[i] == 0) {
            ctx = open_ctx();
            removed[0] = collect(ctx, 7 * DAY_MS);
            (void)bh_close(ctx);
            _exit(write(p[i][1], removed, sizeof(int)) == sizeof(int) ? 0 : 1);
        }
    }
    for (int i = 0; i < 2; i++) {
        T_OK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
        T_INT(read(p[i][0], &removed[i], sizeof(int)), sizeof(int));
    }
    T_INT(removed[0] + removed[1], 100);
    ctx = open_ctx();
    T_INT(n_destroyed(ctx), 100);
    T_INT(collect(ctx, 7 * DAY_MS), 0);
    (void)bh_close(ctx);
}

TEST(a_clock_that_jumps_by_a_day_removes_no_box_early_and_every_box_in_time)
{
    struct bh_ctx *ctx = open_ctx();

    add_stopped(ctx, "a");
    now_ms -= DAY_MS;
    T_INT(collect(ctx, 1), 0); /* stopped in the future */
    now_ms += 7 * DAY_MS;
    T_INT(collect(ctx, 7 * DAY_MS), 0);
    now_ms += DAY_MS;
    T_INT(collect(ctx, 7 * DAY_MS), 1);
    T_INT(n_destroyed(ctx), 1);
    /* stopped while the clock was ahead: a day late, not lost */
    now_ms += DAY_MS;
    add_stopped(ctx, "b");
    now_ms -= DAY_MS;
    now_ms += 7 * DAY_MS;
    T_INT(collect(ctx, 7 * DAY_MS), 0);
    now_ms += DAY_MS;
    T_INT(collect(ctx, 7 * DAY_MS), 1);
    (void)bh_close(ctx);
}

/* The number of boxes that the holder got. */
static size_t claim_all(struct bh_ctx *ctx, const char *holder)
{
    const struct store_claim c = {
        .holder = holder, .before_ms = now_ms, .claim_ms = 5 * 60 * 1000, .max = 50};
    char ids[50][BOX_ID_BYTES];
    struct err e = {0};
    size_t n = 0;

    T_INT(store_claim_stopped(ctx->store, &c, ids, &n, &e), 0);
    return n;
}

TEST(claims_of_an_older_program_end_by_time)
{
    struct bh_ctx *ctx = open_ctx();

    add_stopped(ctx, "a");
    now_ms += 7 * DAY_MS;
    T_INT(claim_all(ctx, "0123456789abcdef"), 1);
    T_INT(collect(ctx, DAY_MS), 0);
    now_ms += 5 * 60 * 1000;
    T_INT(collect(ctx, DAY_MS), 1);
    (void)bh_close(ctx);
}

/* Claims everything in another process, which then waits until `go` is closed. */
static pid_t claim_elsewhere(int go[2])
{
    char holder[STORE_HOLDER_BYTES], byte = 0;
    int ready[2];
    pid_t pid;

    T_INT(pipe(ready) | pipe(go), 0);
    pid = fork();
    if (pid == 0) {
        struct bh_ctx *ctx = open_ctx();

        (void)close(go[1]);
        store_make_holder(holder, "00");
        byte = claim_all(ctx, holder) == 1;
        (void)!write(ready[1], &byte, 1);
        (void)!read(go[0], &byte, 1);
        _exit(0); /* as one that was killed: the claims stay */
    }
    T_INT(read(ready[0], &byte, 1), 1);
    T_INT(byte, 1);
    return pid;
}

TEST(the_claims_of_a_dead_janitor_do_not_count_and_those_of_a_live_one_do)
{
    struct bh_ctx *ctx = open_ctx();
    int go[2], status;
    pid_t pid;

    add_stopped(ctx, "a");
    (void)bh_close(ctx);
    now_ms += 7 * DAY_MS;
    pid = claim_elsewhere(go);
    ctx = open_ctx();
    T_INT(collect(ctx, DAY_MS), 0);
    (void)close(go[1]);
    T_INT(waitpid(pid, &status, 0), pid);
    T_INT(collect(ctx, DAY_MS), 1);
    (void)bh_close(ctx);
}

TEST(a_box_that_cannot_be_removed_is_tried_again_next_time)
{
    struct bh_ctx *ctx = open_ctx();
    sqlite3 *db = NULL;
    int n;

    add_stopped(ctx, "a");
    T_INT(sqlite3_open("state/store.db", &db), SQLITE_OK);
    T_INT(sqlite3_exec(db, "UPDATE boxes SET spec = json_set(spec, '$.provider', 'nowhere')", NULL,
                       NULL, NULL),
          SQLITE_OK);
    now_ms += DAY_MS;
    T_INT(run_gc(ctx, 1, &n), -BH_NOT_FOUND); /* it says so */
    T_INT(n, 0);
    T_INT(n_destroyed(ctx), 0);
    T_INT(sqlite3_exec(db, "UPDATE boxes SET spec = json_set(spec, '$.provider', 'process')", NULL,
                       NULL, NULL),
          SQLITE_OK);
    T_INT(collect(ctx, 1), 1);
    T_INT(n_destroyed(ctx), 1);
    (void)sqlite3_close(db);
    (void)bh_close(ctx);
}

TEST(destroying_a_box_twice_is_no_error_and_one_that_never_was_is)
{
    struct bh_ctx *ctx = open_ctx();
    struct bh_box *box = NULL, *other = NULL;
    struct bh_error err;

    add_stopped(ctx, "a");
    T_INT(bh_get(ctx, "a", &box, &err), 0);
    T_INT(bh_get(ctx, "a", &other, &err), 0);
    T_INT(bh_destroy(box, 0, &err), 0);
    T_INT(bh_destroy(box, 0, &err), 0);
    T_INT(bh_destroy(other, 0, &err), 0);
    T_INT(n_destroyed_by(ctx, "library"), 1);
    T_INT(bh_stop(other, 0, &err), -BH_NOT_FOUND);
    (void)bh_box_free(box);
    (void)bh_box_free(other);
    (void)bh_close(ctx);
}

/* ---- directories ---- */

struct lines {
    char text[8192];
    size_t n;
};

static void take_line(void *arg, const char *line)
{
    struct lines *l = arg;

    l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, "%s\n", line);
}

static void make_disk(const char *id)
{
    char dir[64], file[80];
    struct err e = {0};

    (void)snprintf(dir, sizeof(dir), "state/boxes/%s/home/deep", id);
    (void)snprintf(file, sizeof(file), "%s/work", dir);
    T_INT(io_mkdir_p(dir, 0700, &e), 0);
    T_INT(io_write_file(AT_FDCWD, file, "work", 4, 0600, false, &e), 0);
}

static bool has_disk(const char *id)
{
    char file[80];

    (void)snprintf(file, sizeof(file), "state/boxes/%s/home/deep/work", id);
    return access(file, F_OK) == 0;
}

static struct lines gc_lines(struct bh_ctx *ctx, const struct bh_gc_options *o)
{
    struct lines l = {.n = 0};
    struct bh_error err;

    T_INT(bh_gc_run(ctx, o, take_line, &l, &err), 0);
    return l;
}

TEST(gc_removes_a_directory_only_if_a_record_says_that_its_box_was_destroyed)
{
    static const char stranger[] = "00000000000000ab";
    struct bh_gc_options o = {.size = sizeof(o), .dry_run = true}, forget = o;
    struct bh_ctx *ctx = open_ctx();
    struct box_row mine = {0}, gone = {0};
    struct err e = {0};
    struct lines l;

    add_stopped(ctx, "mine");
    add_stopped(ctx, "gone");
    T_INT(store_find(ctx->store, "mine", &mine, &e), 0);
    T_INT(store_find(ctx->store, "gone", &gone, &e), 0);
    make_disk(mine.id);
    make_disk(gone.id);
    make_disk(stranger);
    T_INT(store_remove(ctx->store, gone.id, &(struct store_end){.cause = "removed"}, &e), 0);
    l = gc_lines(ctx, &o);
    T_OK(strstr(l.text, "is gone would be removed: ") && has_disk(gone.id));
    o.dry_run = false;
    l = gc_lines(ctx, &o);
    T_OK(has_disk(mine.id) && !strstr(l.text, mine.id));
    T_OK(!has_disk(gone.id) && strstr(l.text, "removed the directory of a box that is gone: "));
    T_OK(has_disk(stranger));
    T_OK(strstr(l.text,
                "boxes/00000000000000ab' is of a box that the store does not know, its disk has "));
    /* Once the record is forgotten, nothing says any more that the directory is a leftover. */
    forget.dry_run = false;
    forget.records_for_ms = 1;
    (void)gc_lines(ctx, &forget);
    make_disk(gone.id);
    l = gc_lines(ctx, &o);
    T_OK(has_disk(gone.id) && strstr(l.text, gone.id));
    box_row_done(&mine);
    box_row_done(&gone);
    (void)bh_close(ctx);
}

/* ---- disks in engines ---- */

#define MARK "0123456789abcdef0123456789abcdef"
#define ID "1111111111111111111111111111111111111111111111111111111111111111"
#define OTHER_ID "2222222222222222222222222222222222222222222222222222222222222222"

/* A box of the provider docker, which was destroyed for this cause, and whose directory is left. */
static void add_destroyed(struct bh_ctx *ctx, const char *name, const char *cause,
                          char ret_id[BOX_ID_BYTES])
{
    struct box_row row = {0};
    struct err e = {0};

    add_stopped_of(ctx, name, "docker");
    T_INT(store_find(ctx->store, name, &row, &e), 0);
    (void)snprintf(ret_id, BOX_ID_BYTES, "%s", row.id);
    make_disk(row.id);
    T_INT(store_remove(ctx->store, row.id, &(struct store_end){.cause = cause}, &e), 0);
    box_row_done(&row);
}

TEST(gc_keeps_a_container_that_was_not_there_when_its_box_was_called_gone)
{
    char lost[BOX_ID_BYTES], removed[BOX_ID_BYTES], list[1024], host[600], cwd[512];
    struct fake_rule rules[] = {{"GET /containers/json", 200, list, 0, NULL},
                                {"DELETE /containers/", 204, NULL, 0, NULL},
                                {0}};
    struct bh_gc_options o = {.size = sizeof(o), .dry_run = true};
    struct bh_ctx *ctx = open_ctx();
    struct lines l;
    char line[80];

    T_INT(io_write_file(AT_FDCWD, "state/mark", MARK, strlen(MARK), 0600, false, NULL), 0);
    T_OK(getcwd(cwd, sizeof(cwd)) != NULL);
    (void)snprintf(host, sizeof(host), "unix://%s/" FAKE_SOCKET, cwd);
    ctx->docker_host = host;
    add_destroyed(ctx, "lost", BRINGUP_DISK_GONE, lost);
    add_destroyed(ctx, "removed", "removed by a command", removed);
    (void)snprintf(list, sizeof(list),
                   "[{\"Id\":\"" ID "\",\"Names\":[\"/bellhop-%s\"],\"Labels\":{"
                   "\"dev.bellhop.box\":\"%s\",\"dev.bellhop.store\":\"" MARK "\"}},"
                   "{\"Id\":\"" OTHER_ID "\",\"Names\":[\"/bellhop-%s\"],\"Labels\":{"
                   "\"dev.bellhop.box\":\"%s\",\"dev.bellhop.store\":\"" MARK "\"}}]",
                   lost, lost, removed, removed);
    fake_engine(rules);
    l = gc_lines(ctx, &o);
    T_OK(has_disk(lost) && has_disk(removed));
    T_INT(fake_count("DELETE "), 0);
    (void)snprintf(line, sizeof(line), "is gone would be removed: %s", lost);
    T_OK(strstr(l.text, line) != NULL); /* the directory */
    o.dry_run = false;
    l = gc_lines(ctx, &o);
    T_INT(fake_count("DELETE /containers/" OTHER_ID), 1);
    T_INT(fake_count("DELETE /containers/" ID), 0);
    T_OK(strstr(l.text, "is back, and is kept: 'bellhop-") && strstr(l.text, lost));
    /* Their directories hold no disk, and go. */
    T_OK(!has_disk(lost) && !has_disk(removed));
    ctx->docker_host = NULL;
    (void)bh_close(ctx);
}

/* ---- many boxes ---- */

static void run_sql(const char *sql)
{
    sqlite3 *db = NULL;
    char *why = NULL;

    T_INT(sqlite3_open("state/store.db", &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        t_fail(__FILE__, __LINE__, "%s", why);
    (void)sqlite3_close(db);
}

/* Copies of the box called first, named b<from> to b<to>. */
static void add_copies(int from, int to)
{
    char sql[512];

    (void)snprintf(sql, sizeof(sql),
                   "WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d)"
                   "INSERT INTO boxes(id, name, state, created_ms, state_since_ms, spec)"
                   " SELECT printf('%%016x', i), 'b' || i, state, created_ms, state_since_ms, spec"
                   " FROM n, boxes WHERE name = 'first'",
                   from, to);
    run_sql(sql);
}

static int count_box(void *arg, struct bh_box *box)
{
    ++*(int *)arg;
    T_OK(*bh_box_info(box)->json);
    return 0;
}

static int count_record(void *arg, const struct bh_record *record)
{
    ++*(int *)arg;
    T_OK(*record->json);
    return 0;
}

TEST(a_list_of_a_thousand_boxes_takes_as_many_statements_as_one_of_ten)
{
    struct bh_ctx *ctx = open_ctx();
    struct bh_error err;
    int64_t begun;
    int n = 0;

    add_stopped(ctx, "first");
    add_copies(2, 10);
    n_statements = 0;
    T_INT(bh_list(ctx, count_box, &n, &err), 0);
    T_INT(n, 10);
    T_INT(n_statements, 1);
    add_copies(11, 1000);
    n = n_statements = 0;
    begun = clock_mono_ms();
    T_INT(bh_list(ctx, count_box, &n, &err), 0);
    (void)printf("# a list of 1,000 boxes: %lld ms\n", (long long)(clock_mono_ms() - begun));
    T_INT(n, 1000);
    T_INT(n_statements, 1);
    /* records: a statement for each fifty */
    run_sql("DELETE FROM boxes WHERE name <> 'first'");
    n = n_statements = 0;
    T_INT(bh_list_records(ctx, count_record, &n, &err), 0);
    T_INT(n, 999);
    T_INT(n_statements, 20);
    (void)bh_close(ctx);
}

/* ---- another store ---- */

static size_t count_files(const char *dir)
{
    _cleanup_closedir_ DIR *d = opendir(dir);
    size_t n = 0;

    while (d && readdir(d))
        n++;
    return n;
}

TEST(a_look_into_another_store_changes_nothing_there_whether_somebody_has_it_open_or_not)
{
    struct bh_ctx *ctx = open_ctx();
    struct box_row row = {0};
    char id[BOX_ID_BYTES];
    struct err e = {0};
    size_t n;

    add_stopped(ctx, "one");
    T_INT(store_find(ctx->store, "one", &row, &e), 0);
    (void)snprintf(id, sizeof(id), "%s", row.id);
    box_row_done(&row);
    n = count_files("state");
    T_INT(store_other_find("state", id), STORE_OTHER_HAS); /* in the write-ahead log */
    T_INT(store_other_find("state", "0000000000000000"), STORE_OTHER_LACKS);
    T_INT(count_files("state"), n);
    (void)bh_close(ctx);
    n = count_files("state");
    T_INT(store_other_find("state", id), STORE_OTHER_HAS);
    T_INT(store_other_find("state", "0000000000000000"), STORE_OTHER_LACKS);
    T_INT(count_files("state"), n);
    T_INT(store_other_find("state/none", id), STORE_OTHER_GONE);
    T_INT(store_other_find("state/store.db/x", id), STORE_OTHER_GONE);
    T_INT(mkdir("a?b#c%d", 0700), 0);
    T_INT(rename("state/store.db", "a?b#c%d/store.db"), 0);
    T_INT(store_other_find("a?b#c%d", id), STORE_OTHER_HAS);
    T_INT(io_write_file(AT_FDCWD, "state/store.db", "no database", 11, 0600, false, &e), 0);
    T_INT(store_other_find("state", id), STORE_OTHER_CLOSED);
    T_INT(unlink("state/store.db"), 0);
    T_INT(symlink("../a?b#c%d/store.db", "state/store.db"), 0);
    T_INT(store_other_find("state", id), STORE_OTHER_CLOSED);
}
