#pragma once
/*
 * feed: inotify events of some directories. The kernel limits the inotify instances of a user
 * (fs.inotify.max_user_instances, usually 128) over all programs, so the first FEED_OWN_MAX feeds
 * have one each and later ones share a few: there the loop reads the kernel's queue early and
 * distributes the events, so that a slow feed can't fill it. Both kinds behave alike: descriptor,
 * numbers, masks, order, merging and overflow are those of an inotify instance.
 *
 * Threads: one at a time for a feed; fs_feeds is thread-safe. Only functions marked so may block.
 */
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/types.h>

#include "common/err.h"

#define FEED_OWN_MAX 32
#define FEED_SHARED_MAX 4 /* shared instances without IN_EXCL_UNLINK, and as many with it */
#define FEED_QUEUE_BYTES (4u * 1024 * 1024) /* of a feed that shares; past it comes IN_Q_OVERFLOW */

struct loop;
struct fs_feeds; /* all feeds of an agent */
struct fs_feed;

int fs_feeds_new(struct loop *l, struct fs_feeds **ret, struct err *e);
/* After every feed and the loop are gone. Accepts NULL; returns NULL. */
struct fs_feeds *fs_feeds_free(struct fs_feeds *all);

/* all: NULL gives it an instance of its own. flags: IN_EXCL_UNLINK for all its watches, or 0. */
int fs_feed_new(struct fs_feeds *all, uint32_t flags, struct fs_feed **ret, struct err *e);
struct fs_feed *fs_feed_free(struct fs_feed *f); /* accepts NULL; returns NULL; may take a while */

int fs_feed_fd(const struct fs_feed *f); /* readable when fs_feed_read() has something */

/* As inotify_add_watch() of the directory dirfd, and inotify_rm_watch(); errno. The first may
 * block. */
int fs_feed_add(struct fs_feed *f, int dirfd, uint32_t mask);
void fs_feed_rm(struct fs_feed *f, int wd);

/* As read() of a non-blocking inotify descriptor: whole struct inotify_event. All events until now
 * are included. */
ssize_t fs_feed_read(struct fs_feed *f, void *out, size_t max);
