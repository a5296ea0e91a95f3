/*
 * The history of a store's boxes: events, records, keys, claims; and what older programs do to it.
 *
 * early
 */
#define T_DIR "/dev/shm" /* ten thousand transactions, each of which the disk has to confirm */
#include "test.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "lib/box/history.h"
#include "lib/box/store.h"
#include "store_help.h"

#define DAY_MS (24 * 3600 * 1000LL)
#define START_MS (1800000000LL * 1000)

static int64_t fake_now(void *arg)
{
    return *(int64_t *)arg;
}

struct seen_events {
    size_t n;
    int64_t seqs[64], positions[64], times[64];
    enum bh_state before[64], after[64];
    char ids[64][EVENT_ID_BYTES], causes[64][32], actors[64][32], kinds[64][16];
};

static int see_event(void *arg, const struct event_row *e)
{
    struct seen_events *s = arg;

    if (s->n < 64) {
        s->seqs[s->n] = e->seq;
        s->positions[s->n] = e->position;
        s->times[s->n] = e->time_ms;
        s->before[s->n] = e->before;
        s->after[s->n] = e->after;
        (void)snprintf(s->ids[s->n], EVENT_ID_BYTES, "%s", e->id);
        (void)snprintf(s->causes[s->n], 32, "%s", e->cause);
        (void)snprintf(s->actors[s->n], 32, "%s", e->actor);
        (void)snprintf(s->kinds[s->n], 16, "%s", e->kind);
    }
    s->n++;
    return 0;
}

static struct seen_events events_of(struct store *s, const char *id, int64_t since)
{
    struct seen_events seen = {0};
    struct err e = {0};

    if (store_list_events(s, id, since, see_event, &seen, &e) != 0)
        t_fail(__FILE__, __LINE__, "events: %s", e.message);
    return seen;
}

static void remove_box(struct store *s, const char *id, const char *cause)
{
    struct err e = {0};

    if (store_remove(s, id, &(struct store_end){.cause = cause}, &e) < 0)
        t_fail(__FILE__, __LINE__, "remove: %s", e.message);
}

TEST(every_change_of_state_is_an_event_with_its_number_time_cause_and_actor)
{
    struct store *s = open_here();
    struct err e = {0};
    char id[BOX_ID_BYTES], other[BOX_ID_BYTES];
    struct seen_events seen;

    store_set_actor(s, "bellhop up");
    add(s, "a", id);
    add(s, "b", other);
    walk(s, id, BH_STATE_PROVISIONING);
    store_set_actor(s, "monitor");
    T_INT(store_set_state(s, id, BH_STATE_ERROR, "no \xff room", &e), 0);
    /* a refused change is no event */
    T_INT(store_set_state(s, id, BH_STATE_RUNNING, "", &e), -ERR_PRECONDITION);
    seen = events_of(s, id, 0);
    T_INT(seen.n, 3);
    for (size_t i = 0; i < 3; i++)
        T_INT(seen.seqs[i], (int64_t)i + 1);
    T_INT(seen.before[0], BH_STATE_UNKNOWN);
    T_INT(seen.after[0], BH_STATE_REQUESTED);
    T_INT(seen.before[2], BH_STATE_PROVISIONING);
    T_INT(seen.after[2], BH_STATE_ERROR);
    T_STR(seen.causes[2], "no ? room");
    T_STR(seen.actors[1], "bellhop up");
    T_STR(seen.actors[2], "monitor");
    T_STR(seen.kinds[2], "state");
    T_INT(strlen(seen.ids[0]), 32);
    T_OK(strcmp(seen.ids[0], seen.ids[1]) != 0);
    T_INT(events_of(s, id, 2).n, 1);
    T_INT(events_of(s, id, 3).n, 0);
    /* of all boxes: by position */
    seen = events_of(s, NULL, 0);
    T_INT(seen.n, 4);
    for (size_t i = 1; i < 4; i++)
        T_OK(seen.positions[i] > seen.positions[i - 1]);
    T_INT(events_of(s, NULL, seen.positions[1]).n, 2);
    (void)store_close(s);
}

