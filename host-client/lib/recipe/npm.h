#pragma once
/*
 * npm: fetches packages of the npm registry on this machine. npm's settings name the registry.
 * Tarballs are verified by their sha512 and kept under <cache_dir>/npm. A package with
 * dependencies comes as a tree, from a package-lock.json, packed into one archive. Neither needs
 * an npm program. One thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"

#define NPM_MAX_TARBALL_BYTES (512LL << 20)
#define NPM_MAX_LOCK_BYTES (8u << 20)
#define NPM_MAX_PACKAGES 5000 /* in one lock file */

struct npm;

/* Makes no network request yet. */
int npm_new(struct bh_ctx *ctx, int64_t deadline_mono_ms, struct npm **ret, struct err *e);
struct npm *npm_free(struct npm *n);

/*
 * Fetches and verifies the tarball of one package: *ret_path is a file of the cache. integrity:
 * the required digest ("sha512-..."), or NULL for the registry's. ERR_UNAVAILABLE: the registry
 * did not answer; ERR_NOT_FOUND: it has no such version; ERR_DATA_LOSS: wrong digest. Each error
 * names the package.
 */
int npm_fetch(struct npm *n, const char *package, const char *version, const char *integrity,
              char **ret_path, struct err *e);

/*
 * Fetches the tree of a package-lock.json for Linux with glibc on `arch` (as in uname) as a
 * tar.zst of node_modules/: a file of the cache. With a version, the lock file is made anew for
 * that version of its one direct dependency; that needs the npm program.
 */
int npm_fetch_tree(struct npm *n, const char *lock_path, const char *version, const char *arch,
                   char **ret_path, struct err *e);

/* The files of the cache that npm_fetch() and npm_fetch_tree() (without a version) return, whether they
 * are there or not. */
int npm_place(struct npm *n, const char *package, const char *version, char **ret_path,
              struct err *e);
int npm_place_tree(struct npm *n, const char *lock_path, const char *arch, char **ret_path,
                   struct err *e);
/* Is that tree there and whole? */
bool npm_tree_is_there(const char *path);

/* The registry of a package, without a trailing slash. */
int npm_registry(struct npm *n, const char *package, char **ret, struct err *e);

/* ---- for npm_tree.c and the tests ---- */

/* Compares the file's sha512: 1, 0 (also if there is no such file) or an error. */
int npm_check_file(const char *path, const char *integrity, struct err *e);
/* "sha512-..." of a file. */
int npm_digest_file(const char *path, char **ret, struct err *e);
/* The value of a setting in the text of an npmrc file, or NULL; free() it. */
char *npm_read_setting(const char *npmrc, const char *key);
const char *npm_cache_dir(const struct npm *n);
struct bh_ctx *npm_ctx(const struct npm *n);
int64_t npm_deadline(const struct npm *n);
