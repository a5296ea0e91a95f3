#include <errno.h>

#include "common/err.h"

#include "test.h"

TEST(err_returns_the_negative_code_and_keeps_what_is_said)
{
    struct err e = {0};

    T_INT(err_field(&e, ERR_NOT_FOUND, "cwd", "no '%s'", "x"), -ERR_NOT_FOUND);
    T_INT(e.code, ERR_NOT_FOUND);
    T_STR(e.field, "cwd");
    T_STR(e.message, "no 'x'");
    T_INT(e.sys, 0);
}

TEST(err_accepts_null)
{
    T_INT(err_set(NULL, ERR_INVALID, "x"), -ERR_INVALID);
    T_INT(err_sys(NULL, ENOENT, "x"), -ERR_NOT_FOUND);
    T_INT(err_wrap(NULL, -ERR_INVALID, "x"), -ERR_INVALID);
}

TEST(err_from_errno_has_its_text_in_lower_case)
{
    struct err e = {0};

    T_INT(err_sys(&e, ENOENT, "open '%s'", "/x"), -ERR_NOT_FOUND);
    T_STR(e.message, "open '/x': no such file or directory");
    T_INT(e.sys, ENOENT);
    T_INT(err_code_from_sys(EACCES), ERR_DENIED);
    T_INT(err_code_from_sys(ENOSPC), ERR_EXHAUSTED);
    T_INT(err_code_from_sys(EIO), ERR_INTERNAL);
}

TEST(err_wrap_puts_a_fact_before_and_at_names_once)
{
    struct err e = {0};

    (void)err_set(&e, ERR_INVALID, "bad");
    T_INT(err_wrap(&e, -ERR_INVALID, "reading '%s'", "f"), -ERR_INVALID);
    T_STR(e.message, "reading 'f': bad");
    T_INT(err_at(&e, -ERR_INVALID, "path"), -ERR_INVALID);
    T_INT(err_at(&e, -ERR_INVALID, "other"), -ERR_INVALID);
    T_STR(e.field, "path");
}

TEST(err_message_that_is_too_long_is_cut)
{
    static char text[2000];
    struct err e = {0};

    memset(text, 'a', sizeof(text) - 1);
    (void)err_set(&e, ERR_INVALID, "%s", text);
    T_INT(strlen(e.message), ERR_MESSAGE_BYTES - 1);
    (void)err_wrap(&e, -ERR_INVALID, "%s", text);
    T_OK(strlen(e.message) < ERR_MESSAGE_BYTES);
}

TEST(err_codes_are_the_sixteen_of_connect)
{
    T_INT(ERR_N_CODES, 17);
    for (int code = 1; code < ERR_N_CODES; code++) {
        T_INT(err_code_from_wire(err_wire_name(code)), code);
        T_OK(err_http_status(code) >= 400);
    }
    T_STR(err_wire_name(-ERR_UNAUTHENTICATED), "unauthenticated");
    T_INT(err_http_status(ERR_UNAUTHENTICATED), 401);
    T_INT(err_code_from_wire("nonsense"), 0);
}