TEST(an_event_that_is_repeated_is_ignored)
{
    struct store *s = open_here();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    T_INT(store_set_state_once(s, id, "mine-1", BH_STATE_PROVISIONING, "once", &e), 0);
    T_INT(store_set_state_once(s, id, "mine-1", BH_STATE_PROVISIONING, "twice", &e), 0);
    T_INT(store_set_state_once(s, id, "mine-1", BH_STATE_RUNNING, "not legal even", &e), 0);
    T_INT(store_add_event(s, id, "mine-2", "note", "a fact", &e), 0);
    T_INT(store_add_event(s, id, "mine-2", "note", "again", &e), 0);
    T_INT(store_add_event(s, "0123456789abcdef", NULL, "note", "", &e), -ERR_NOT_FOUND);
    T_INT(store_get(s, id, &row, &e), 0);
    T_INT(row.state, BH_STATE_PROVISIONING);
    T_STR(row.cause, "once");
    T_INT(events_of(s, id, 0).n, 3);
    T_INT(events_of(s, id, 0).after[2], BH_STATE_PROVISIONING);
    box_row_done(&row);
    (void)store_close(s);
}

/* A reporter may report the events of a box again, and others may report the same ones. */
static void report_all(const char *const *ids)
{
    struct store *s = open_here();

    for (int i = 0; i < 10000; i++) {
        char event_id[32];

        (void)snprintf(event_id, sizeof(event_id), "event-%d", i / 2);
        T_INT(store_add_event(s, ids[i % 2], event_id, "note", "a fact", NULL), 0);
    }
    (void)store_close(s);
}

