#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/str.h"
#include "search/match_impl.h"

#define JIT_STACK_FIRST_BYTES (32 * 1024)
/*
 * PCRE2's limits apply to one start position, and each may take 10 ms. So many positions are tried
 * per call before the clock is checked; fewer if a call takes long.
 */
#define STEP_MAX 4096
#define STEP_MIN 16
#define STEP_NS 4000000       /* a step that took longer was too big */
#define ASK_NS 8000000        /* between two calls of is_gone */
#define LOOK_BEHIND_BYTES 256 /* of the lines before, for a pattern with a lookbehind */
#define LOOK_AHEAD_BYTES 128  /* multiline: of the lines after those whose matches are listed */
#define NONE ((size_t)-1)
/* Text that is not ASCII is validated once here, not by PCRE2 in each call. */
#define RUN_OPTIONS PCRE2_NO_UTF_CHECK

int matcher_new(const struct match *m, struct matcher **ret, struct err *e)
{
    struct matcher *w = calloc(1, sizeof(*w));

    if (!w)
        return err_oom(e);
    w->m = m;
    w->data = m->groups ? pcre2_match_data_create_from_pattern(m->exact.utf, NULL)
                        : pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(JIT_STACK_FIRST_BYTES, MATCH_JIT_STACK_BYTES, NULL);
    lossy_init(&w->lossy, MATCH_LOSSY_MAX_BYTES);
    if (!w->data || !w->context) {
        matcher_free(w);
        return err_oom(e);
    }
    (void)pcre2_set_match_limit(w->context, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(w->context, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(w->context, MATCH_HEAP_KIB);
    pcre2_jit_stack_assign(w->context, NULL, w->stack);
    w->step = STEP_MAX;
    *ret = w;
    return 0;
}

struct matcher *matcher_free(struct matcher *w)
{
    if (w) {
        pcre2_match_data_free(w->data);
        pcre2_match_context_free(w->context);
        pcre2_jit_stack_free(w->stack);
        lossy_done(&w->lossy);
        free(w);
    }
    return NULL;
}

void matcher_set_gone(struct matcher *w, bool (*is_gone)(void *arg), void *arg)
{
    w->is_gone = is_gone;
    w->arg = arg;
}

void matcher_set_text(struct matcher *w, const char *text, size_t len)
{
    w->text = text;
    w->len = len;
    w->knows_high = false;
    w->subject.data = NULL;
    w->find_at = 0;
}

const char *matcher_where(const struct matcher *w)
{
    return w->where;
}

/* --- one call of PCRE2 --- */

static int64_t coarse_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int matcher_check_gone(struct matcher *w, struct err *e)
{
    int64_t now = w->is_gone ? coarse_ns() : 0;

    if (now - w->asked_ns < ASK_NS)
        return 0;
    w->asked_ns = now;
    return w->is_gone(w->arg) ? err_set(e, ERR_CANCELED, "the search was canceled") : 0;
}

static int run_error(struct err *e, int rc)
{
    PCRE2_UCHAR text[256];

    (void)pcre2_get_error_message(rc, text, sizeof(text));
    switch (rc) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_JIT_STACKLIMIT:
        return err_field(e, ERR_EXHAUSTED, "pattern",
                         "the pattern needs too much work on this text: %s", (const char *)text);
    case PCRE2_ERROR_NOMEMORY:
        return err_oom(e);
    default:
        return err_set(e, ERR_INTERNAL, "PCRE2: %s", (const char *)text);
    }
}

/* Tries the start positions from..to; all from `from` on if `to` is len. */
static int run_step(struct matcher *w, const char *text, size_t len, size_t from, size_t to)
{
    w->where = text + from;
    (void)pcre2_set_offset_limit(w->context, to < len ? to : PCRE2_UNSET);
    return pcre2_match(w->code, (PCRE2_SPTR)text, len, from, RUN_OPTIONS, w->data, w->context);
}

static void fit_step(struct matcher *w, int64_t took_ns)
{
    if (took_ns > STEP_NS)
        w->step = w->step / 8 > STEP_MIN ? w->step / 8 : STEP_MIN;
    else if (w->step < STEP_MAX)
        w->step *= 2;
}

/* Runs a program on text[0..len), which is valid UTF-8, from `from` on. */
static int run_program(struct matcher *w, const struct program *p, bool ascii, const char *text,
                       size_t len, size_t from, struct match_span *ret, struct err *e)
{
    const PCRE2_SIZE *at;
    int rc;

    w->code = ascii && p->ascii ? p->ascii : p->utf;
    w->matched = text;
    for (;;) {
        bool whole = !w->m->in_steps || len - from <= w->step;
        size_t to = whole ? len : from + w->step;
        int64_t start = whole ? 0 : coarse_ns();
        int r;

        rc = run_step(w, text, len, from, to);
        r = matcher_check_gone(w, e);
        if (r < 0)
            return r;
        if (rc != PCRE2_ERROR_NOMATCH || to == len)
            break;
        fit_step(w, coarse_ns() - start);
        from = to + 1;
        while (w->code == p->utf && from < len && ((unsigned char)text[from] & 0xc0) == 0x80)
            from++;
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0)
        return run_error(e, rc);
    at = pcre2_get_ovector_pointer(w->data);
    ret->start = at[0] < at[1] ? at[0] : at[1]; /* \K may make the start exceed the end */
    ret->end = at[1];
    return 1;
}

/* --- the subject --- */

/* Makes text[from..to) the subject. Bytes that are not UTF-8 are replaced, unless bytes_apart. */
static int take_subject(struct matcher *w, size_t from, size_t to, struct err *e)
{
    struct subject *s = &w->subject;

    if (s->data && s->from == from && s->to == to)
        return 0;
    *s = (struct subject){.from = from, .to = to, .data = w->text + from, .len = to - from};
    s->is_ascii = scan_is_ascii(s->data, s->len);
    if (s->is_ascii || w->m->bytes_apart || str_is_utf8(s->data, s->len))
        return 0;
    s->data = NULL;
    if (lossy_convert(&w->lossy, w->text + from, to - from, NULL) < 0)
        return err_set(e, ERR_EXHAUSTED, "what is not UTF-8 in it is too much to replace");
    s->data = w->lossy.text.data;
    s->len = w->lossy.text.len;
    s->is_lossy = true;
    return 0;
}

static size_t to_subject(struct matcher *w, size_t at)
{
    at -= w->subject.from;
    return w->subject.is_lossy ? lossy_to(&w->lossy, at) : at;
}

static size_t from_subject(struct matcher *w, size_t at)
{
    return w->subject.from + (w->subject.is_lossy ? lossy_back(&w->lossy, at) : at);
}

static struct match_span span_from_subject(struct matcher *w, struct match_span s)
{
    return (struct match_span){from_subject(w, s.start), from_subject(w, s.end)};
}

/*
 * Where to continue after a match; after an empty one at the next character. (rg continues at the next byte,
 * but PCRE2 may crash if it starts within a character.)
 */
static size_t place_after(const struct subject *s, struct match_span m)
{
    size_t at = m.end + (m.start == m.end);

    while (at < s->len && ((unsigned char)s->data[at] & 0xc0) == 0x80)
        at++;
    return at;
}

int matcher_seek(struct matcher *w, size_t from, struct err *e)
{
    int r = take_subject(w, 0, w->len, e);

    if (r == 0)
        w->find_at = to_subject(w, from);
    return r;
}

int matcher_find(struct matcher *w, struct match_span *ret, struct err *e)
{
    const struct subject *s = &w->subject;
    size_t from = w->find_at;
    struct match_span m;
    int r = take_subject(w, 0, w->len, e);

    if (r < 0)
        return r;
    if (from && from >= s->len)
        return 0;
    r = run_program(w, &w->m->exact, s->is_ascii, s->data + from, s->len - from, 0, &m, e);
    if (r <= 0)
        return r;
    m.start += from;
    m.end += from;
    w->find_at = place_after(s, m);
    *ret = span_from_subject(w, m);
    return r;
}

/* --- lines --- */

static struct match_span line_around(const struct matcher *w, size_t at)
{
    const char *before = at ? memrchr(w->text, '\n', at) : NULL;
    const char *after = scan_byte(w->text + at, w->len - at, '\n');
    struct match_span line;

    line.start = before ? (size_t)(before - w->text) + 1 : 0;
    line.end = after ? (size_t)(after - w->text) : w->len;
    return line;
}

static int line_is_match(struct matcher *w, const struct match_span *line, struct err *e)
{
    struct match_span ignored;
    size_t end = line->end;
    int r;

    /* Like rg -P: only "\r\n" ends a line. A lone line feed, and a "\r" at the end of the file, belong to the
     * text that is searched. */
    if (w->m->crlf && end < w->len)
        end += end > line->start && w->text[end - 1] == '\r' ? -1 : 1;
    r = take_subject(w, line->start, end, e);
    return r < 0 ? r
                 : run_program(w, &w->m->exact, w->subject.is_ascii, w->subject.data,
                               w->subject.len, 0, &ignored, e);
}

/* The next line that may match: any line, or with literals only a line that contains one. */
static bool next_candidate(const struct matcher *w, size_t from, struct match_span *ret)
{
    const char *eol;
    size_t hit;

    if (from >= w->len)
        return false;
    if (w->m->has_scan) {
        if (!scan_find(&w->m->scan, w->text, w->len, from, &hit))
            return false;
        *ret = line_around(w, hit);
        return true;
    }
    eol = scan_byte(w->text + from, w->len - from, '\n');
    *ret = (struct match_span){from, eol ? (size_t)(eol - w->text) : w->len};
    return true;
}

static int find_by_line(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    struct match_span line;

    while (next_candidate(w, from, &line)) {
        int r = line_is_match(w, &line, e);

        if (r > 0)
            *ret = line;
        if (r != 0)
            return r;
        from = line.end + 1;
    }
    return 0;
}

/* The end of a slice: the lines from `from` on that are pure ASCII, else the single line that is not. */
static size_t slice_end(struct matcher *w, size_t from, bool *ret_ascii)
{
    struct match_span line;

    if (!w->knows_high || from < w->high_from || from > w->high) {
        w->high_from = from;
        w->high = from + scan_ascii_len(w->text + from, w->len - from);
        w->knows_high = true;
    }
    *ret_ascii = true;
    if (w->high == w->len)
        return w->len;
    line = line_around(w, w->high);
    if (line.start > from)
        return line.start;
    *ret_ascii = false;
    return line.end < w->len ? line.end + 1 : w->len;
}

/* Slices keep a few characters beyond ASCII from slowing down a whole file. */
static int find_by_slices(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    while (from < w->len) {
        struct match_span m;
        bool ascii;
        size_t end = slice_end(w, from, &ascii);
        int r;

        if (!ascii) {
            struct match_span line = {from, end - (w->text[end - 1] == '\n')};

            r = line_is_match(w, &line, e);
            if (r > 0)
                *ret = line;
            if (r != 0)
                return r;
        } else {
            r = run_program(w, &w->m->lines, true, w->text + from, end - from, 0, &m, e);
            if (r < 0)
                return r;
            /* An empty match after the last line feed is in no line. */
            if (r > 0 && !(m.start == end - from && w->text[end - 1] == '\n')) {
                *ret = line_around(w, from + m.start);
                return 1;
            }
        }
        from = end;
    }
    return 0;
}

int matcher_find_line(struct matcher *w, size_t from, struct match_span *ret, struct err *e)
{
    if (from >= w->len)
        return 0;
    if (w->m->has_scan || !w->m->lines.utf)
        return find_by_line(w, from, ret, e);
    return find_by_slices(w, from, ret, e);
}

/* --- the matches within a line --- */

bool matcher_looks_back(const struct matcher *w)
{
    return w->m->looks_back;
}

/* The start of a subject that holds the text a lookbehind at `at` may need. */
static size_t look_behind(const struct matcher *w, size_t floor, size_t at)
{
    size_t from = at - floor > LOOK_BEHIND_BYTES ? at - LOOK_BEHIND_BYTES : floor;

    while (from > floor && ((unsigned char)w->text[from] & 0xc0) == 0x80)
        from--;
    return from;
}

int matcher_walk(struct matcher *w, const struct match_lines *l, struct err *e)
{
    size_t from = 0, to = w->len;
    int r;

    if (!w->m->multiline) {
        from = w->m->looks_back ? look_behind(w, l->floor, l->start) : l->start;
        to = l->end;
    }
    r = take_subject(w, from, to, e);
    if (r < 0)
        return r;
    w->walk_at = to_subject(w, l->start);
    w->walk_stop = l->stop > to ? w->subject.len + (l->stop - to) : to_subject(w, l->stop);
    w->walk_last = NONE;
    return 0;
}

/* Like rg: an empty match that touches the previous match is skipped. */
int matcher_next(struct matcher *w, struct match_span *ret, struct err *e)
{
    const struct subject *s = &w->subject;
    size_t len = s->len;

    if (w->m->multiline && w->walk_stop < len && len - w->walk_stop > LOOK_AHEAD_BYTES) {
        len = w->walk_stop + LOOK_AHEAD_BYTES;
        while (((unsigned char)s->data[len] & 0xc0) == 0x80) /* rg cuts a character there */
            len--;
    }
    while (w->walk_at <= len) {
        struct match_span m;
        bool touches;
        int r = run_program(w, &w->m->exact, s->is_ascii, s->data, len, w->walk_at, &m, e);

        if (r <= 0)
            return r;
        if (m.start >= w->walk_stop)
            return 0;
        touches = m.start == m.end && m.end == w->walk_last;
        w->walk_at = place_after(s, m);
        w->walk_last = m.end;
        if (!touches) {
            *ret = span_from_subject(w, m);
            return 1;
        }
    }
    return 0;
}

/* --- replacements --- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Parses a group reference, after its '$'. Returns where it ends, or NULL if it names no group. */
static const char *parse_group_reference(const char *s, const char **ret_name, size_t *ret_len)
{
    bool braces = *s == '{';
    size_t n = 0;

    s += braces;
    while (is_name_char(s[n]))
        n++;
    if (!n || (braces && s[n] != '}'))
        return NULL;
    *ret_name = s;
    *ret_len = n;
    return s + n + braces;
}

static int expand_group(struct matcher *w, const char *name, size_t len, struct buf *out,
                        struct err *e)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->data);
    uint32_t n_groups = pcre2_get_ovector_count(w->data);
    char copy[64];
    int number = 0;

    if (len >= sizeof(copy))
        return 0; /* PCRE2's names have at most 32 characters */
    memcpy(copy, name, len);
    copy[len] = '\0';
    if (strspn(copy, "0123456789") < len)
        number = pcre2_substring_number_from_name(w->code, (PCRE2_SPTR)copy);
    else if (len > 5)
        return 0;
    else
        for (size_t i = 0; i < len; i++)
            number = number * 10 + (copy[i] - '0');
    if (number < 0 || (uint32_t)number >= n_groups || at[2 * number] == PCRE2_UNSET)
        return 0;
    if (at[2 * number] > at[2 * number + 1]) /* \K */
        return 0;
    return buf_add(out, w->matched + at[2 * number], at[2 * number + 1] - at[2 * number], e);
}

int matcher_expand(struct matcher *w, const char *replacement, struct buf *out, struct err *e)
{
    int r = 0;

    while (r == 0 && *replacement) {
        const char *name, *end;
        size_t n = strcspn(replacement, "$"), len;

        r = buf_add(out, replacement, n, e);
        replacement += n;
        if (r < 0 || !*replacement)
            return r;
        end = parse_group_reference(replacement + 1, &name, &len);
        if (end) {
            r = expand_group(w, name, len, out, e);
            replacement = end;
        } else {
            r = buf_add(out, "$", 1, e);
            replacement += replacement[1] == '$' ? 2 : 1;
        }
    }
    return r;
}
