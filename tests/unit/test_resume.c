/* The table of uploads, without requests: bounds, expiry and leftovers. */
#include "test.h"

#include "fs_help.h"

#include "common/clock.h"
#include "http/request.h"
#include "api/files/resume.h"
#include "event/pool.h"

static struct err e;
static struct pool *pool;
static struct resumes *table;
static struct request *nobody;

static void begin(int64_t age_ms)
{
    struct resume_store *store = NULL;

    T_INT(pool_new(&pool, &e), 0);
    T_INT(resume_store_new(NULL, NULL, NULL, &store, &e), 0);
    T_INT(resumes_new(pool, age_ms, store, &table, &e), 0);
    nobody = calloc(1, sizeof(*nobody));
    (void)pthread_mutex_init(&nobody->lock, NULL);
    nobody->refs = 1;
    nobody->is_over = true;
}

static void end(void)
{
    table = resumes_free(table);
    pool = pool_free(pool, 60000);
    T_OK(!pool);
    nobody = request_unref(nobody);
}

/* Begins an upload of two bytes and does not complete it. */
static int add(struct fs_caller *c, char id[RESUME_ID_BYTES])
{
    static const struct fs_write_options plain;
    struct fs_write *w = NULL;
    struct resume *u = NULL;
    int r;

    T_INT(fs_write_begin(c, "f", &plain, &w, &e), 0);
    T_INT(fs_write_data(w, "ab", 2, &e), 0);
    r = resume_new(table, nobody, "f", fs_caller_ref(c), w, &u, &e);
    if (r < 0) {
        fs_caller_unref(c);
        fs_write_free(w);
        return r;
    }
    if (id)
        memcpy(id, u->id, RESUME_ID_BYTES);
    u->offset = 2;
    u->is_known = true;
    resume_release(table, u);
    return 0;
}

static int count_fds(void)
{
    int n = 0;

    for (int fd = 3; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

TEST(resume_has_a_bound_and_canceling_one_makes_room)
{
    struct fs_caller *c = h_caller();
    char id[RESUME_ID_BYTES];
    struct resume *u = NULL;

    begin(60000);
    for (int i = 0; i < RESUME_MAX_OPEN; i++)
        T_INT(add(c, i ? NULL : id), 0);
    T_INT(add(c, NULL), -ERR_EXHAUSTED);
    T_INT(resume_hold(table, nobody, id, &u, &e), 0);
    T_INT(u->offset, 2);
    resume_drop(u);
    resume_release(table, u);
    T_INT(resume_hold(table, nobody, id, &u, &e), -ERR_NOT_FOUND);
    T_INT(add(c, NULL), 0);
    T_OK(!h_exists("f"));
    end();
    h_drop(c);
}

TEST(resume_forgets_what_is_too_old_and_leaves_no_descriptor)
{
    struct fs_caller *c = h_caller();
    int64_t begun_ms = clock_mono_ms();
    char id[RESUME_ID_BYTES];
    struct resume *u = NULL;
    int before;

    begin(1000);
    before = count_fds();
    T_INT(add(c, id), 0);
    T_OK(count_fds() > before);
    resumes_sweep(table, begun_ms);
    T_INT(resume_hold(table, nobody, id, &u, &e), 0);
    resumes_sweep(table, clock_mono_ms() + 1000000); /* not an upload that is in use */
    T_OK(u->write);
    resume_release(table, u);
    while (count_fds() > before && clock_mono_ms() < begun_ms + 60000) {
        resumes_sweep(table, clock_mono_ms());
        usleep(5000);
    }
    T_INT(count_fds(), before);
    T_INT(resume_hold(table, nobody, id, &u, &e), -ERR_NOT_FOUND);
    end();
    h_drop(c);
}

TEST(resume_keeps_a_bounded_number_of_outcomes)
{
    struct fs_caller *c = h_caller();
    char first[RESUME_ID_BYTES], id[RESUME_ID_BYTES];
    struct resume *u = NULL;

    begin(60000);
    for (int i = 0; i < RESUME_MAX_CLOSED + 2; i++) {
        T_INT(add(c, id), 0);
        T_INT(resume_hold(table, nobody, id, &u, &e), 0);
        u->state = RESUME_DONE;
        resume_release(table, u);
        if (!i)
            memcpy(first, id, sizeof(first));
    }
    T_INT(resume_hold(table, nobody, first, &u, &e), -ERR_NOT_FOUND);
    T_INT(resume_hold(table, nobody, id, &u, &e), 0);
    T_OK(u->state == RESUME_DONE && !u->write);
    resume_release(table, u);
    end();
    h_drop(c);
}
