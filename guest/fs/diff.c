#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/mem.h"
#include "fs/edit.h"

#define MAX_DISTANCE 600 /* Myers' D: the trace takes its square, 2.9 MB; beyond it, one block */

struct line {
    const char *p;
    size_t len; /* with its line feed, if it has one */
};

struct lines {
    struct line *v;
    size_t n;
};

/* One step of the script: `n` lines that are kept (0), taken away (-1) or put in (1). */
struct run {
    int kind;
    size_t n;
};

struct script {
    struct run *v;
    size_t n, cap;
};

static int split_lines(const char *data, size_t len, struct lines *ret, struct err *e)
{
    size_t n = 0, cap = 1;
    struct line *v;

    for (size_t i = 0; i < len; i++)
        cap += data[i] == '\n';
    v = malloc(cap * sizeof(*v));
    if (!v)
        return err_oom(e);
    for (const char *p = data, *end = data + len; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t one = nl ? (size_t)(nl - p) + 1 : (size_t)(end - p);

        v[n++] = (struct line){p, one};
        p += one;
    }
    *ret = (struct lines){v, n};
    return 0;
}

static bool same_line(const struct line *a, const struct line *b)
{
    return a->len == b->len && memcmp(a->p, b->p, a->len) == 0;
}

/* ---- the script ------------------------------------------------------------------------------ */

static int add_run(struct script *s, int kind, size_t n, struct err *e)
{
    int r;

    if (!n)
        return 0;
    if (s->n && s->v[s->n - 1].kind == kind) {
        s->v[s->n - 1].n += n;
        return 0;
    }
    r = array_grow(&s->v, &s->cap, s->n + 1, SIZE_MAX / sizeof(*s->v), e);
    if (r == 0)
        s->v[s->n++] = (struct run){kind, n};
    return r;
}

/* Row d of the trace: how far each diagonal -d..d was reached with d changes. */
static int *trace_row(int *trace, int d)
{
    return trace + (size_t)d * (size_t)d + (size_t)d;
}

/* Myers' greedy search. The distance, or -1 when it is more than MAX_DISTANCE. */
static int diff_search(const struct line *a, int n, const struct line *b, int m, int *trace)
{
    for (int d = 0; d <= MAX_DISTANCE; d++) {
        int *now = trace_row(trace, d);
        const int *before = d ? trace_row(trace, d - 1) : NULL;

        for (int k = -d; k <= d; k += 2) {
            int x = 0;

            if (d && (k == -d || (k != d && before[k - 1] < before[k + 1])))
                x = before[k + 1];
            else if (d)
                x = before[k - 1] + 1;
            while (x < n && x - k < m && same_line(&a[x], &b[x - k]))
                x++;
            now[k] = x;
            if (x >= n && x - k >= m)
                return d;
        }
    }
    return -1;
}

/* Walks the trace back; steps[] gets the changes in reverse: the diagonal run is implied. */
static int diff_replay(int n, int m, int distance, int *trace, struct script *s, struct err *e)
{
    _cleanup_free_ struct run *back = malloc(((size_t)distance * 2 + 2) * sizeof(*back));
    size_t n_back = 0;
    int x = n, y = m, r = 0;

    if (!back)
        return err_oom(e);
    for (int d = distance; d > 0; d--) {
        const int *before = trace_row(trace, d - 1);
        int k = x - y;
        bool down = k == -d || (k != d && before[k - 1] < before[k + 1]);
        int px = before[down ? k + 1 : k - 1];
        int py = px - (down ? k + 1 : k - 1);
        int kept = x - (down ? px : px + 1);

        back[n_back++] = (struct run){0, (size_t)kept};
        back[n_back++] = (struct run){down ? 1 : -1, 1};
        x = px;
        y = py;
    }
    back[n_back++] = (struct run){0, (size_t)x};
    while (n_back && r == 0) {
        n_back--;
        r = add_run(s, back[n_back].kind, back[n_back].n, e);
    }
    return r;
}

static int script_middle(const struct line *a, size_t n, const struct line *b, size_t m,
                         struct script *s, struct err *e)
{
    _cleanup_free_ int *trace = NULL;
    int distance = -1;
    int r;

    if (n && m && n < INT32_MAX / 2 && m < INT32_MAX / 2) {
        trace = malloc(sizeof(*trace) * (MAX_DISTANCE + 1) * (MAX_DISTANCE + 2));
        if (!trace)
            return err_oom(e);
        distance = diff_search(a, (int)n, b, (int)m, trace);
    }
    if (distance >= 0)
        return diff_replay((int)n, (int)m, distance, trace, s, e);
    r = add_run(s, -1, n, e);
    return r < 0 ? r : add_run(s, 1, m, e);
}

static int make_script(const struct lines *a, const struct lines *b, struct script *s,
                       struct err *e)
{
    size_t head = 0, tail = 0;
    int r;

    while (head < a->n && head < b->n && same_line(&a->v[head], &b->v[head]))
        head++;
    while (tail < a->n - head && tail < b->n - head &&
           same_line(&a->v[a->n - 1 - tail], &b->v[b->n - 1 - tail]))
        tail++;
    r = add_run(s, 0, head, e);
    if (r == 0)
        r = script_middle(a->v + head, a->n - head - tail, b->v + head, b->n - head - tail, s, e);
    return r < 0 ? r : add_run(s, 0, tail, e);
}

