#pragma once
/*
 * feed: what the kernel's inotify says of some directories. A user may have only so many instances of
 * inotify (fs.inotify.max_user_instances, 128 as a rule) for all programs together, so the first
 * FEED_OWN_MAX feeds have one each and later ones share a few: there the loop reads the kernel's
 * queue at once and deals out what is in it, so that nobody's slowness fills it. A feed's user need
 * not care which it is: descriptor, numbers, masks, order, merging and overflow are an instance's own.
 *
 * Threads: one at a time for a feed; fs_feeds is thread-safe. Nothing blocks but what is said to.
 */
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/types.h>

#include "common/err.h"

#define FEED_OWN_MAX 32
#define FEED_SHARED_MAX 4 /* instances for the others, and as many for those with IN_EXCL_UNLINK */
#define FEED_QUEUE_BYTES (4u * 1024 * 1024) /* of one that shares; past it comes IN_Q_OVERFLOW */

struct loop;
struct fs_feeds; /* all of an agent */
struct fs_feed;

int fs_feeds_new(struct loop *l, struct fs_feeds **ret, struct err *e);
/* After every feed and the loop are gone. Accepts NULL; returns NULL. */
struct fs_feeds *fs_feeds_free(struct fs_feeds *all);

/* all: NULL gives it an instance of its own. flags: IN_EXCL_UNLINK for all its watches, or 0. */
int fs_feed_new(struct fs_feeds *all, uint32_t flags, struct fs_feed **ret, struct err *e);
struct fs_feed *fs_feed_free(struct fs_feed *f); /* accepts NULL; returns NULL; may take a while */

int fs_feed_fd(const struct fs_feed *f); /* readable when fs_feed_read() has something */

/* As inotify_add_watch() with the directory that dirfd is, and inotify_rm_watch(); errno. The first
 * may block as any look at a directory may. */
int fs_feed_add(struct fs_feed *f, int dirfd, uint32_t mask);
void fs_feed_rm(struct fs_feed *f, int wd);

/* As read() of an instance that does not block: struct inotify_event, whole ones. What has happened
 * until now is in it. */
ssize_t fs_feed_read(struct fs_feed *f, void *out, size_t max);
