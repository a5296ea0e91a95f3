#pragma once
/*
 * npm: packages of the npm registry, fetched on this machine: the registry as npm's settings name
 * it, tarballs checked by their sha512 and kept under <cache_dir>/npm. A package with
 * dependencies comes as a tree, from a package-lock.json, packed into one archive; no npm program
 * is needed for either. One thread at a time.
 */
#include <stdint.h>

#include "common/err.h"
#include "lib/util/context.h"

#define NPM_MAX_TARBALL_BYTES (512LL << 20)
#define NPM_MAX_LOCK_BYTES (8u << 20)
#define NPM_MAX_PACKAGES 5000 /* in one lock file */

struct npm;

/* Nothing is asked of the network yet. */
int npm_new(struct bh_ctx *ctx, int64_t deadline_mono_ms, struct npm **ret, struct err *e);
struct npm *npm_free(struct npm *n);

/*
 * The tarball of one package, checked: *ret_path is a file of the cache. integrity: what it must
 * be ("sha512-..."), or NULL for what the registry says. ERR_UNAVAILABLE: the registry did not
 * answer; ERR_NOT_FOUND: it has no such version; ERR_DATA_LOSS: the bytes are not the right ones.
 * Each names the package.
 */
int npm_fetch(struct npm *n, const char *package, const char *version, const char *integrity,
              char **ret_path, struct err *e);

/*
 * The tree of a package-lock.json for Linux with glibc on `arch` (as uname says it), as a
 * tar.zst of node_modules/: a file of the cache. With a version, the lock is made anew for that
 * version of its one direct dependency; that needs the npm program.
 */
int npm_fetch_tree(struct npm *n, const char *lock_path, const char *version, const char *arch,
                   char **ret_path, struct err *e);

/* The registry for a package, without a slash at its end. */
int npm_registry(struct npm *n, const char *package, char **ret, struct err *e);

/* ---- for npm_tree.c and the tests ---- */

/* Is the file's sha512 that one? 1, 0 (also when there is no such file) or an error. */
int npm_check_file(const char *path, const char *integrity, struct err *e);
/* "sha512-..." of a file. */
int npm_digest_file(const char *path, char **ret, struct err *e);
/* Where the setting stands in the text of an npmrc file, or NULL; the caller frees. */
char *npm_read_setting(const char *npmrc, const char *key);
const char *npm_cache_dir(const struct npm *n);
struct bh_ctx *npm_ctx(const struct npm *n);
int64_t npm_deadline(const struct npm *n);