TEST(ten_thousand_events_that_four_writers_repeat_are_each_there_once)
{
    struct store *s = open_here();
    char ids[2][BOX_ID_BYTES];
    const char *boxes[] = {ids[0], ids[1]};
    pid_t writers[4];

    add(s, "a", ids[0]);
    add(s, "b", ids[1]);
    (void)store_close(s);
    for (int i = 0; i < 4; i++) {
        writers[i] = fork();
        if (writers[i] == 0) {
            report_all(boxes);
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status = -1;

        T_OK(waitpid(writers[i], &status, 0) == writers[i]);
        T_INT(status, 0);
    }
    s = open_here();
    T_INT(events_of(s, ids[0], 0).n, 5001); /* the first is its request */
    T_INT(events_of(s, ids[1], 0).n, 5001);
    (void)store_close(s);
}

TEST(times_never_run_backwards_when_the_clock_does)
{
    int64_t now = START_MS;
    struct store *s = open_here();
    struct box_row row = {0};
    struct record_row record = {0};
    struct seen_events seen;
    struct err e = {0};
    char id[BOX_ID_BYTES];

    store_set_clock(s, fake_now, &now);
    add(s, "a", id);
    now += DAY_MS; /* a day ahead, then back to where it was */
    walk(s, id, BH_STATE_PROVISIONING);
    now -= DAY_MS;
    walk(s, id, BH_STATE_BOOTSTRAPPING);
    now += 1000;
    walk(s, id, BH_STATE_RUNNING);
    T_INT(store_add_event(s, id, NULL, "note", "", &e), 0);
    now -= 2 * DAY_MS;
    walk(s, id, BH_STATE_PAUSING);
    walk(s, id, BH_STATE_PAUSED);
    T_INT(store_set_deadline(s, id, now, store_now_ms(s), &e), 0);
    walk(s, id, BH_STATE_RESUMING);
    now += 3 * DAY_MS;
    walk(s, id, BH_STATE_RUNNING);
    T_INT(store_get(s, id, &row, &e), 0);
    T_INT(row.times.created_ms, START_MS);
    T_INT(row.times.paused_ms, START_MS + DAY_MS);
    T_INT(row.times.resumed_ms, START_MS + DAY_MS + 1000);
    T_INT(row.times.updated_ms, START_MS + DAY_MS + 1000);
    T_INT(row.state_since_ms, START_MS + DAY_MS + 1000);
    T_OK(row.times.used_ms >= row.times.resumed_ms);
    box_row_done(&row);
    now -= 30 * DAY_MS;
    walk(s, id, BH_STATE_DESTROYING);
    remove_box(s, id, "");
    T_INT(store_find_record(s, "id", id, &record, &e), 0);
    T_INT(record.times.created_ms, START_MS);
    T_OK(record.destroyed_ms >= record.times.resumed_ms);
    T_OK(record.times.resumed_ms >= record.times.paused_ms);
    T_INT(record.times.updated_ms, record.destroyed_ms);
    record_row_done(&record);
    seen = events_of(s, id, 0);
    T_INT(seen.n, 11);
    for (size_t i = 1; i < seen.n; i++)
        T_OK(seen.times[i] >= seen.times[i - 1]);
    (void)store_close(s);
}

TEST(the_time_of_use_never_runs_backwards_and_a_change_is_not_before_any_fact)
{
    int64_t now = START_MS;
    struct store *s = open_here();
    struct box_row row = {0};
    struct seen_events seen;
    struct err e = {0};
    char id[BOX_ID_BYTES];

    store_set_clock(s, fake_now, &now);
    add(s, "a", id);
    walk(s, id, BH_STATE_PROVISIONING);
    walk(s, id, BH_STATE_BOOTSTRAPPING);
    walk(s, id, BH_STATE_RUNNING);
    now += DAY_MS;
    T_INT(store_set_deadline(s, id, now + DAY_MS, store_now_ms(s), &e), 0); /* used, a day ahead */
    now -= DAY_MS;
    walk(s, id, BH_STATE_STOPPING);
    T_INT(store_get(s, id, &row, &e), 0);
    T_INT(row.times.used_ms, START_MS + DAY_MS);
    T_INT(row.times.updated_ms, START_MS + DAY_MS);
    box_row_done(&row);
    now += 2 * DAY_MS;
    T_INT(store_add_event(s, id, NULL, "note", "a fact", &e), 0);
    now = START_MS + 1000;
    walk(s, id, BH_STATE_STOPPED);
    walk(s, id, BH_STATE_PROVISIONING);
    walk(s, id, BH_STATE_BOOTSTRAPPING);
    walk(s, id, BH_STATE_RUNNING);
    T_INT(store_get(s, id, &row, &e), 0);
    seen = events_of(s, id, 0);
    T_INT(row.times.updated_ms, START_MS + 2 * DAY_MS);
    T_INT(row.times.updated_ms, seen.times[seen.n - 1]);
    T_INT(row.times.used_ms, START_MS + 2 * DAY_MS);
    box_row_done(&row);
    (void)store_close(s);
}

TEST(an_event_id_is_one_boxs_and_has_at_most_64_bytes)
{
    struct store *s = open_here();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES], other[BOX_ID_BYTES], longest[EVENT_ID_BYTES + 1];

    add(s, "a", id);
    add(s, "b", other);
    T_INT(store_set_state_once(s, other, "evt-1", BH_STATE_PROVISIONING, "", &e), 0);
    T_INT(store_set_state_once(s, id, "evt-1", BH_STATE_PROVISIONING, "", &e), 0);
    T_INT(store_set_state_once(s, id, "evt-1", BH_STATE_RUNNING, "", &e), 0);
    T_INT(store_add_event(s, other, "evt-2", "note", "", &e), 0);
    T_INT(store_add_event(s, id, "evt-2", "note", "", &e), 0);
    T_INT(store_get(s, id, &row, &e), 0);
    T_INT(row.state, BH_STATE_PROVISIONING);
    box_row_done(&row);
    T_INT(events_of(s, id, 0).n, 3);
    T_INT(events_of(s, other, 0).n, 3);

    memset(longest, 'x', sizeof(longest));
    longest[EVENT_ID_BYTES] = '\0';
    T_INT(store_set_state_once(s, id, longest, BH_STATE_BOOTSTRAPPING, "", &e), -ERR_INVALID);
    T_STR(e.field, "id");
    T_INT(store_add_event(s, id, longest, "note", "", &e), -ERR_INVALID);
    longest[EVENT_ID_BYTES - 1] = '\0';
    T_INT(store_set_state_once(s, id, longest, BH_STATE_BOOTSTRAPPING, "", &e), 0);
    T_STR(events_of(s, id, 3).ids[0], longest);
    (void)store_close(s);
}

TEST(all_records_are_forgotten_also_those_of_a_clock_that_was_ahead)
{
    int64_t now = START_MS + DAY_MS;
    int64_t n = 0;
    struct store *s = open_here();
    struct record_row record = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES];

    store_set_clock(s, fake_now, &now);
    add(s, "a", id);
    remove_box(s, id, "");
    now = START_MS;
    T_INT(store_prune_records(s, 1, false, &n, &e), 0);
    T_INT(n, 0);
    T_INT(store_prune_records(s, 0, true, &n, &e), 0);
    T_INT(n, 1);
    T_INT(store_prune_records(s, 0, false, &n, &e), 0);
    T_INT(n, 1);
    T_INT(store_find_record(s, "id", id, &record, &e), -ERR_NOT_FOUND);
    (void)store_close(s);
}

/* Processor time of this process. */
static int64_t cpu_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Its keys are hex digits in the database. Decoding them must be cheap, on any machine: less than one
 * sscanf() for each byte. */
