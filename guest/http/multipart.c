#include "http/multipart.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "http/route.h"

enum state {
    STATE_PREAMBLE,
    STATE_HEADERS,
    STATE_DATA,
    STATE_EPILOGUE,
};

/* The meaning of the held bytes. */
enum verdict {
    VERDICT_NO,
    VERDICT_MAYBE,
    VERDICT_NEXT, /* a delimiter, and another part follows */
    VERDICT_LAST,
};

struct multipart {
    const struct multipart_ops *ops;
    void *arg;
    enum state state;
    char *mark; /* CR LF "--" boundary */
    size_t mark_len;
    /*
     * The bytes that may be a delimiter. The first n_assumed of them were not received: a delimiter may
     * stand at the very beginning of the body, and directly behind headers, as if a line ended there.
     */
    char held[MULTIPART_HELD_BYTES];
    size_t n_held;
    size_t n_assumed;
    struct buf headers;
    size_t n_parts;
    bool is_part; /* a part that the callbacks know of has begun */
};

/* ---- header values --------------------------------------------------------------------------- */

static bool is_special(char c)
{
    return c && strchr("()<>@,;:\\\"/[]?=", c);
}

static bool is_token_char(char c)
{
    return c > ' ' && c < 127 && !is_special(c);
}

static size_t skip_blanks(const char *p)
{
    return strspn(p, " \t\r\n");
}

/* Reads a quoted string at *p, and moves *p behind it. out has room for the rest of the text. */
static bool scan_quoted(const char **p, char *out)
{
    const char *s = *p + 1;

    while (*s && *s != '"') {
        if (*s == '\r' || *s == '\n')
            return false;
        if (*s == '\\' && is_special(s[1]))
            s++;
        *out++ = *s++;
    }
    *out = '\0';
    if (*s != '"')
        return false;
    *p = s + 1;
    return true;
}

static bool is_value_char(char c)
{
    return is_token_char(c) ||
           (is_special(c) && !strchr(";,\"", c)); /* some clients send paths unquoted */
}

static bool scan_word(const char **p, bool (*is_in)(char c), char *out)
{
    const char *s = *p;

    while (is_in(*s))
        *out++ = *s++;
    *out = '\0';
    if (s == *p)
        return false;
    *p = s;
    return true;
}

/* `; name=value` at *p. False: there is none, or it is broken. */
static bool scan_parameter(const char **p, char *name, char *value)
{
    *p += skip_blanks(*p);
    if (**p != ';')
        return false;
    *p += 1;
    *p += skip_blanks(*p);
    if (!scan_word(p, is_token_char, name))
        return false;
    *p += skip_blanks(*p);
    if (**p != '=')
        return false;
    *p += 1;
    *p += skip_blanks(*p);
    return **p == '"' ? scan_quoted(p, value) : scan_word(p, is_value_char, value);
}

/*
 * A parameter of a header's value, as in `form-data; name="a b"`; the caller's to free. *ret is
 * NULL when it has none. A backslash in quotes counts only before a character that is special:
 * some clients send Windows paths.
 */
static int multipart_parameter(const char *value, const char *name, char **ret, struct err *e)
{
    size_t size = strlen(value) + 1;
    _cleanup_free_ char *found = malloc(size);
    _cleanup_free_ char *key = malloc(size);
    const char *p = value + strcspn(value, ";");

    if (!found || !key)
        return err_oom(e);
    *ret = NULL;
    while (scan_parameter(&p, key, found))
        if (strcasecmp(key, name) == 0) {
            *ret = TAKE(found);
            return 0;
        }
    return 0;
}

/* RFC 8187: charset'language'%XX... *ret stays NULL when it is not that. */
static int decode_extended(const char *value, char **ret, struct err *e)
{
    const char *text = strchr(value, '\'');
    int r;

    text = text ? strchr(text + 1, '\'') : NULL;
    if (!text || (strncasecmp(value, "utf-8'", 6) != 0 && strncasecmp(value, "us-ascii'", 9) != 0))
        return 0;
    text++;
    r = uri_decode(text, strlen(text), ret, e);
    return r < 0 ? err_wrap(e, r, "a part's file name") : 0;
}

/* The n-th piece of a name that goes on (RFC 2231), plain or with %XX. *ret NULL: there are n. */
static int find_piece(const char *disposition, unsigned n, char **ret, struct err *e)
{
    _cleanup_free_ char *coded = NULL;
    char key[32];
    int r;

    (void)snprintf(key, sizeof(key), "filename*%u", n);
    r = multipart_parameter(disposition, key, ret, e);
    if (r < 0 || *ret)
        return r;
    (void)snprintf(key, sizeof(key), "filename*%u*", n);
    r = multipart_parameter(disposition, key, &coded, e);
    if (r < 0 || !coded)
        return r;
    if (n == 0)
        return decode_extended(coded, ret, e);
    r = uri_decode(coded, strlen(coded), ret, e);
    return r < 0 ? err_wrap(e, r, "a part's file name") : 0;
}

