#pragma once
/*
 * err: the error convention. A function that can fail returns 0 or -ERR_x, and fills in the caller's struct err
 * once, where the error happens. Plain data, no ownership, no threads.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum err_code {
    ERR_OK = 0,
#define X(name, wire, status) ERR_##name,
#include "common/errors.def"
#undef X
    ERR_N_CODES
};

#define ERR_FIELD_BYTES 96
#define ERR_MESSAGE_BYTES 512
#define ERR_DETAIL_NAME_BYTES 24
#define ERR_DETAIL_BYTES 200

struct err {
    int code;                    /* enum err_code */
    int sys;                     /* errno, or 0 */
    char field[ERR_FIELD_BYTES]; /* the request's field or path at fault, or "" */
    /* One sentence, lower case, no full stop. A message that is too long is truncated in the middle. */
    char message[ERR_MESSAGE_BYTES];
    /* One fact for programs ("detail":{name:value} on the wire); name "": none. */
    char detail_name[ERR_DETAIL_NAME_BYTES];
    char detail[ERR_DETAIL_BYTES];
    bool detail_is_number; /* detail is a decimal uint64_t */
};

/* Each returns -code, so that callers write `return err_set(...)`. `e` may be NULL. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int err_field(struct err *e, enum err_code code, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Maps an errno to the nearest code and appends its text: "open '/x': no such file or directory". */
int err_sys(struct err *e, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_vsys(struct err *e, int sys, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* Prepends one more fact to the message of an error that is already set. Returns r. */
int err_wrap(struct err *e, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Names the field of an error that is already set, unless it has one. Returns r. */
int err_at(struct err *e, int r, const char *field);

/* Adds the fact for programs to an error that is already set. Returns r. */
int err_detail(struct err *e, int r, const char *name, const char *value);
int err_detail_u64(struct err *e, int r, const char *name, uint64_t value);

int err_oom(struct err *e);

enum err_code err_code_from_sys(int sys);
const char *err_wire_name(int code); /* "not_found"; "unknown" for any other number */
int err_http_status(int code);
int err_code_from_wire(const char *name); /* 0: unknown */