TEST(a_box_with_a_thousand_long_keys_is_read_at_once)
{
    struct store *s = open_here();
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES], key[STORE_KEY_BYTES + 1], digits[2 * STORE_KEY_BYTES + 1];
    int64_t start, read_ms;
    unsigned byte, sum = 0;
    json_t *keys;

    add(s, "a", id);
    for (int i = 0; i < STORE_KEYS_MAX; i++) {
        (void)snprintf(key, sizeof(key), "%0*d", STORE_KEY_BYTES, i);
        T_INT(store_add_key(s, id, key, &e), 0);
    }
    start = cpu_ms();
    for (int i = 0; i < 10; i++) {
        T_INT(store_get(s, id, &row, &e), 0);
        keys = store_keys_json(row.keys);
        T_INT(json_array_size(keys), STORE_KEYS_MAX);
        json_decref(keys);
        box_row_done(&row);
    }
    read_ms = cpu_ms() - start;
    memset(digits, '3', sizeof(digits) - 1);
    digits[sizeof(digits) - 1] = '\0';
    start = cpu_ms();
    for (int i = 0; i < 10 * STORE_KEYS_MAX * STORE_KEY_BYTES; i++)
        if (sscanf(digits + 2 * (i % STORE_KEY_BYTES), "%2x", &byte) == 1)
            sum += byte;
    T_OK(sum > 0);
    if (read_ms >= cpu_ms() - start)
        t_fail(__FILE__, __LINE__, "%lld ms, sscanf %lld ms", (long long)read_ms,
               (long long)(cpu_ms() - start));
    (void)store_close(s);
}

TEST(a_record_is_found_by_a_key_that_its_box_had)
{
    struct store *s = open_here();
    struct record_row record = {0};
    struct err e = {0};
    char first[BOX_ID_BYTES], last[BOX_ID_BYTES];

    add(s, "a", first);
    T_INT(store_add_key(s, first, "\xff 12.34", &e), 0);
    T_INT(store_add_key(s, first, "other", &e), 0);
    remove_box(s, first, "");
    add(s, "b", last);
    T_INT(store_add_key(s, last, "\xff 12.34", &e), 0);
    remove_box(s, last, "removed");
    T_INT(store_find_record(s, "key", "\xff 12.34", &record, &e), 0);
    T_STR(record.id, last);
    record_row_done(&record);
    T_INT(store_find_record(s, "key", "other", &record, &e), 0);
    T_STR(record.id, first);
    record_row_done(&record);
    /* a part of a key is none */
    T_INT(store_find_record(s, "key", "oth", &record, &e), -ERR_NOT_FOUND);
    T_INT(store_find_record(s, "key", "", &record, &e), -ERR_NOT_FOUND);
    T_INT(store_not_found(s, "key", "\xff 12.34", &e), -ERR_NOT_FOUND);
    T_STR(e.detail_name, "gone");
    T_OK(strstr(e.detail, last) && strstr(e.message, "removed"));
    (void)store_close(s);
}

TEST(a_box_that_is_removed_stays_as_a_record_and_its_name_is_free)
{
    struct store *s = open_here();
    json_t *exit_status = json_pack("{s:i, s:n}", "code", 3, "signal");
    char *logs = calloc(1, HISTORY_LOGS_BYTES + 100);
    struct box_row row = {0};
    struct record_row record = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES], second[BOX_ID_BYTES];
    struct seen_events seen;

    add(s, "a", id);
    T_INT(store_set_project(s, id, "/src/app", "https://host/app", &e), 0);
    T_INT(store_set_transcript(s, id, "file:/t/1", &e), 0);
    T_INT(store_add_key(s, id, "1234.5678", &e), 0);
    T_INT(store_add_key(s, id, "\xff\x01", &e), 0);
    memset(logs, 'x', HISTORY_LOGS_BYTES + 99);
    memcpy(logs + HISTORY_LOGS_BYTES + 90, "the end\xff", 9);
    T_INT(store_remove(s, id,
                       &(struct store_end){.cause = "because",
                                           .exit = exit_status,
                                           .logs = logs,
                                           .n_logs = HISTORY_LOGS_BYTES + 98},
                       &e),
          0);
    T_INT(store_remove(s, id, &(struct store_end){.cause = "again"}, &e), 0);
    T_INT(store_find(s, "a", &row, &e), -ERR_NOT_FOUND);
    T_INT(store_find_key(s, "1234.5678", &row, &e), -ERR_NOT_FOUND);

    T_INT(store_find_record(s, "name", "a", &record, &e), 0);
    T_STR(record.id, id);
    T_STR(record.cause, "because");
    T_STR(record.project, "/src/app");
    T_STR(record.remote, "https://host/app");
    T_STR(record.transcript, "file:/t/1");
    T_STR(json_string_value(json_object_get(record.spec, "provider")), "process");
    T_INT(json_integer_value(json_object_get(record.exit, "code")), 3);
    T_INT(strlen(record.logs), HISTORY_LOGS_BYTES);
    T_STR(record.logs + HISTORY_LOGS_BYTES - 8, "the end?");
    T_INT(json_array_size(record.keys), 2);
    T_STR(json_string_value(json_array_get(record.keys, 0)), "1234.5678");
    T_STR(json_string_value(json_object_get(json_array_get(record.keys, 1), "b64")), "/wE=");
    record_row_done(&record);

    add(s, "a", second);
    T_INT(store_find(s, "a", &row, &e), 0);
    T_STR(row.id, second);
    box_row_done(&row);
    T_INT(store_find_record(s, "id", id, &record, &e), 0);
    record_row_done(&record);
    seen = events_of(s, id, 0);
    T_INT(seen.n, 2);
    T_INT(seen.after[1], BH_STATE_DESTROYED);
    T_STR(seen.causes[1], "because");
    T_INT(events_of(s, second, 0).n, 1);
    json_decref(exit_status);
    free(logs);
    (void)store_close(s);
}

