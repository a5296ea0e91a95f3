#include "dialect/e2b/media.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "api/files/files.h"

static const struct {
    const char *extension;
    const char *type;
} media_types[] = {
    {"avif", "image/avif"},
    {"css", "text/css; charset=utf-8"},
    {"csv", "text/csv; charset=utf-8"},
    {"gif", "image/gif"},
    {"gz", "application/gzip"},
    {"htm", "text/html; charset=utf-8"},
    {"html", "text/html; charset=utf-8"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"js", "text/javascript; charset=utf-8"},
    {"json", "application/json"},
    {"md", "text/markdown; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"pdf", "application/pdf"},
    {"png", "image/png"},
    {"py", "text/x-python; charset=utf-8"},
    {"sh", "application/x-sh"},
    {"svg", "image/svg+xml"},
    {"tar", "application/x-tar"},
    {"txt", "text/plain; charset=utf-8"},
    {"wasm", "application/wasm"},
    {"webp", "image/webp"},
    {"xml", "text/xml; charset=utf-8"},
    {"zip", "application/zip"},
};

const char *media_type(const char *path)
{
    const char *dot = strrchr(path_name(path), '.');

    for (size_t i = 0; dot && i < N_ELEMENTS(media_types); i++)
        if (strcasecmp(dot + 1, media_types[i].extension) == 0)
            return media_types[i].type;
    return FILES_TYPE;
}

static bool is_printable(const char *s)
{
    for (; *s; s++)
        if ((*s < ' ' || *s > '~') && *s != '\t')
            return false;
    return true;
}

/* RFC 2045's: it stands without quotes. */
static bool is_token(const char *s)
{
    return *s && !s[strcspn(s, " \t()<>@,;:\\\"/[]?=")];
}

static int add_quoted(struct buf *b, const char *name)
{
    int r = buf_adds(b, "filename=\"", NULL);

    for (; *name && r == 0; name++)
        r = buf_addf(b, NULL, "%s%c", *name == '"' || *name == '\\' ? "\\" : "", *name);
    return r < 0 ? r : buf_adds(b, "\"", NULL);
}

static int add_encoded(struct buf *b, const char *name)
{
    int r = buf_adds(b, "filename*=utf-8''", NULL);

    for (; *name && r == 0; name++) {
        bool is_plain = (*name >= '0' && *name <= '9') ||
                        ((*name | 32) >= 'a' && (*name | 32) <= 'z') ||
                        strchr("!#$&+-.^_`{|}~", *name);

        r = buf_addf(b, NULL, is_plain ? "%c" : "%%%02X", (unsigned char)*name);
    }
    return r;
}

char *media_disposition(const char *name)
{
    struct buf b;
    int r;

    buf_init(&b, 4096);
    r = buf_adds(&b, "inline; ", NULL);
    if (r == 0 && !is_printable(name))
        r = add_encoded(&b, name);
    else if (r == 0)
        r = is_token(name) ? buf_addf(&b, NULL, "filename=%s", name) : add_quoted(&b, name);
    if (r < 0) {
        buf_done(&b);
        return NULL;
    }
    return buf_take(&b);
}
