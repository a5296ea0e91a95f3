#include "common/http1.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "common/str.h"

#define MAX_LINE 4096 /* of a chunk's size or a trailer */

static int bad_reply(struct err *e, const char *what)
{
    return err_set(e, ERR_UNAVAILABLE, "what listens there does not answer in HTTP/1: %s", what);
}

/* Cuts a line off at its CR LF; NULL: there is none. A bare LF ends no line, because other parsers may disagree
 * about it (request smuggling). */
static char *cut_line(char **at)
{
    char *line = *at;
    char *end = strstr(line, "\r\n");

    if (!end)
        return NULL;
    *at = end + 2;
    *end = '\0';
    return line;
}

static bool is_header_name(const char *name)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(others, *c))
            return false;
    return *name != '\0';
}

static bool is_header_value(const char *value)
{
    for (const char *c = value; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 127)
            return false;
    return true;
}

static int parse_status(const char *line, struct http1_head *h, struct err *e)
{
    char number[4] = "";
    uint64_t status;

    if (!str_has_prefix(line, "HTTP/1.") || strlen(line) < 12 || line[8] != ' ')
        return bad_reply(e, "no status line");
    memcpy(number, line + 9, 3);
    if (str_parse_u64(number, 100, 999, &status, NULL) < 0)
        return bad_reply(e, "no status");
    h->status = (int)status;
    return 0;
}

static int add_header(struct http1_head *h, char *line, struct err *e)
{
    char *colon = strchr(line, ':');
    char *value, *end;

    if (!colon)
        return bad_reply(e, "a malformed header");
    if (h->n_headers == HTTP1_MAX_HEADERS)
        return bad_reply(e, "too many headers");
    *colon = '\0';
    value = colon + 1;
    value += strspn(value, " \t");
    for (end = value + strlen(value); end > value && strchr(" \t", end[-1]); end--)
        end[-1] = '\0';
    if (!is_header_name(line) || !is_header_value(value))
        return bad_reply(e, "a malformed header");
    h->headers[h->n_headers++] = (struct http1_header){line, value};
    if (strcasecmp(line, "Transfer-Encoding") == 0) {
        if (h->is_chunked || strcasecmp(value, "chunked") != 0)
            return bad_reply(e, "a transfer encoding that is not 'chunked'");
        h->is_chunked = true;
    }
    if (strcasecmp(line, "Content-Length") == 0) {
        if (h->has_length || str_parse_u64(value, 0, INT64_MAX, &h->length, NULL) < 0)
            return bad_reply(e, "a malformed Content-Length");
        h->has_length = true;
    }
    return 0;
}

static int parse_lines(char *text, struct http1_head *h, struct err *e)
{
    char *at = text;
    char *line = cut_line(&at);
    int r;

    r = line ? parse_status(line, h, e) : bad_reply(e, "no status line");
    while (r == 0 && (line = cut_line(&at)) && *line)
        r = add_header(h, line, e);
    return r;
}

int http1_parse_head(const char *data, size_t len, struct http1_head *ret, size_t *ret_len,
                     struct err *e)
{
    const char *end = memmem(data, len, "\r\n\r\n", 4);
    size_t head_len = end ? (size_t)(end - data) + 4 : 0;
    struct http1_head h = {0};
    int r;

    if (!end) {
        if (len >= HTTP1_HEAD_MAX)
            return bad_reply(e, "its headers do not end");
        *ret_len = 0;
        return 0;
    }
    if (memchr(data, '\0', head_len))
        return bad_reply(e, "a NUL in its headers");
    h.text = strndup(data, head_len);
    if (!h.text)
        return err_oom(e);
    r = parse_lines(h.text, &h, e);
    if (r < 0) {
        http1_head_done(&h);
        return r;
    }
    *ret = h;
    *ret_len = head_len;
    return 0;
}

void http1_head_done(struct http1_head *h)
{
    free(h->text);
    *h = (struct http1_head){0};
}

static bool header_lists(const char *list, const char *name)
{
    size_t len = strlen(name);

    while (list && *list) {
        size_t n;

        list += strspn(list, " \t,");
        n = strcspn(list, " \t,");
        if (n == len && strncasecmp(list, name, len) == 0)
            return true;
        list += n;
    }
    return false;
}

bool http1_is_hop_by_hop(const char *name, const char *connection)
{
    static const char *const names[] = {"Connection", "Keep-Alive",         "Proxy-Connection",
                                        "TE",         "Transfer-Encoding",  "Trailer",
                                        "Upgrade",    "Proxy-Authenticate", "Proxy-Authorization"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    return header_lists(connection, name);
}

enum chunk_state {
    CHUNK_SIZE,      /* hex digits */
    CHUNK_EXTENSION, /* up to the line feed */
    CHUNK_DATA,
    CHUNK_DATA_END, /* the line end after the data */
    CHUNK_TRAILER,  /* lines up to an empty one */
};

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Handles one byte that is not payload. */
static int take_byte(struct http1_chunks *c, char byte, struct err *e)
{
    int digit;

    switch ((enum chunk_state)c->state) {
    case CHUNK_SIZE:
        digit = hex_digit(byte);
        if (digit >= 0 && c->n_line++ < 15) {
            c->left = c->left * 16 + (uint64_t)digit;
            return 0;
        }
        if (digit >= 0 || !c->n_line)
            return bad_reply(e, "a malformed chunk");
        c->state = CHUNK_EXTENSION;
        return take_byte(c, byte, e);
    case CHUNK_EXTENSION:
        if (byte == '\n') {
            c->state = c->left ? CHUNK_DATA : CHUNK_TRAILER;
            c->n_line = 0;
        } else if (c->n_line++ > MAX_LINE) {
            return bad_reply(e, "a malformed chunk");
        }
        return 0;
    case CHUNK_DATA_END:
        if (byte == '\n') {
            c->state = CHUNK_SIZE;
            c->left = 0;
            c->n_line = 0;
        } else if (byte != '\r' || c->n_line++) {
            return bad_reply(e, "a malformed chunk");
        }
        return 0;
    case CHUNK_TRAILER:
        if (++c->n_trailers > HTTP1_HEAD_MAX)
            return bad_reply(e, "its trailers do not end");
        if (byte == '\n') {
            c->is_over = c->n_line == 0;
            c->n_line = 0;
        } else if (byte != '\r' && c->n_line++ > MAX_LINE) {
            return bad_reply(e, "a malformed trailer");
        }
        return 0;
    case CHUNK_DATA:
        break;
    }
    return 0;
}

int http1_decode_chunks(struct http1_chunks *c, char *data, size_t len, size_t *ret_len,
                        struct err *e)
{
    size_t out = 0;

    for (size_t i = 0; i < len && !c->is_over;) {
        if (c->state == CHUNK_DATA) {
            size_t n = c->left < len - i ? (size_t)c->left : len - i;

            memmove(data + out, data + i, n);
            out += n;
            i += n;
            c->left -= n;
            if (!c->left)
                c->state = CHUNK_DATA_END;
        } else {
            int r = take_byte(c, data[i++], e);

            if (r < 0)
                return r;
        }
    }
    *ret_len = out;
    return 0;
}