static bool file_holds(const char *path, const char *word)
{
    char *data = NULL;
    size_t len = 0;
    bool found;

    if (io_read_file(AT_FDCWD, path, 64 * 1024 * 1024, &data, &len, NULL) < 0)
        return false;
    found = memmem(data, len, word, strlen(word)) != NULL;
    free(data);
    return found;
}

TEST(the_variables_of_a_removed_box_are_gone_from_the_file)
{
    static const char secret[] = "s3cr3t-0f-the-b0x";
    struct store *s = open_here();
    struct store *other = open_here(); /* a monitor: it keeps the write-ahead log alive */
    json_t *spec = json_pack("{s:s, s:[s]}", "provider", "process", "env", "TOKEN=");
    struct box_row row = {0};
    struct err e = {0};
    char id[BOX_ID_BYTES], text[9000];

    /* one that fits into a page, and one that does not */
    for (size_t n = 0; n <= 8000; n += 8000) {
        memset(text, 'x', n);
        (void)snprintf(text + n, sizeof(text) - n, "%s", secret);
        json_array_set_new(json_object_get(spec, "env"), 0, json_string(text));
        for (size_t i = 0; i < 20; i++) {
            char name[16];

            (void)snprintf(name, sizeof(name), "n%zu", i);
            add(s, name, id);
        }
        T_INT(store_add(s, "a", spec, NULL, &row, &e), 0);
        for (uint16_t port = 1; port < 200; port++)
            T_INT(store_set_port(s, row.id, port, port, &e), 0);
        walk(other, row.id, BH_STATE_PROVISIONING);
        T_OK(file_holds("store.db", secret) || file_holds("store.db-wal", secret));
        remove_box(s, row.id, "");
        T_OK(!file_holds("store.db", secret));
        T_OK(!file_holds("store.db-wal", secret));
        box_row_done(&row);
        for (size_t i = 0; i < 20; i++) {
            char name[16];

            (void)snprintf(name, sizeof(name), "n%zu", i);
            T_INT(store_find(s, name, &row, &e), 0);
            remove_box(s, row.id, "");
            box_row_done(&row);
        }
    }
    json_decref(spec);
    (void)store_close(other);
    (void)store_close(s);
}

static int count_record(void *arg, const struct record_row *row)
{
    (void)row;
    ++*(size_t *)arg;
    return 0;
}

static size_t n_records(struct store *s)
{
    struct err e = {0};
    size_t n = 0;

    T_INT(store_list_records(s, count_record, &n, &e), 0);
    return n;
}