static int join_pieces(const char *disposition, char **ret, struct err *e)
{
    _cleanup_buf_ struct buf whole;
    unsigned n;
    int r = 0;

    buf_init(&whole, MULTIPART_HEADERS_MAX);
    for (n = 0; r == 0; n++) {
        _cleanup_free_ char *piece = NULL;

        r = find_piece(disposition, n, &piece, e);
        if (r == 0 && !piece)
            break;
        if (r == 0)
            r = buf_adds(&whole, piece, e);
    }
    if (r == 0 && n > 0)
        *ret = buf_take(&whole);
    return r;
}

static int find_filename(const char *disposition, char **ret, struct err *e)
{
    _cleanup_free_ char *extended = NULL;
    int r = multipart_parameter(disposition, "filename*", &extended, e);

    if (r == 0 && extended)
        r = decode_extended(extended, ret, e);
    if (r == 0 && !*ret)
        r = join_pieces(disposition, ret, e);
    if (r == 0 && !*ret)
        r = multipart_parameter(disposition, "filename", ret, e);
    return r;
}

/* The value of a header of the part, with what goes on in further lines; *ret NULL: none. */
static int find_header(const char *headers, const char *name, char **ret, struct err *e)
{
    size_t len = strlen(name);

    for (const char *line = headers; *line;) {
        const char *end = line;

        do {
            end = strstr(end, "\r\n");
            end = end ? end + 2 : line + strlen(line);
        } while (*end == ' ' || *end == '\t');
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *value = line + len + 1;

            value += skip_blanks(value);
            *ret = strndup(value, (size_t)(end > value ? end - value : 0));
            return *ret ? 0 : err_oom(e);
        }
        line = end;
    }
    return 0;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static bool is_form_data(const char *disposition)
{
    static const char type[] = "form-data";
    size_t n = sizeof(type) - 1;

    return strncasecmp(disposition, type, n) == 0 &&
           (!disposition[n] || strchr("; \t\r\n", disposition[n]));
}

static int begin_part(struct multipart *m, struct err *e)
{
    _cleanup_free_ char *disposition = NULL;
    _cleanup_free_ char *name = NULL;
    _cleanup_free_ char *filename = NULL;
    int r = 0;

    if (++m->n_parts > MULTIPART_PARTS_MAX)
        return err_set(e, ERR_INVALID, "more than %d parts", MULTIPART_PARTS_MAX);
    if (m->headers.len) {
        if (memchr(m->headers.data, '\0', m->headers.len))
            return err_set(e, ERR_INVALID, "a NUL in a part's headers");
        r = find_header(m->headers.data, "Content-Disposition", &disposition, e);
    }
    if (r == 0 && disposition && is_form_data(disposition)) {
        r = multipart_parameter(disposition, "name", &name, e);
        if (r == 0)
            r = find_filename(disposition, &filename, e);
    }
    if (r < 0)
        return r;
    m->is_part = true;
    return m->ops->begin(m->arg, &(struct multipart_part){name, filename}, e);
}

static int end_part(struct multipart *m, struct err *e)
{
    if (!m->is_part)
        return 0;
    m->is_part = false;
    return m->ops->end(m->arg, e);
}

static int pass_on(struct multipart *m, const char *data, size_t len, struct err *e)
{
    return len && m->state == STATE_DATA ? m->ops->data(m->arg, data, len, e) : 0;
}

/* ---- delimiters ------------------------------------------------------------------------------ */

static enum verdict judge_tail(const char *tail, size_t len)
{
    size_t n = 0;

    if (!len)
        return VERDICT_MAYBE;
    if (tail[0] == '-')
        return len == 1 ? VERDICT_MAYBE : tail[1] == '-' ? VERDICT_LAST : VERDICT_NO;
    while (n < len && (tail[n] == ' ' || tail[n] == '\t'))
        n++;
    if (n > MULTIPART_PADDING_MAX)
        return VERDICT_NO;
    if (n == len)
        return VERDICT_MAYBE;
    if (tail[n] != '\r')
        return VERDICT_NO;
    if (n + 1 == len)
        return VERDICT_MAYBE;
    return tail[n + 1] == '\n' ? VERDICT_NEXT : VERDICT_NO;
}

/* Called for each byte: all but the last matched before. */
static enum verdict judge_held(const struct multipart *m)
{
    size_t n = m->n_held;

    if (n <= m->mark_len)
        return m->held[n - 1] == m->mark[n - 1] ? VERDICT_MAYBE : VERDICT_NO;
    return judge_tail(m->held + m->mark_len, n - m->mark_len);
}

static void assume_line_end(struct multipart *m)
{
    m->held[0] = '\r';
    m->held[1] = '\n';
    m->n_held = 2;
    m->n_assumed = 2;
}

/*
 * The held bytes are no delimiter. They are data, except the last byte, which is examined again, and a
 * CR before it, which may begin a delimiter. (The only other CR in them is the first byte.)
 */
