#include "dialect/e2b/fault.h"

#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 4, 0))) static int fault_vsys(struct err *e, enum err_code code,
                                                            int sys, const char *fmt, va_list ap)
{
    (void)err_vsys(e, sys, fmt, ap);
    if (e)
        e->code = (int)code;
    return -(int)code;
}

int fault_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = fault_vsys(e, code, sys, fmt, ap);
    va_end(ap);
    return r;
}

int fault_of(struct err *e, enum err_code code, const struct err *inner, const char *fmt, ...)
{
    va_list ap;
    int r;

    if (e)
        *e = *inner;
    if (!inner->sys)
        return -inner->code;
    va_start(ap, fmt);
    r = fault_vsys(e, code, inner->sys, fmt, ap);
    va_end(ap);
    return r;
}
