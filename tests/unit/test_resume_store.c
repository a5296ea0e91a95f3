/* Files that unfinished uploads leave for the next agent, and their expiry if none comes. */
#include "test.h"

#include <sys/time.h>

#include "fs_help.h"

#include "api/files/resume_store.h"

static struct err e;

#define AGE_MS 3600000
#define ID "0123456789abcdef0123456789abcdef"

static struct resume_store *open_store(struct fs_caller *c)
{
    struct resume_store *s = NULL;

    T_INT(resume_store_new("notes", c->root, NULL, &s, &e), 0);
    return s;
}

/* An upload of "ab" to "f" that a former agent left. */
static struct resume_note *leave(struct resume_store *s, struct fs_caller *c, const char *id)
{
    static const struct fs_write_options plain = {.mode = 0640, .set_mode = true, .sync = true};
    struct resume_note *n = NULL;
    struct fs_write *w = NULL;

    T_INT(fs_write_begin(c, "f", &plain, &w, &e), 0);
    T_INT(fs_write_data(w, "ab", 2, &e), 0);
    T_INT(resume_store_keep(s, id, "f", NULL, w, &n, &e), 0);
    T_OK(!fs_write_leave(w));
    return n;
}

static int take(struct resume_store *s, struct resume_note **n, struct fs_caller **c,
                struct fs_write **w)
{
    *n = NULL;
    *c = NULL;
    *w = NULL;
    return resume_store_take(s, ID, AGE_MS, n, c, w, &e);
}

static void give_back(struct resume_note *n, struct fs_caller *c, struct fs_write *w)
{
    fs_write_leave(w);
    fs_caller_unref(c);
    resume_note_free(n);
}

static void make_path_old(const char *path, int64_t ms)
{
    struct timeval now, times[2];

    (void)gettimeofday(&now, NULL);
    now.tv_sec -= ms / 1000;
    times[0] = times[1] = now;
    T_INT(utimes(path, times), 0);
}

static void make_old(const char *id, int64_t ms)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "notes/%s", id);
    make_path_old(path, ms);
}

TEST(resume_store_gives_an_upload_to_one_at_a_time_with_all_that_it_was_begun_with)
{
    struct fs_caller *c = h_caller(), *mine, *other;
    struct resume_store *s = open_store(c);
    struct resume_note *n = leave(s, c, ID), *got, *none;
    struct fs_write_result result;
    struct fs_write *w, *second;

    n->has_length = true;
    n->length = 3;
    T_INT(resume_store_put(s, n, &e), 0);
    T_INT(take(s, &got, &mine, &w), 0);
    T_OK(got->options.sync && got->options.set_mode && got->options.mode == 0640);
    T_OK(got->has_length && got->length == 3 && !got->has_floor && !got->user);
    T_STR(got->asked, "f");
    T_INT(fs_write_offset(w), 2);
    T_INT(take(s, &none, &other, &second), -ERR_UNAVAILABLE);
    give_back(got, mine, w);

    /*
     * A piece with a digest does not count unless it is whole; an offset that was reported stays
     * valid.
     */
    n->has_floor = true;
    n->floor = 1;
    T_INT(resume_store_put(s, n, &e), 0);
    for (int i = 0; i < 2; i++) {
        T_INT(take(s, &got, &mine, &w), 0);
        T_INT(fs_write_offset(w), i ? 2 : 1);
        T_INT(fs_write_data(w, "x", i ? 0 : 1, &e), 0);
        if (i == 0)
            give_back(got, mine, w);
    }
    T_OK(!h_exists("f"));
    T_INT(fs_write_commit(w, &result, &e), 0);
    T_STR(h_text("f"), "ax");
    give_back(got, mine, w);
    T_INT(take(s, &got, &mine, &w), -ERR_NOT_FOUND);
    resume_note_free(n);
    resume_store_free(s);
    h_drop(c);
}

TEST(resume_store_opens_nothing_but_what_it_has_kept)
{
    struct fs_caller *c = h_caller(), *mine;
    struct resume_store *s = open_store(c);
    struct resume_note *n = leave(s, c, ID), *got;
    struct fs_write *w;

    /* Another file, a link, or a second name in its place. */
    T_INT(rename(n->kept.name, "away"), 0);
    h_file(n->kept.name, "theirs");
    T_INT(take(s, &got, &mine, &w), -ERR_NOT_FOUND);
    T_STR(h_text(n->kept.name), "theirs");
    T_INT(unlink(n->kept.name), 0);
    T_INT(symlink("away", n->kept.name), 0);
    T_OK(take(s, &got, &mine, &w) < 0);
    T_INT(unlink(n->kept.name), 0);
    T_INT(link("away", n->kept.name), 0);
    T_INT(take(s, &got, &mine, &w), -ERR_NOT_FOUND);
    T_INT(unlink("away"), 0);
    /* A note that can't be parsed. */
    h_file("notes/" ID, "{\"path\":\"/etc/passwd\"}");
    T_INT(take(s, &got, &mine, &w), -ERR_INVALID);
    T_INT(resume_store_take(s, "../notes/" ID, AGE_MS, &got, &mine, &w, &e), -ERR_NOT_FOUND);
    (void)snprintf(n->kept.name, sizeof(n->kept.name), "f");
    h_file("f", "theirs");
    T_INT(resume_store_put(s, n, &e), 0);
    T_INT(take(s, &got, &mine, &w), -ERR_INVALID);
    T_STR(h_text("f"), "theirs");
    resume_note_free(n);
    resume_store_free(s);
    h_drop(c);
}