static int let_go(struct multipart *m, struct err *e)
{
    size_t n = m->n_held;
    bool keeps = n > 1 && n > m->n_assumed && m->held[n - 1] == '\r';
    size_t end = keeps ? n - 1 : n;
    size_t from = m->n_assumed < end ? m->n_assumed : end;
    int r = pass_on(m, m->held + from, end - from, e);

    m->n_held = m->n_assumed = 0;
    if (keeps)
        m->held[m->n_held++] = '\r';
    return r;
}

static int on_delimiter(struct multipart *m, enum verdict v, struct err *e)
{
    int r = end_part(m, e);

    m->n_held = m->n_assumed = 0;
    m->state = v == VERDICT_LAST ? STATE_EPILOGUE : STATE_HEADERS;
    buf_clear(&m->headers);
    return r;
}

/* One byte, of the preamble or of data. */
static int take_byte(struct multipart *m, char c, struct err *e)
{
    enum verdict v;
    int r;

    for (;;) {
        m->held[m->n_held++] = c;
        v = judge_held(m);
        if (v == VERDICT_MAYBE)
            return 0;
        if (v != VERDICT_NO)
            return on_delimiter(m, v, e);
        m->n_held--;
        if (!m->n_held)
            return pass_on(m, &c, 1, e);
        r = let_go(m, e);
        if (r < 0)
            return r;
    }
}

/* Returns how many of the bytes were taken, or a negative error. */
static ssize_t take_data(struct multipart *m, const char *data, size_t len, struct err *e)
{
    const char *cr;
    int r;

    if (m->n_held) {
        r = take_byte(m, *data, e);
        return r < 0 ? r : 1;
    }
    cr = memchr(data, '\r', len);
    if (cr == data) {
        m->held[m->n_held++] = '\r';
        return 1;
    }
    r = pass_on(m, data, cr ? (size_t)(cr - data) : len, e);
    return r < 0 ? r : cr ? cr - data : (ssize_t)len;
}

/* Takes headers up to the empty line, which comes first in a part without headers. */
static ssize_t take_headers(struct multipart *m, const char *data, size_t len, struct err *e)
{
    size_t before = m->headers.len;
    size_t look = before < 3 ? 0 : before - 3;
    const char *lf = memchr(data, '\n', len);
    size_t n = lf ? (size_t)(lf - data) + 1 : len;
    int r = buf_add(&m->headers, data, n, NULL);

    if (r < 0)
        return err_set(e, ERR_INVALID, "a part's headers of more than %d bytes",
                       MULTIPART_HEADERS_MAX);
    if (!(m->headers.len == 2 && memcmp(m->headers.data, "\r\n", 2) == 0) &&
        !memmem(m->headers.data + look, m->headers.len - look, "\r\n\r\n", 4))
        return (ssize_t)n;
    r = begin_part(m, e);
    m->state = STATE_DATA;
    assume_line_end(m);
    return r < 0 ? r : (ssize_t)n;
}

int multipart_feed(struct multipart *m, const void *data, size_t len, struct err *e)
{
    const char *p = data;

    while (len && m->state != STATE_EPILOGUE) {
        ssize_t n =
            m->state == STATE_HEADERS ? take_headers(m, p, len, e) : take_data(m, p, len, e);

        if (n < 0)
            return (int)n;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int multipart_finish(struct multipart *m, struct err *e)
{
    if (m->state == STATE_EPILOGUE)
        return 0;
    return err_set(e, ERR_INVALID, "multipart: the body ends before its last delimiter");
}

static int find_boundary(struct multipart *m, const char *content_type, struct err *e)
{
    _cleanup_free_ char *boundary = NULL;
    size_t n;
    int r = multipart_parameter(content_type, "boundary", &boundary, e);

    if (r < 0)
        return r;
    n = boundary ? strlen(boundary) : 0;
    if (!n)
        return err_set(e, ERR_INVALID, "no multipart boundary param in Content-Type");
    if (n > MULTIPART_BOUNDARY_MAX)
        return err_set(e, ERR_INVALID, "a multipart boundary of more than %d bytes",
                       MULTIPART_BOUNDARY_MAX);
    m->mark_len = n + 4;
    m->mark = malloc(m->mark_len + 1);
    if (!m->mark)
        return err_oom(e);
    (void)memcpy(m->mark, "\r\n--", 4);
    (void)memcpy(m->mark + 4, boundary, n + 1);
    return 0;
}

int multipart_new(const char *content_type, const struct multipart_ops *ops, void *arg,
                  struct multipart **ret, struct err *e)
{
    struct multipart *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return err_oom(e);
    m->ops = ops;
    m->arg = arg;
    buf_init(&m->headers, MULTIPART_HEADERS_MAX);
    assume_line_end(m);
    r = find_boundary(m, content_type, e);
    if (r < 0) {
        multipart_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

struct multipart *multipart_free(struct multipart *m)
{
    if (!m)
        return NULL;
    free(m->mark);
    buf_done(&m->headers);
    free(m);
    return NULL;
}