/* ---- the text -------------------------------------------------------------------------------- */

static int put_line(struct buf *out, char sign, const struct line *l, struct err *e)
{
    int r = buf_add(out, &sign, 1, e);

    if (r == 0)
        r = buf_add(out, l->p, l->len, e);
    if (r == 0 && (!l->len || l->p[l->len - 1] != '\n'))
        r = buf_adds(out, "\n\\ No newline at end of file\n", e);
    return r;
}

struct hunk {
    size_t first, last; /* runs */
    size_t a, b;        /* line numbers from 0 where it begins, context included */
    size_t lead;        /* context lines before the first change */
};

static size_t tail_context(const struct script *s, size_t last)
{
    if (last + 1 >= s->n)
        return 0;
    return s->v[last + 1].n < FS_EDIT_CONTEXT ? s->v[last + 1].n : FS_EDIT_CONTEXT;
}

static int put_hunk(struct buf *out, const struct script *s, const struct hunk *h,
                    const struct lines *a, const struct lines *b, struct err *e)
{
    size_t tail = tail_context(s, h->last);
    size_t n = h->lead + tail, m = h->lead + tail;
    size_t i = h->a, j = h->b;
    int r;

    for (size_t k = h->first; k <= h->last; k++) {
        n += s->v[k].kind <= 0 ? s->v[k].n : 0;
        m += s->v[k].kind >= 0 ? s->v[k].n : 0;
    }
    r = buf_addf(out, e, "@@ -%zu,%zu +%zu,%zu @@\n", n ? h->a + 1 : h->a, n, m ? h->b + 1 : h->b,
                 m);
    for (size_t c = 0; r == 0 && c < h->lead; c++, i++, j++)
        r = put_line(out, ' ', &a->v[i], e);
    for (size_t k = h->first; k <= h->last; k++) {
        int kind = s->v[k].kind;

        for (size_t c = 0; r == 0 && c < s->v[k].n; c++) {
            r = kind > 0 ? put_line(out, '+', &b->v[j], e)
                         : put_line(out, kind < 0 ? '-' : ' ', &a->v[i], e);
            i += kind <= 0;
            j += kind >= 0;
        }
    }
    for (size_t c = 0; r == 0 && c < tail; c++, i++)
        r = put_line(out, ' ', &a->v[i], e);
    return r;
}

/* The last run that belongs to the same hunk: changes with little that is kept between them. */
static size_t hunk_end(const struct script *s, size_t at)
{
    size_t last = at;

    for (size_t k = at; k < s->n; k++) {
        if (s->v[k].kind)
            last = k;
        else if (s->v[k].n > 2 * FS_EDIT_CONTEXT)
            break;
    }
    return last;
}

static int put_hunks(struct buf *out, const struct script *s, const struct lines *a,
                     const struct lines *b, struct err *e)
{
    size_t i = 0, j = 0;
    int r = 0;

    for (size_t k = 0; k < s->n && r == 0; k++) {
        size_t before = k ? s->v[k - 1].n : 0;
        struct hunk h = {.first = k};

        if (!s->v[k].kind) {
            i += s->v[k].n;
            j += s->v[k].n;
            continue;
        }
        h.last = hunk_end(s, k);
        h.lead = before < FS_EDIT_CONTEXT ? before : FS_EDIT_CONTEXT;
        h.a = i - h.lead;
        h.b = j - h.lead;
        r = put_hunk(out, s, &h, a, b, e);
        for (; k <= h.last; k++) {
            i += s->v[k].kind <= 0 ? s->v[k].n : 0;
            j += s->v[k].kind >= 0 ? s->v[k].n : 0;
        }
        k--;
    }
    return r;
}

static int diff_format(struct buf *out, const char *name, const struct script *s,
                       const struct lines *a, const struct lines *b, struct err *e)
{
    int r;

    if (s->n == 0 || (s->n == 1 && s->v[0].kind == 0))
        return buf_adds(out, "", e);
    r = buf_addf(out, e, "--- a/%s\n+++ b/%s\n", name, name);
    return r < 0 ? r : put_hunks(out, s, a, b, e);
}

int fs_diff(const char *name, const char *a, size_t a_len, const char *b, size_t b_len, size_t max,
            char **ret, size_t *ret_len, struct err *e)
{
    struct lines la = {0}, lb = {0};
    _cleanup_buf_ struct buf out;
    struct script s = {0};
    int r;

    buf_init(&out, max);
    r = split_lines(a, a_len, &la, e);
    if (r == 0)
        r = split_lines(b, b_len, &lb, e);
    if (r == 0)
        r = make_script(&la, &lb, &s, e);
    if (r == 0)
        r = diff_format(&out, name, &s, &la, &lb, e);
    if (r == 0) {
        *ret_len = out.len;
        *ret = buf_take(&out);
    }
    free(la.v);
    free(lb.v);
    free(s.v);
    return r;
}
