#pragma once
/*
 * engine: the Engine API of Docker and of Podman's service, over a unix socket, TCP or TLS. The version is negotiated:
 * the newest that both sides have. Answers are bounded and decoded as hostile input. One thread at a time.
 *
 * Source: Docker Engine API v1.40 and later (the reference that Docker publishes with each version).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "lib/util/context.h"

#define ENGINE_URL_BYTES 4096

struct engine;

/* The engine that a new box is made on: ctx->docker_host, or the first socket that is there. free() it. */
int engine_choose(const struct bh_ctx *ctx, char **ret, struct err *e);
/*
 * url: as bh_options.docker_host. Connects and agrees on a version. ERR_UNAVAILABLE: no engine answers;
 * ERR_UNIMPLEMENTED: it is older than ours, or the URL is of another kind. The field is "docker_host".
 */
int engine_open(struct bh_ctx *ctx, const char *url, int64_t deadline_mono_ms, struct engine **ret,
                struct err *e);
void engine_set_deadline(struct engine *d, int64_t deadline_mono_ms);
struct engine *engine_free(struct engine *d); /* accepts NULL; returns NULL */

static inline void engine_free_p(struct engine **d)
{
    (void)engine_free(*d);
}
#define _cleanup_engine_ __attribute__((cleanup(engine_free_p)))

const char *engine_url(const struct engine *d); /* as it was opened */
/* Is the engine a process of this machine, as far as its socket tells? */
bool engine_is_local(const struct engine *d);
/* The user that listens on the engine's unix socket. ERR_UNIMPLEMENTED: it has none. */
int engine_owner(const struct engine *d, uid_t *ret, struct err *e);
bool engine_is_podman(const struct engine *d); /* else Docker */

/*
 * A call. path: with its query, percent-encoded, without the version. 2xx and 304 are success; the answer is *ret (NULL:
 * it had no body), which may be NULL. Else the error has the engine's message: 404 is ERR_NOT_FOUND, 409 ERR_EXISTS,
 * 400 ERR_INVALID, 401 and 403 ERR_DENIED, a full disk ERR_EXHAUSTED, the rest ERR_UNAVAILABLE. An answer that is no
 * HTTP or no JSON is ERR_DATA_LOSS.
 */
int engine_call(struct engine *d, const char *method, const char *path, const json_t *body,
                json_t **ret, struct err *e);
/* For what must not be done twice: it is not sent again when its answer is lost. */
int engine_post_once(struct engine *d, const char *path, const json_t *body, json_t **ret,
                     struct err *e);
int engine_get(struct engine *d, json_t **ret, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int engine_post(struct engine *d, const json_t *body, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Loads an image from a tar: a file, from its start, of len bytes. */
int engine_load(struct engine *d, int fd, int64_t len, struct err *e);
int engine_send_bytes(struct engine *d, const char *method, const char *path, const void *data,
                      size_t len, struct err *e);
/* The last bytes of a container's output, without the engine's framing. free() it. */
int engine_logs(struct engine *d, const char *id, char **ret, size_t *ret_len, struct err *e);
/* A raw connection by "Upgrade: tcp" (attach, exec). */
int engine_hijack(struct engine *d, const char *path, const json_t *body, int *ret_fd,
                  struct err *e);
/* A descriptor that becomes readable when the container dies, is paused or runs on from now on. ERR_UNIMPLEMENTED: not
 * over TLS. */
int engine_watch(struct engine *d, const char *id, int *ret_fd, struct err *e);
/* A value for a query, percent-encoded. free() it. NULL: out of memory. */
char *engine_encode_take(json_t *value);