TEST(records_are_forgotten_after_thirty_days_with_their_events)
{
    int64_t now = START_MS, n = 0;
    struct store *s = open_here();
    struct err e = {0};
    char id[BOX_ID_BYTES], kept[BOX_ID_BYTES];

    store_set_clock(s, fake_now, &now);
    for (int i = 0; i < 120; i++) {
        add(s, "old", id);
        remove_box(s, id, "");
    }
    now += 20 * DAY_MS;
    add(s, "young", kept);
    remove_box(s, kept, "");
    T_INT(n_records(s), 121);
    T_INT(store_prune_records(s, HISTORY_RECORDS_FOR_MS, false, &n, &e), 0);
    T_INT(n, 0);
    now += 10 * DAY_MS;
    T_INT(store_prune_records(s, HISTORY_RECORDS_FOR_MS, true, &n, &e), 0);
    T_INT(n, 120);
    T_INT(n_records(s), 121);
    T_INT(store_prune_records(s, HISTORY_RECORDS_FOR_MS, false, &n, &e), 0);
    T_INT(n, 120);
    T_INT(n_records(s), 1);
    T_INT(events_of(s, id, 0).n, 0);
    T_INT(events_of(s, kept, 0).n, 2);
    /* without a gc too, a batch with each removal */
    now += 30 * DAY_MS;
    add(s, "b", id);
    remove_box(s, id, "");
    T_INT(n_records(s), 1);
    T_INT(store_prune_records(s, 0, false, &n, &e), 0);
    T_INT(n_records(s), 0);
    (void)store_close(s);
}

