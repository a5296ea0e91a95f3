#include "http/gzip.h"

#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

#include "common/cleanup.h"

#define PIECE_BYTES (64 * 1024)
#define GZIP_WINDOW (15 + 16) /* zlib's code for the framing of gzip */
#define LEVEL Z_BEST_SPEED    /* the network is near */
#define MEMORY_LEVEL 8

struct gunzip {
    z_stream z;
    int (*data)(void *arg, const void *data, size_t len, struct err *e);
    void *arg;
    bool is_ended; /* a member is complete, and no byte followed */
    uint64_t in, out;
    unsigned char piece[PIECE_BYTES];
};

int gunzip_new(int (*data)(void *arg, const void *data, size_t len, struct err *e), void *arg,
               struct gunzip **ret, struct err *e)
{
    struct gunzip *g = calloc(1, sizeof(*g));

    if (!g || inflateInit2(&g->z, GZIP_WINDOW) != Z_OK) {
        free(g);
        return err_oom(e);
    }
    g->data = data;
    g->arg = arg;
    *ret = g;
    return 0;
}

static int check_growth(const struct gunzip *g, struct err *e)
{
    if (g->out <= GZIP_FREE_BYTES || g->out / GZIP_MAX_RATIO <= g->in)
        return 0;
    return err_set(e, ERR_INVALID, "gzip: the body grows more than %d times past %llu bytes",
                   GZIP_MAX_RATIO, (unsigned long long)GZIP_FREE_BYTES);
}

/* Inflates one piece. *ret_more: out was too small for all of it. */
static int inflate_piece(struct gunzip *g, bool *ret_more, struct err *e)
{
    size_t len;
    int z, r = 0;

    if (g->is_ended) {
        (void)inflateReset(&g->z);
        g->is_ended = false;
    }
    g->z.next_out = g->piece;
    g->z.avail_out = PIECE_BYTES;
    z = inflate(&g->z, Z_NO_FLUSH);
    if (z == Z_MEM_ERROR)
        return err_oom(e);
    if (z != Z_OK && z != Z_STREAM_END && z != Z_BUF_ERROR)
        return err_set(e, ERR_INVALID, "gzip: %s", g->z.msg ? g->z.msg : "invalid header");
    len = PIECE_BYTES - g->z.avail_out;
    g->out += len;
    g->is_ended = z == Z_STREAM_END;
    *ret_more = g->z.avail_in > 0 || !g->z.avail_out;
    if (len)
        r = g->data(g->arg, g->piece, len, e);
    return r < 0 ? r : check_growth(g, e);
}

int gunzip_feed(struct gunzip *g, const void *data, size_t len, struct err *e)
{
    bool more = len > 0;
    int r = 0;

    g->z.next_in = (unsigned char *)(uintptr_t)data; /* zlib does not write there */
    g->z.avail_in = (unsigned)len;
    g->in += len;
    while (r == 0 && more)
        r = inflate_piece(g, &more, e);
    return r;
}

int gunzip_finish(struct gunzip *g, struct err *e)
{
    return g->is_ended ? 0 : err_set(e, ERR_INVALID, "gzip: unexpected EOF");
}

struct gunzip *gunzip_free(struct gunzip *g)
{
    if (!g)
        return NULL;
    (void)inflateEnd(&g->z);
    free(g);
    return NULL;
}

struct gzip {
    z_stream z;
    int (*read)(void *arg, void *data, size_t size, size_t *ret_len, struct err *e);
    void *arg;
    bool is_read;  /* the source is at its end */
    bool is_ended; /* the stream is complete */
    unsigned char piece[PIECE_BYTES];
};

int gzip_new(int (*read)(void *arg, void *data, size_t size, size_t *ret_len, struct err *e),
             void *arg, struct gzip **ret, struct err *e)
{
    struct gzip *g = calloc(1, sizeof(*g));

    if (!g || deflateInit2(&g->z, LEVEL, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
                           Z_DEFAULT_STRATEGY) != Z_OK) {
        free(g);
        return err_oom(e);
    }
    g->read = read;
    g->arg = arg;
    *ret = g;
    return 0;
}

static int gzip_fill(struct gzip *g, struct err *e)
{
    size_t len = 0;
    int r;

    if (g->is_read || g->z.avail_in)
        return 0;
    r = g->read(g->arg, g->piece, sizeof(g->piece), &len, e);
    if (r < 0)
        return r;
    g->is_read = !len;
    g->z.next_in = g->piece;
    g->z.avail_in = (unsigned)len;
    return 0;
}

int gzip_read(struct gzip *g, void *data, size_t size, size_t *ret_len, struct err *e)
{
    g->z.next_out = data;
    g->z.avail_out = (unsigned)size;
    while (!g->is_ended && g->z.avail_out == size) {
        int r = gzip_fill(g, e);

        if (r < 0)
            return r;
        g->is_ended = deflate(&g->z, g->is_read ? Z_FINISH : Z_NO_FLUSH) == Z_STREAM_END;
    }
    *ret_len = size - g->z.avail_out;
    return 0;
}

struct gzip *gzip_free(struct gzip *g)
{
    if (!g)
        return NULL;
    (void)deflateEnd(&g->z);
    free(g);
    return NULL;
}
