#include "lib/provider/layer_known.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

#define FIRST_PLACES 1024
#define TABLE_MAX_BYTES ((size_t)1 << 30)

/* A table with open addressing, at most half full. */
struct layer_known {
    struct known_file *files;
    size_t n, places; /* a power of two */
    int64_t synced_ns;
    char layer[LAYER_HEX_BYTES]; /* the copy that has the files */
};

struct layer_known *layer_known_new(void)
{
    struct layer_known *k = calloc(1, sizeof(*k));

    if (k)
        k->files = calloc(FIRST_PLACES, sizeof(*k->files));
    if (!k || !k->files) {
        free(k);
        return NULL;
    }
    k->places = FIRST_PLACES;
    return k;
}

struct layer_known *layer_known_free(struct layer_known *k)
{
    for (size_t i = 0; k && i < k->places; i++) {
        free(k->files[i].path);
        free(k->files[i].attributes);
    }
    if (k)
        free(k->files);
    free(k);
    return NULL;
}

void layer_known_set_synced(struct layer_known *k, int64_t real_ns)
{
    k->synced_ns = real_ns;
}

void layer_known_set_layer(struct layer_known *k, const char *layer)
{
    (void)snprintf(k->layer, sizeof(k->layer), "%s", layer);
}

const char *layer_known_layer(const struct layer_known *k)
{
    return k->layer;
}

static struct known_file *known_place(struct known_file *files, size_t places, uint64_t ino)
{
    size_t i = (size_t)(ino * 0x9e3779b97f4a7c15u) & (places - 1);

    while (files[i].ino && files[i].ino != ino)
        i = (i + 1) & (places - 1);
    return &files[i];
}

const struct known_file *known_find(const struct layer_known *k, uint64_t ino)
{
    const struct known_file *f = known_place(k->files, k->places, ino);

    return f->ino ? f : NULL;
}

static int64_t known_ctime(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

const struct known_file *known_unchanged(const struct layer_known *k, const struct stat *st)
{
    const struct known_file *f = k ? known_find(k, st->st_ino) : NULL;

    return f && f->ctime_ns == known_ctime(st) && f->ctime_ns < k->synced_ns - LAYER_CLOCK_STEP_NS
               ? f
               : NULL;
}

static int known_grow(struct layer_known *k, struct err *e)
{
    size_t places = k->places * 2;
    struct known_file *files;

    if (k->n * 2 < k->places)
        return 0;
    files = calloc(places, sizeof(*files));
    if (!files)
        return err_oom(e);
    for (size_t i = 0; i < k->places; i++)
        if (k->files[i].ino)
            *known_place(files, places, k->files[i].ino) = k->files[i];
    free(k->files);
    k->files = files;
    k->places = places;
    return 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_digest(const char *hex, uint8_t out[32])
{
    for (size_t i = 0; i < 32; i++) {
        int high = hex_digit(hex[2 * i]);
        int low = high < 0 ? -1 : hex_digit(hex[2 * i + 1]);

        if (low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static int known_put(struct layer_known *k, const struct known_file *f, struct err *e)
{
    int r = known_grow(k, e);
    struct known_file *place;

    if (r < 0 || !f->ino)
        return r;
    place = known_place(k->files, k->places, f->ino);
    if (place->ino)
        return 0;
    *place = *f;
    place->path = strdup(f->path);
    place->attributes = f->attributes && *f->attributes ? strdup(f->attributes) : NULL;
    k->n++;
    return place->path && (place->attributes || !f->attributes || !*f->attributes) ? 0 : err_oom(e);
}

int known_add(struct layer_known *k, const struct stat *st, const char *hex, const char *path,
              const char *attributes, struct err *e)
{
    struct known_file f = {.ino = st->st_ino,
                           .ctime_ns = known_ctime(st),
                           .path = (char *)path,
                           .attributes = (char *)attributes};

    return parse_digest(hex, f.digest) ? known_put(k, &f, e)
                                       : err_set(e, ERR_INTERNAL, "not a digest");
}

/* ---- as text ---- */

int layer_known_save(const struct layer_known *k, int dirfd, const char *name, struct err *e)
{
    _cleanup_buf_ struct buf text = {0};
    int r;

    buf_init(&text, TABLE_MAX_BYTES);
    r = buf_addf(&text, e, "%" PRId64 " %s\n", k->synced_ns, k->layer);
    for (size_t i = 0; r == 0 && i < k->places; i++) {
        const struct known_file *f = &k->files[i];
        char hex[LAYER_HEX_BYTES];

        if (!f->ino)
            continue;
        str_hex(f->digest, sizeof(f->digest), hex);
        r = buf_addf(&text, e, "%" PRIu64 " %" PRId64 " %s ", f->ino, f->ctime_ns, hex);
        if (r == 0)
            r = layer_put_text(&text, f->path, e);
        if (r == 0 && f->attributes)
            r = buf_adds(&text, f->attributes, e);
        if (r == 0)
            r = buf_adds(&text, "\n", e);
    }
    return r < 0 ? r : io_write_file(dirfd, name, text.data, text.len, 0600, false, e);
}

static void get_text(char *s)
{
    char *out = s;
    unsigned byte;

    for (; *s; s++) {
        if (s[0] == '\\' && s[1] == 'x' && sscanf(s + 2, "%2x", &byte) == 1) {
            *out++ = (char)byte;
            s += 3;
        } else {
            *out++ = *s;
        }
    }
    *out = '\0';
}

/* A line that is not one of ours is left out: its file is copied. */
static int known_read_line(struct layer_known *k, char *line, struct err *e)
{
    struct known_file f = {0};
    char hex[LAYER_HEX_BYTES] = "";
    char *attributes;
    int at = 0, r;

    if (sscanf(line, "%" SCNu64 " %" SCNd64 " %64s %n", &f.ino, &f.ctime_ns, hex, &at) < 3 || !at ||
        !parse_digest(hex, f.digest))
        return 0;
    f.path = line + at;
    attributes = strchr(f.path, '\t');
    if (attributes) {
        f.attributes = strdup(attributes);
        if (!f.attributes)
            return err_oom(e);
        *attributes = '\0';
    }
    get_text(f.path);
    r = *f.path ? known_put(k, &f, e) : 0;
    free(f.attributes);
    return r;
}

int layer_known_load(struct layer_known *k, int dirfd, const char *name, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    char *rest, *line;
    int r = io_read_file(dirfd, name, TABLE_MAX_BYTES, &text, NULL, e);

    rest = text;
    line = r == 0 ? strsep(&rest, "\n") : NULL;
    if (r == 0 && sscanf(line, "%" SCNd64 " %64s", &k->synced_ns, k->layer) != 2)
        return err_set(e, ERR_DATA_LOSS, "'%s' is not a list of files", name);
    while (r == 0 && (line = strsep(&rest, "\n")))
        if (*line)
            r = known_read_line(k, line, e);
    return r;
}