static void run_sql(const char *sql)
{
    sqlite3 *db = NULL;
    char *why = NULL;

    T_INT(sqlite3_open("store.db", &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        t_fail(__FILE__, __LINE__, "%s", why);
    (void)sqlite3_close(db);
}

TEST(the_store_keeps_ten_thousand_records_and_ten_thousand_events_of_a_box)
{
    struct store *s = open_here();
    struct seen_events seen;
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    run_sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
            "INSERT INTO records(id, name, cause, created_ms, updated_ms, paused_ms, resumed_ms,"
            " used_ms, destroyed_ms, spec, agent, remote, keys)"
            " SELECT printf('%016x', i), 'r', '', i, i, 0, 0, i, 9000000000000 + i, '{}', '{}', '',"
            " '[]' FROM n");
    run_sql("WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
            "INSERT INTO events(box_id, seq, id, kind, time_ms, before, after, cause, actor)"
            " SELECT (SELECT id FROM boxes), i, 'e' || i, 'note', i, 'requested', 'requested', '',"
            " '' FROM n");
    T_INT(events_of(s, id, 0).n, 10000);
    T_INT(store_add_event(s, id, NULL, "note", "", &e), 0);
    seen = events_of(s, id, 0);
    T_INT(seen.n, 10000);
    T_INT(seen.seqs[0], 2);
    T_INT(events_of(s, id, 10000).seqs[0], 10001);
    T_INT(n_records(s), 10000);
    store_set_clock(s, fake_now, &(int64_t){9000000000000 + DAY_MS});
    remove_box(s, id, "");
    T_INT(n_records(s), 10000);
    T_OK(store_find_record(s, "id", "0000000000000001", &(struct record_row){0}, &e) ==
         -ERR_NOT_FOUND);
    (void)store_close(s);
}

/* ---- keys ---- */

TEST(a_key_is_one_boxs_and_a_box_has_many)
{
    struct store *s = open_here();
    json_t *spec = json_object();
    struct box_row row = {0};
    struct err e = {0};
    char a[BOX_ID_BYTES], b[BOX_ID_BYTES];

    add(s, "a", a);
    add(s, "b", b);
    T_INT(store_add_key(s, a, "1234.5678", &e), 0);
    T_INT(store_add_key(s, a, "1234.5678", &e), 0); /* it has it */
    T_INT(store_add_key(s, b, "1234.5678", &e), -ERR_EXISTS);
    T_STR(e.field, "key");
    T_INT(store_add(s, "c", spec, "1234.5678", &row, &e), -ERR_EXISTS);
    T_STR(e.field, "key");
    T_INT(store_find(s, "c", &row, &e), -ERR_NOT_FOUND); /* it was one transaction */
    T_INT(store_find_key(s, "1234.5678", &row, &e), 0);
    T_STR(row.id, a);
    box_row_done(&row);
    T_INT(store_find_key(s, "1234.56789", &row, &e), -ERR_NOT_FOUND);
    run_sql("WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
            "INSERT INTO keys(key, box_id) SELECT CAST('k' || i AS BLOB), box_id FROM n, keys"
            " WHERE key = CAST('1234.5678' AS BLOB)");
    T_INT(store_add_key(s, a, "one more", &e), -ERR_EXHAUSTED);
    remove_box(s, a, "");
    T_INT(store_add(s, "c", spec, "1234.5678", &row, &e), 0);
    T_STR(row.keys, "[\"313233342E35363738\"]");
    box_row_done(&row);
    json_decref(spec);
    (void)store_close(s);
}

/* ---- versions, faults ---- */

static const char version_2[] =
    "PRAGMA journal_mode=WAL;"
    "CREATE TABLE boxes(id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " state TEXT NOT NULL, cause TEXT NOT NULL DEFAULT '',"
    " created_ms INTEGER NOT NULL, state_since_ms INTEGER NOT NULL,"
    " deadline_ms INTEGER NOT NULL DEFAULT 0, made INTEGER NOT NULL DEFAULT 0,"
    " spec TEXT NOT NULL, agent TEXT NOT NULL DEFAULT '{}',"
    " ports TEXT NOT NULL DEFAULT '{}') STRICT;"
    "ALTER TABLE boxes ADD COLUMN project TEXT;"
    "ALTER TABLE boxes ADD COLUMN remote TEXT NOT NULL DEFAULT '';"
    "INSERT INTO boxes VALUES('0123456789abcdef', 'old', 'stopped', 'because', 1, 2, 0, 1,"
    " '{\"provider\":\"oci\",\"env\":[\"T=1\"]}', '{}', '{\"0\":40123}', '/src', '');"
    "PRAGMA user_version=2;";

TEST(a_store_of_version_2_is_opened_and_a_program_of_that_version_keeps_the_history_whole)
{
    static const char id[] = "0123456789abcdef";
    struct box_row row = {0};
    struct record_row record = {0};
    struct seen_events seen;
    struct store *s;
    struct err e = {0};

    run_sql(version_2);
    s = open_here();
    T_INT(store_find(s, "old", &row, &e), 0);
    T_STR(row.project, "/src");
    T_INT(row.times.created_ms, 1);
    T_INT(row.times.updated_ms, 2);
    T_STR(row.keys, "[]");
    box_row_done(&row);
    walk(s, id, BH_STATE_PROVISIONING);
    T_INT(store_add_key(s, id, "k", &e), 0);
    run_sql("DELETE FROM boxes WHERE id = '0123456789abcdef'"); /* as the older program does */
    T_INT(store_find_record(s, "name", "old", &record, &e), 0);
    T_INT(json_array_size(json_object_get(record.spec, "env")), 0);
    T_STR(json_string_value(json_object_get(record.spec, "provider")), "oci");
    T_OK(json_is_null(record.exit));
    record_row_done(&record);
    seen = events_of(s, id, 0);
    T_INT(seen.n, 2);
    T_INT(seen.before[1], BH_STATE_PROVISIONING);
    T_INT(seen.after[1], BH_STATE_DESTROYED);
    T_OK(seen.times[1] >= seen.times[0]);
    T_INT(store_find_key(s, "k", &row, &e), -ERR_NOT_FOUND);
    (void)store_close(s);
}

/* The state of a box is what its last event says, at whatever moment the writer was killed. */
TEST(kill_9_does_not_part_a_state_from_its_event)
{
    struct store *s = open_here();
    struct err e = {0};
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    walk(s, id, BH_STATE_DESTROYING);
    (void)store_close(s);
    for (int round = 0; round < 25; round++) {
        struct box_row row = {0};
        struct seen_events seen;
        int p[2];
        char byte;
        pid_t pid;

        T_INT(pipe(p), 0);
        pid = fork();
        if (pid == 0) {
            s = open_here();
            for (int i = 0;; i++) {
                char cause[32];

                (void)snprintf(cause, sizeof(cause), "%d.%d", round, i);
                (void)store_set_state(s, id, BH_STATE_DESTROYING, cause, NULL);
                (void)!write(p[1], "x", i <= round % 5);
            }
        }
        for (int i = 0; i <= round % 5; i++)
            T_INT(read(p[0], &byte, 1), 1);
        (void)kill(pid, SIGKILL);
        T_OK(waitpid(pid, NULL, 0) == pid);
        fd_close(p[0]);
        fd_close(p[1]);
        s = open_here();
        T_INT(store_get(s, id, &row, &e), 0);
        seen = events_of(s, id, 0);
        if (seen.n > 64)
            seen = events_of(s, id, (int64_t)seen.n - 1);
        T_STR(row.cause, seen.causes[seen.n - 1]);
        T_INT(row.state, seen.after[seen.n - 1]);
        T_INT(row.state_since_ms, seen.times[seen.n - 1]);
        box_row_done(&row);
        (void)store_close(s);
    }
}

/* ---- faults ---- */

TEST(a_fault_that_repeats_is_one_event_until_something_else_happens)
{
    struct store *s = open_here();
    struct seen_events seen;
    struct err e = {0};
    char id[BOX_ID_BYTES];
    size_t n;

    add(s, "a", id);
    n = events_of(s, id, 0).n;
    for (int i = 0; i < 3; i++)
        T_INT(store_add_fault(s, id, "find: no answer", &e), 0);
    seen = events_of(s, id, 0);
    T_INT(seen.n, n + 1);
    T_STR(seen.kinds[n], "fault");
    T_STR(seen.causes[n], "find: no answer");
    T_INT(seen.before[n], BH_STATE_REQUESTED);
    T_INT(seen.after[n], BH_STATE_REQUESTED);
    T_INT(store_add_fault(s, id, "stop: no answer", &e), 0);
    store_set_actor(s, "monitor");
    T_INT(store_add_fault(s, id, "stop: no answer", &e), 0);
    walk(s, id, BH_STATE_PROVISIONING);
    T_INT(store_add_fault(s, id, "stop: no answer", &e), 0);
    T_INT(events_of(s, id, 0).n, n + 5);
    T_INT(store_add_fault(s, "0123456789abcdef", "find: no answer", &e), -ERR_NOT_FOUND);
    (void)store_close(s);
}

/* ---- claims ---- */

static size_t claim(struct store *s, const char *holder, int64_t before_ms)
{
    const struct store_claim c = {
        .holder = holder, .before_ms = before_ms, .claim_ms = 60000, .max = 50};
    char ids[50][BOX_ID_BYTES];
    struct err e = {0};
    size_t n = 99;

    T_INT(store_claim_stopped(s, &c, ids, &n, &e), 0);
    return n;
}

TEST(two_janitors_claim_each_box_once_in_batches_and_a_dead_ones_claims_end)
{
    int64_t now = START_MS;
    struct store *s = open_here();
    struct store *other = open_here();
    char id[BOX_ID_BYTES], name[16];

    store_set_clock(s, fake_now, &now);
    store_set_clock(other, fake_now, &now);
    for (int i = 0; i < 120; i++) {
        (void)snprintf(name, sizeof(name), "b%d", i);
        add(s, name, id);
        walk(s, id, BH_STATE_ERROR);
        if (i >= 110) { /* too young */
            now += DAY_MS;
            walk(s, id, BH_STATE_STOPPING);
            walk(s, id, BH_STATE_STOPPED);
            now -= DAY_MS;
        }
    }
    add(s, "busy", id);
    T_INT(claim(s, "one", now), 50);
    T_INT(claim(other, "two", now), 50);
    T_INT(claim(s, "one", now), 10);
    T_INT(claim(other, "two", now), 0);
    store_release_claims(s, "two");
    T_INT(claim(s, "one", now), 50);
    now += 60001; /* both were killed */
    T_INT(claim(other, "three", START_MS), 50);
    now -= DAY_MS; /* claims of the future do not count */
    T_INT(claim(other, "four", START_MS), 50);
    (void)store_close(other);
    (void)store_close(s);
}

struct last_event {
    int64_t seq;
    char text[64];
};

static int keep_last(void *arg, const struct event_row *event)
{
    struct last_event *last = arg;

    last->seq = event->seq;
    (void)snprintf(last->text, sizeof(last->text), "%s %s %s %s", bh_state_name(event->before),
                   bh_state_name(event->after), event->cause, event->actor);
    return 0;
}

TEST(a_state_that_an_older_program_writes_is_an_event_once)
{
    struct store *s = open_here();
    struct last_event last = {0};
    struct box_row row = {0};
    struct err e = {0};
    sqlite3 *old = NULL;
    char id[BOX_ID_BYTES];

    add(s, "a", id);
    walk(s, id, BH_STATE_PROVISIONING);
    T_INT(store_list_events(s, id, 0, keep_last, &last, &e), 0);
    T_INT(last.seq, 2);
    T_INT(sqlite3_open("store.db", &old), SQLITE_OK);
    T_INT(sqlite3_exec(old,
                       "UPDATE boxes SET state = 'stopping', cause = 'old',"
                       " state_since_ms = 9000000000000 WHERE name = 'a'",
                       NULL, NULL, NULL),
          SQLITE_OK);
    (void)sqlite3_close(old);
    T_INT(store_list_events(s, id, 0, keep_last, &last, &e), 0);
    T_INT(last.seq, 3);
    T_STR(last.text, "provisioning stopping old unknown");
    T_INT(store_get(s, id, &row, &e), 0);
    T_OK(row.times.updated_ms == 9000000000000LL);
    box_row_done(&row);
    walk(s, id, BH_STATE_STOPPED);
    T_INT(store_list_events(s, id, 0, keep_last, &last, &e), 0);
    T_INT(last.seq, 4);
    (void)store_close(s);
}
