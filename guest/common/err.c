#include "common/err.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

static const struct {
    const char *wire;
    int status;
} code_table[ERR_N_CODES] = {
    [ERR_OK] = {"ok", 200},
#define X(name, wire, status) [ERR_##name] = {wire, status},
#include "common/errors.def"
#undef X
};

#define GAP " ... "

static bool is_inside_char(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80; /* of UTF-8 */
}

/*
 * Truncates in the middle: the beginning of a message names the operation and the path, its end the reason.
 * Characters stay whole.
 */
static void copy_ends(char *out, size_t size, const char *text, size_t len)
{
    size_t room = size - sizeof(GAP); /* GAP includes the NUL */
    size_t head = room / 2, tail = len - (room - head);

    if (len < size) {
        (void)memcpy(out, text, len + 1);
        return;
    }
    while (head && is_inside_char(text[head]))
        head--;
    while (is_inside_char(text[tail]))
        tail++;
    (void)snprintf(out, size, "%.*s" GAP "%s", (int)head, text, text + tail);
}

__attribute__((format(printf, 3, 0))) static void format_message(char *out, size_t size,
                                                                 const char *fmt, va_list ap)
{
    _cleanup_free_ char *text = NULL;
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(out, size, fmt, ap);
    if (n >= 0 && (size_t)n >= size && vasprintf(&text, fmt, again) >= 0)
        copy_ends(out, size, text, strlen(text));
    va_end(again);
}

/* All members except the message. */
static void fill_fields(struct err *e, int code, int sys, const char *field)
{
    e->code = code;
    e->sys = sys;
    e->detail_name[0] = '\0';
    e->detail_is_number = false;
    (void)snprintf(e->field, sizeof(e->field), "%s", field);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -(int)code;
    fill_fields(e, (int)code, 0, "");
    va_start(ap, fmt);
    format_message(e->message, sizeof(e->message), fmt, ap);
    va_end(ap);
    return -(int)code;
}

int err_field(struct err *e, enum err_code code, const char *field, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -(int)code;
    fill_fields(e, (int)code, 0, field);
    va_start(ap, fmt);
    format_message(e->message, sizeof(e->message), fmt, ap);
    va_end(ap);
    return -(int)code;
}

#define REASON_BYTES 128 /* of the C library's text of an errno */

/*
 * The text of an errno, with the first letter in lower case like all messages. %m is an extension of glibc and
 * musl, of which pedantic warnings complain; this is the one place that needs it.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat"
static void describe_errno(int sys, char *out, size_t size)
{
    errno = sys;
    (void)snprintf(out, size, "%m");
    if (isupper((unsigned char)out[0]) && !isupper((unsigned char)out[1]))
        out[0] = (char)tolower((unsigned char)out[0]);
}
#pragma GCC diagnostic pop

int err_vsys(struct err *e, int sys, const char *fmt, va_list ap)
{
    enum err_code code = err_code_from_sys(sys);
    char reason[REASON_BYTES];
    size_t n;

    if (!e)
        return -(int)code;
    fill_fields(e, (int)code, sys, "");
    describe_errno(sys, reason, sizeof(reason));
    format_message(e->message, sizeof(e->message) - strlen(": ") - strlen(reason), fmt, ap);
    n = strlen(e->message);
    (void)snprintf(e->message + n, sizeof(e->message) - n, ": %s", reason);
    return -(int)code;
}

int err_sys(struct err *e, int sys, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = err_vsys(e, sys, fmt, ap);
    va_end(ap);
    return r;
}

int err_wrap(struct err *e, int r, const char *fmt, ...)
{
    char before[ERR_MESSAGE_BYTES];
    char whole[2 * ERR_MESSAGE_BYTES + sizeof(": ")];
    va_list ap;
    int n;

    if (!e)
        return r;
    va_start(ap, fmt);
    format_message(before, sizeof(before), fmt, ap);
    va_end(ap);
    n = snprintf(whole, sizeof(whole), "%s: %s", before, e->message);
    copy_ends(e->message, sizeof(e->message), whole, (size_t)n);
    return r;
}

int err_at(struct err *e, int r, const char *field)
{
    if (e && !e->field[0])
        (void)snprintf(e->field, sizeof(e->field), "%s", field);
    return r;
}

int err_detail(struct err *e, int r, const char *name, const char *value)
{
    if (!e)
        return r;
    (void)snprintf(e->detail_name, sizeof(e->detail_name), "%s", name);
    (void)snprintf(e->detail, sizeof(e->detail), "%s", value);
    e->detail_is_number = false;
    return r;
}

int err_detail_u64(struct err *e, int r, const char *name, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    (void)err_detail(e, r, name, text);
    if (e)
        e->detail_is_number = true;
    return r;
}

int err_oom(struct err *e)
{
    return err_set(e, ERR_EXHAUSTED, "out of memory");
}

enum err_code err_code_from_sys(int sys)
{
    switch (sys) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_DENIED;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
        return ERR_INVALID;
    case EISDIR:
    case ENOTEMPTY:
    case ELOOP:
    case EBUSY:
    case EXDEV:
    case ETXTBSY:
        return ERR_PRECONDITION;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
    case EAGAIN:
        return ERR_EXHAUSTED;
    case ETIMEDOUT:
        return ERR_DEADLINE;
    case ECANCELED:
        return ERR_CANCELED;
    case ENOSYS:
    case EOPNOTSUPP:
        return ERR_UNIMPLEMENTED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return ERR_UNAVAILABLE;
    default:
        return ERR_INTERNAL;
    }
}

const char *err_wire_name(int code)
{
    if (code < 0)
        code = -code;
    return code < ERR_N_CODES ? code_table[code].wire : "unknown";
}

int err_http_status(int code)
{
    if (code < 0)
        code = -code;
    return code < ERR_N_CODES ? code_table[code].status : 500;
}

int err_code_from_wire(const char *name)
{
    for (int i = 1; i < ERR_N_CODES; i++)
        if (strcmp(code_table[i].wire, name) == 0)
            return i;
    return 0;
}
