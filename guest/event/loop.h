#pragma once
/*
 * loop: one thread with epoll. It owns everything that takes time but no processor: children by
 * pidfd, their pipes and ptys, timers, sockets that only need to be watched. Callbacks run on the
 * loop's thread and never block. Other threads use loop_post().
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define LOOP_LAZY_MS 3

struct loop;
struct loop_watch; /* a descriptor being watched */
struct loop_timer;

typedef void (*loop_fd_fn)(struct loop *l, uint32_t events, void *arg);
typedef void (*loop_fn)(struct loop *l, void *arg);

int loop_new(struct loop **ret, struct err *e);
struct loop *loop_free(struct loop *l); /* after loop_stop(); accepts NULL; returns NULL */

int loop_start(struct loop *l, struct err *e); /* starts the thread */
void loop_stop(struct loop *l);                /* ends and joins the thread */
int loop_run(struct loop *l, struct err *e);   /* instead: runs on the caller's thread */
bool loop_is_here(const struct loop *l);       /* the caller is the loop's thread */

/* On the loop's thread only (or before it starts). events: EPOLLIN, EPOLLOUT, EPOLLRDHUP, ... */
int loop_watch_add(struct loop *l, int fd, uint32_t events, loop_fd_fn fn, void *arg,
                   struct loop_watch **ret, struct err *e);
int loop_watch_set(struct loop_watch *w, uint32_t events, struct err *e);
struct loop_watch *loop_watch_del(struct loop_watch *w); /* does not close fd; returns NULL */

/* On the loop's thread only. One shot; the handle in *ret is invalid once fn has run. */
int loop_timer_add(struct loop *l, int64_t at_mono_ms, loop_fn fn, void *arg,
                   struct loop_timer **ret, struct err *e);
struct loop_timer *loop_timer_del(struct loop_timer *t); /* accepts NULL; returns NULL */

/*
 * On the loop's thread only (or before it starts): fn runs when a burst of events has been over
 * for a while: the time to free memory that the burst has left behind. NULL: none.
 */
void loop_on_quiet(struct loop *l, loop_fn fn, void *arg);

/* From any thread: run fn on the loop's thread, in order. Fails only when there is no memory. */
int loop_post(struct loop *l, loop_fn fn, void *arg, struct err *e);
/*
 * The same for a function that frees something: if the loop has ended before, loop_free() runs
 * it, when no other thread is left. loop_is_over() is true then.
 */
int loop_post_sure(struct loop *l, loop_fn fn, void *arg, struct err *e);
bool loop_is_over(const struct loop *l);
/*
 * The same, in the same order, for a function that may wait for the loop's next turn or for
 * LOOP_LAZY_MS: a sleeping loop is not woken for it alone.
 */
int loop_post_lazily(struct loop *l, loop_fn fn, void *arg, struct err *e);
/*
 * After loop_run() or loop_stop(): runs the posts that have come since, on this thread. True:
 * there were any.
 */
bool loop_run_posted(struct loop *l);
