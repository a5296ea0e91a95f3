#include "common/err.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/banned.h"

static const struct {
    const char *wire;
    int status;
} codes[ERR_N_CODES] = {
    [ERR_OK] = {"ok", 200},
#define X(name, wire, status) [ERR_##name] = {wire, status},
#include "common/errors.def"
#undef X
};

__attribute__((format(printf, 5, 0))) static void
fill(struct err *e, int code, int sys, const char *field, const char *fmt, va_list ap)
{
    e->code = code;
    e->sys = sys;
    e->detail_name[0] = '\0';
    e->detail_is_number = false;
    (void)snprintf(e->field, sizeof(e->field), "%s", field);
    (void)vsnprintf(e->message, sizeof(e->message), fmt, ap);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -(int)code;
    va_start(ap, fmt);
    fill(e, (int)code, 0, "", fmt, ap);
    va_end(ap);
    return -(int)code;
}

int err_field(struct err *e, enum err_code code, const char *field, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -(int)code;
    va_start(ap, fmt);
    fill(e, (int)code, 0, field, fmt, ap);
    va_end(ap);
    return -(int)code;
}

/*
 * The text of an errno, with the first letter in lower case as messages are. %m is glibc's and
 * musl's, which pedantic warnings do not know; this is the one place that needs it.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat"
static void append_errno(struct err *e, int sys)
{
    size_t n = strlen(e->message);
    char *at = e->message + n;

    errno = sys;
    (void)snprintf(at, sizeof(e->message) - n, ": %m");
    if (n + 2 < sizeof(e->message) && isupper((unsigned char)at[2]) &&
        !isupper((unsigned char)at[3]))
        at[2] = (char)tolower((unsigned char)at[2]);
}
#pragma GCC diagnostic pop

int err_sys(struct err *e, int sys, const char *fmt, ...)
{
    enum err_code code = err_code_from_sys(sys);
    va_list ap;

    if (!e)
        return -(int)code;
    va_start(ap, fmt);
    fill(e, (int)code, sys, "", fmt, ap);
    va_end(ap);
    append_errno(e, sys);
    return -(int)code;
}

int err_wrap(struct err *e, int r, const char *fmt, ...)
{
    char before[ERR_MESSAGE_BYTES];
    char inner[ERR_MESSAGE_BYTES];
    va_list ap;

    if (!e)
        return r;
    va_start(ap, fmt);
    (void)vsnprintf(before, sizeof(before), fmt, ap);
    va_end(ap);
    (void)snprintf(inner, sizeof(inner), "%s", e->message);
    (void)snprintf(e->message, sizeof(e->message), "%s: %s", before, inner);
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
    return code < ERR_N_CODES ? codes[code].wire : "unknown";
}

int err_http_status(int code)
{
    if (code < 0)
        code = -code;
    return code < ERR_N_CODES ? codes[code].status : 500;
}

int err_code_from_wire(const char *name)
{
    for (int i = 1; i < ERR_N_CODES; i++)
        if (strcmp(codes[i].wire, name) == 0)
            return i;
    return 0;
}
