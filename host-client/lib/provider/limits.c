#include "lib/provider/limits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "lib/provider/provider.h"

static const char *source_of(const struct bh_limits *l)
{
    return l->source ? l->source : "the administrator";
}

/* ---- words ---- */

struct word {
    const char *field;
    unsigned asked;
    const char *const *allowed; /* NULL: all */
    char **value;
};

static void spec_words(const struct bh_limits *l, struct spec *s, struct word out[3])
{
    const struct word all[3] = {
        {"provider", SPEC_ASKED_PROVIDER, l->providers, &s->provider},
        {"network", SPEC_ASKED_NETWORK, l->networks, &s->network},
        {"privilege", SPEC_ASKED_PRIVILEGE, l->privileges, &s->privilege},
    };

    memcpy(out, all, sizeof(all));
}

static bool is_allowed(const struct word *w)
{
    for (const char *const *v = w->allowed; v && *v; v++)
        if (strcmp(*v, *w->value) == 0)
            return true;
    return !w->allowed;
}

static int refuse_word(const struct bh_limits *l, const struct word *w, struct err *e)
{
    return err_field(e, ERR_DENIED, w->field, "%s: '%.64s' is not allowed by %s", w->field,
                     *w->value, source_of(l));
}

static int check_limit_words(const struct bh_limits *l, struct spec *s, bool may_replace,
                             struct err *e)
{
    struct word words[3];

    spec_words(l, s, words);
    for (size_t i = 0; i < N_ELEMENTS(words); i++) {
        char *copy;

        if (is_allowed(&words[i]))
            continue;
        if (!may_replace || s->asked & words[i].asked || !words[i].allowed[0])
            return refuse_word(l, &words[i], e);
        copy = strdup(words[i].allowed[0]);
        if (!copy)
            return err_oom(e);
        free(*words[i].value);
        *words[i].value = copy;
    }
    return 0;
}

/* ---- numbers ---- */

struct number {
    const char *field;
    bool is_asked;
    uint64_t value, limit; /* limit 0: none */
    uint64_t unit;         /* of messages: bytes in a mebibyte, thousandths in a processor */
    const char *suffix;
};

#define N_NUMBERS 4

static void spec_numbers(const struct bh_limits *l, const struct spec *s,
                         struct number out[N_NUMBERS])
{
    const struct number all[N_NUMBERS] = {
        {"cpus", s->cpu_millis != 0, s->cpu_millis, l->cpu_millis, 1000, ""},
        {"memory", s->memory_bytes != 0, s->memory_bytes, l->memory_bytes, 1 << 20, "M"},
        {"disk", s->disk_bytes != 0, s->disk_bytes, l->disk_bytes, 1 << 20, "M"},
        {"pids", (s->asked & SPEC_ASKED_PIDS) != 0, s->pids, l->pids, 1, ""},
    };

    memcpy(out, all, sizeof(all));
}

static bool is_above(const struct number *n)
{
    return n->limit && (!n->value || n->value > n->limit);
}

static int refuse_number(const struct bh_limits *l, const struct number *n, struct err *e)
{
    double unit = (double)n->unit;

    if (!n->value)
        return err_field(e, ERR_DENIED, n->field, "%s: the box has no limit, %s allows %.15g%s",
                         n->field, source_of(l), (double)n->limit / unit, n->suffix);
    return err_field(e, ERR_DENIED, n->field, "%s: %.15g%s is more than %s allows, %.15g%s",
                     n->field, (double)n->value / unit, n->suffix, source_of(l),
                     (double)n->limit / unit, n->suffix);
}

static int check_limit_numbers(const struct bh_limits *l, const struct spec *s, bool only_asked,
                               struct err *e)
{
    struct number numbers[N_NUMBERS];

    spec_numbers(l, s, numbers);
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (is_above(&numbers[i]) && (!only_asked || numbers[i].is_asked))
            return refuse_number(l, &numbers[i], e);
    return 0;
}

static int refuse_time(const struct bh_limits *l, const char *field, int64_t ms, int64_t limit_ms,
                       struct err *e)
{
    char asked[32], limit[32];

    if (!limit_ms || ms <= limit_ms)
        return 0;
    return err_field(e, ERR_DENIED, field, "%s: %s is more than %s allows, %s", field,
                     str_format_duration(ms, asked, sizeof(asked)), source_of(l),
                     str_format_duration(limit_ms, limit, sizeof(limit)));
}

int limits_check_time(const struct bh_limits *l, const char *field, int64_t ms, struct err *e)
{
    return l ? refuse_time(l, field, ms, l->timeout_ms, e) : 0;
}

/* "keep" is for ever. */
static int check_idle(const struct bh_limits *l, const struct spec *s, unsigned asked,
                      struct err *e)
{
    if (l->idle_ms && asked & SPEC_ASKED_ON_IDLE && str_eq(s->on_idle, "keep"))
        return err_field(e, ERR_DENIED, "on-idle", "on-idle: 'keep' is not allowed by %s",
                         source_of(l));
    return asked & SPEC_ASKED_IDLE ? refuse_time(l, "idle", s->idle_ms, l->idle_ms, e) : 0;
}

int limits_check_boxes(const struct bh_limits *l, size_t n_boxes, struct err *e)
{
    if (!l || !l->boxes || n_boxes < l->boxes)
        return 0;
    return err_field(e, ERR_DENIED, "boxes",
                     "boxes: there are %zu, and %s allows %" PRIu32 ": remove one first", n_boxes,
                     source_of(l), l->boxes);
}

/* ---- a box ---- */

int limits_check_request(const struct bh_limits *l, struct spec *s, struct err *e)
{
    int r;

    if (!l)
        return 0;
    r = check_limit_words(l, s, true, e);
    if (r == 0)
        r = check_limit_numbers(l, s, true, e);
    if (r == 0 && s->asked & SPEC_ASKED_TIMEOUT)
        r = limits_check_time(l, "timeout", s->timeout_ms, e);
    return r < 0 ? r : check_idle(l, s, s->asked, e);
}

void limits_lower(const struct bh_limits *l, struct spec *s, bool *ret_changed)
{
    struct number numbers[N_NUMBERS];

    *ret_changed = false;
    if (!l)
        return;
    spec_numbers(l, s, numbers);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        if (!is_above(&numbers[i]))
            continue;
        *ret_changed = true;
        numbers[i].value = numbers[i].limit;
    }
    s->cpu_millis = (uint32_t)numbers[0].value;
    s->memory_bytes = numbers[1].value;
    s->disk_bytes = numbers[2].value;
    if (l->pids && !(s->asked & SPEC_ASKED_PIDS)) {
        s->asked |= SPEC_ASKED_PIDS; /* a provider without that limit refuses it */
        *ret_changed = true;
    }
    s->pids = (uint32_t)numbers[3].value;
    if (l->timeout_ms && s->timeout_ms > l->timeout_ms)
        s->timeout_ms = l->timeout_ms;
    if (l->idle_ms && s->idle_ms > l->idle_ms)
        s->idle_ms = l->idle_ms;
}

int limits_check(const struct bh_limits *l, const struct spec *s, struct err *e)
{
    struct spec same;
    int r;

    if (!l)
        return 0;
    same = *s; /* check_limit_words() replaces nothing here */
    r = check_limit_words(l, &same, false, e);
    if (r == 0)
        r = check_limit_numbers(l, s, false, e);
    if (r == 0)
        r = limits_check_time(l, "timeout", s->timeout_ms, e);
    return r < 0 ? r : check_idle(l, s, ~0U, e);
}
