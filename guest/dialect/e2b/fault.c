#include "dialect/e2b/fault.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/banned.h"

int fault_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
{
    char what[ERR_MESSAGE_BYTES];
    va_list ap;

    if (!e)
        return -(int)code;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    (void)err_sys(e, sys, "%s", what);
    e->code = (int)code;
    return -(int)code;
}

int fault_of(struct err *e, enum err_code code, const struct err *inner, const char *fmt, ...)
{
    char what[ERR_MESSAGE_BYTES];
    va_list ap;

    if (e)
        *e = *inner;
    if (!inner->sys)
        return -inner->code;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return fault_sys(e, code, inner->sys, "%s", what);
}