TEST(resume_store_sweeps_what_nobody_comes_for)
{
    struct fs_caller *c = h_caller(), *mine;
    struct resume_store *s = open_store(c);
    struct resume_note *n = leave(s, c, ID), *got;
    struct fs_write *w;

    T_INT(take(s, &got, &mine, &w), 0);
    make_path_old(n->kept.name, AGE_MS + 5000);
    make_old(ID, AGE_MS + 5000);
    resume_store_sweep(s, AGE_MS); /* it is in use */
    T_OK(h_exists("notes/" ID) && h_exists(n->kept.name));
    give_back(got, mine, w);
    T_INT(take(s, &got, &mine, &w), -ERR_NOT_FOUND); /* too old */
    resume_store_sweep(s, AGE_MS);
    T_OK(!h_exists("notes/" ID) && !h_exists(n->kept.name));
    resume_note_free(n);

    n = leave(s, c, ID);
    T_INT(unlink(n->kept.name), 0);
    resume_store_sweep(s, AGE_MS); /* maybe just being made */
    T_OK(h_exists("notes/" ID));
    make_old(ID, 120000);
    resume_store_sweep(s, AGE_MS);
    T_OK(!h_exists("notes/" ID));
    resume_note_free(n);
    resume_store_free(s);
    h_drop(c);
}

TEST(resume_store_keeps_an_upload_as_long_as_its_client_asked_since_its_last_byte)
{
    struct fs_caller *c = h_caller(), *mine;
    struct resume_store *s = open_store(c);
    struct resume_note *n = leave(s, c, ID), *got;
    struct fs_write *w;
    int64_t left;

    n->age_ms = 60000;
    T_INT(resume_store_put(s, n, &e), 0);
    left = resume_store_sweep(s, AGE_MS);
    T_OK(left > 0 && left <= 60000);
    /* A request has written to it for longer than that. */
    make_old(ID, 70000);
    make_path_old(n->kept.name, 40000);
    left = resume_store_sweep(s, AGE_MS);
    T_OK(left > 0 && left <= 20000);
    T_INT(take(s, &got, &mine, &w), 0);
    T_INT(got->age_ms, 60000);
    give_back(got, mine, w);
    /* A time in the future is no sign of use. */
    make_path_old(n->kept.name, -AGE_MS);
    T_INT(take(s, &got, &mine, &w), -ERR_NOT_FOUND);
    T_INT(resume_store_sweep(s, AGE_MS), INT64_MAX);
    T_OK(!h_exists("notes/" ID) && !h_exists(n->kept.name));
    resume_note_free(n);

    /* Another file of that name stays. */
    n = leave(s, c, ID);
    T_INT(rename(n->kept.name, "away"), 0);
    h_file(n->kept.name, "theirs");
    make_path_old(n->kept.name, AGE_MS + 5000);
    make_old(ID, AGE_MS + 5000);
    T_INT(resume_store_sweep(s, AGE_MS), INT64_MAX);
    T_STR(h_text(n->kept.name), "theirs");
    T_OK(h_exists("away") && !h_exists("notes/" ID));
    resume_note_free(n);
    resume_store_free(s);
    h_drop(c);
}

TEST(resume_store_has_a_bound_and_a_place_of_its_own)
{
    static const struct fs_write_options plain;
    struct fs_caller *c = h_caller();
    struct resume_store *s = open_store(c);
    struct resume_note *n = leave(s, c, ID), *more = NULL;
    struct fs_write *w = NULL;

    T_INT(fs_write_begin(c, "g", &plain, &w, &e), 0);
    for (int i = 1; i < RESUME_STORE_MAX; i++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "notes/%032x", (unsigned)i);
        h_file(path, "");
    }
    T_OK(resume_store_keep(s, "1123456789abcdef0123456789abcdef", "g", NULL, w, &more, &e) < 0);
    T_INT(unlink("notes/00000000000000000000000000000001"), 0);
    T_INT(resume_store_keep(s, "1123456789abcdef0123456789abcdef", "g", NULL, w, &more, &e), 0);
    resume_note_free(more);
    resume_note_free(n);
    resume_store_free(s);

    /* A directory that others can write to is ignored. */
    T_INT(chmod("notes", 0777), 0);
    s = open_store(c);
    T_OK(resume_store_keep(s, ID, "g", NULL, w, &more, &e) < 0);
    fs_write_free(w);
    resume_store_free(s);
    h_drop(c);
}
