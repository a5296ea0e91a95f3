#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/clock.h"
#include "event/loop.h"

static struct loop *new_loop(void)
{
    struct loop *l = NULL;
    struct err e = {0};

    T_INT(loop_new(&l, &e), 0);
    return l;
}

static void stop(struct loop *l, void *arg)
{
    (void)arg;
    loop_stop(l);
}

static void stop_after(struct loop *l, int ms)
{
    struct loop_timer *t;

    T_INT(loop_timer_add(l, clock_mono_ms() + ms, stop, NULL, &t, NULL), 0);
}

static char order[64];

static void note(struct loop *l, void *arg)
{
    (void)l;
    order[strlen(order)] = *(const char *)arg;
}

static void note_at_end(struct loop *l, void *arg)
{
    note(l, loop_is_over(l) ? arg : (void *)"?");
    if (*(const char *)arg == 'a')
        T_INT(loop_post_sure(l, note_at_end, (void *)"c", NULL), 0);
}

TEST(what_gives_back_is_run_also_when_the_loop_has_ended)
{
    struct loop *l = new_loop();

    stop_after(l, 1);
    T_INT(loop_run(l, NULL), 0);
    T_INT(loop_post_sure(l, note_at_end, (void *)"a", NULL), 0);
    T_INT(loop_post(l, note, (void *)"x", NULL), 0);
    T_INT(loop_post_sure(l, note_at_end, (void *)"b", NULL), 0);
    T_STR(order, "");
    loop_free(l);
    T_STR(order, "abc");
}

TEST(timers_run_in_the_order_of_their_time)
{
    struct loop *l = new_loop();
    int64_t now = clock_mono_ms();
    struct loop_timer *t, *dropped;

    T_INT(loop_timer_add(l, now + 30, note, (void *)"c", &t, NULL), 0);
    T_INT(loop_timer_add(l, now + 10, note, (void *)"a", &t, NULL), 0);
    T_INT(loop_timer_add(l, now + 20, note, (void *)"x", &dropped, NULL), 0);
    T_INT(loop_timer_add(l, now + 10, note, (void *)"b", &t, NULL), 0);
    T_OK(!loop_timer_del(dropped));
    T_OK(!loop_timer_del(NULL));
    stop_after(l, 50);
    T_INT(loop_run(l, NULL), 0);
    T_STR(order, "abc");
    T_OK(clock_mono_ms() - now >= 50);
    loop_free(l);
}

TEST(thousands_of_timers_made_and_deleted_keep_their_order)
{
    enum { N = 5000 };
    static struct loop_timer *t[N];
    struct loop *l = new_loop();
    unsigned seed = 1;

    for (int i = 0; i < N; i++) {
        seed = seed * 1103515245 + 12345;
        T_INT(loop_timer_add(l, (int64_t)(seed >> 16) % 1000, note, (void *)"", &t[i], NULL), 0);
    }
    for (int i = 0; i < N; i += 2)
        loop_timer_del(t[i]);
    stop_after(l, 5);
    T_INT(loop_run(l, NULL), 0);
    loop_free(l);
}

static atomic_int n_posted;

static void count(struct loop *l, void *arg)
{
    (void)arg;
    T_OK(loop_is_here(l));
    n_posted++;
}

static void *poster(void *arg)
{
    for (int i = 0; i < 1000; i++)
        T_INT(loop_post(arg, count, NULL, NULL), 0);
    return NULL;
}

static void note_and_stop(struct loop *l, void *arg)
{
    note(l, arg);
    loop_stop(l);
}

TEST(what_is_posted_lazily_keeps_its_place_and_runs_without_any_other_reason)
{
    struct loop *l = new_loop();

    T_INT(loop_post_lazily(l, note, (void *)"a", NULL), 0);
    T_INT(loop_post(l, note, (void *)"b", NULL), 0);
    T_INT(loop_post_lazily(l, note_and_stop, (void *)"c", NULL), 0);
    T_INT(loop_run(l, NULL), 0);
    T_STR(order, "abc");
    loop_free(l);
    l = new_loop();
    T_INT(loop_post_lazily(l, note, (void *)"d", NULL), 0);
    T_INT(loop_post_lazily(l, note_and_stop, (void *)"e", NULL), 0);
    T_INT(loop_run(l, NULL), 0); /* nothing else wakes it */
    T_STR(order, "abcde");
    loop_free(l);
}

TEST(quiet_is_told_of_once_after_something_has_happened)
{
    struct loop *l = new_loop();

    loop_on_quiet(l, note, (void *)"q");
    stop_after(l, 800);
    T_INT(loop_run(l, NULL), 0);
    T_STR(order, ""); /* nothing but its own timer */
    loop_free(l);
    l = new_loop();
    loop_on_quiet(l, note, (void *)"q");
    T_INT(loop_post(l, note, (void *)"p", NULL), 0);
    stop_after(l, 2000);
    T_INT(loop_run(l, NULL), 0);
    T_STR(order, "pq");
    loop_free(l);
}

TEST(posts_from_many_threads_all_run_before_the_stop)
{
    struct loop *l = new_loop();
    pthread_t threads[4];

    T_INT(loop_start(l, NULL), 0);
    T_OK(!loop_is_here(l));
    for (int i = 0; i < 4; i++)
        T_INT(pthread_create(&threads[i], NULL, poster, l), 0);
    for (int i = 0; i < 4; i++)
        T_INT(pthread_join(threads[i], NULL), 0);
    loop_stop(l);
    T_INT(n_posted, 4000);
    loop_free(l);
}

struct pair {
    struct loop_watch *watch[2];
    int n_calls;
};

/* Both are ready in one batch; the callback that runs first deletes both. */
static void delete_both(struct loop *l, uint32_t events, void *arg)
{
    struct pair *p = arg;

    (void)l;
    T_OK(events & EPOLLIN);
    p->n_calls++;
    p->watch[0] = loop_watch_del(p->watch[0]);
    p->watch[1] = loop_watch_del(p->watch[1]);
}

TEST(deleted_watch_is_not_called_from_the_same_batch)
{
    struct loop *l = new_loop();
    struct pair p = {0};
    int fds[2][2];

    for (int i = 0; i < 2; i++) {
        T_INT(pipe(fds[i]), 0);
        T_INT(write(fds[i][1], "x", 1), 1);
        T_INT(loop_watch_add(l, fds[i][0], EPOLLIN, delete_both, &p, &p.watch[i], NULL), 0);
    }
    stop_after(l, 20);
    T_INT(loop_run(l, NULL), 0);
    T_INT(p.n_calls, 1);
    loop_free(l);
}

TEST(file_that_cannot_be_watched_is_an_error)
{
    int fd = open("/etc/passwd", O_RDONLY);
    struct loop *l = new_loop();
    struct loop_watch *w;
    struct err e = {0};

    T_INT(loop_watch_add(l, fd, EPOLLIN, delete_both, NULL, &w, &e), -ERR_DENIED);
    loop_free(l);
    (void)close(fd);
}
