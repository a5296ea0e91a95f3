#include <errno.h>

#include "common/err.h"
#include "common/str.h"

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

TEST(err_message_that_is_too_long_lacks_its_middle)
{
    static char text[2000];
    struct err e = {0};
    size_t n;

    memset(text, 'a', sizeof(text) - 1);
    (void)err_set(&e, ERR_INVALID, "begin %s end", text);
    T_INT(strlen(e.message), ERR_MESSAGE_BYTES - 1);
    T_OK(str_has_prefix(e.message, "begin aaa") && str_has_suffix(e.message, "aaa end"));
    T_OK(strstr(e.message, "aa ... aa"));
    (void)err_wrap(&e, -ERR_INVALID, "before %s", text);
    T_INT(strlen(e.message), ERR_MESSAGE_BYTES - 1);
    T_OK(str_has_prefix(e.message, "before aaa") && str_has_suffix(e.message, "aaa end"));
    (void)err_field(&e, ERR_INVALID, "f", "%s!", text);
    T_OK(str_has_suffix(e.message, "aaa!"));
    (void)err_sys(&e, ENAMETOOLONG, "open '%s'", text);
    T_INT(strlen(e.message), ERR_MESSAGE_BYTES - 1);
    T_OK(str_has_prefix(e.message, "open 'aaa") && strstr(e.message, "aaa': "));
    T_OK(str_has_suffix(e.message, "name too long"));
    /* As long as fits, and one byte longer. */
    for (n = ERR_MESSAGE_BYTES - 1; n <= ERR_MESSAGE_BYTES; n++) {
        (void)err_set(&e, ERR_INVALID, "%.*s", (int)n, text);
        T_INT(strlen(e.message), ERR_MESSAGE_BYTES - 1);
        T_INT(!strstr(e.message, "..."), n < ERR_MESSAGE_BYTES);
    }
}

TEST(err_message_is_cut_between_characters)
{
    char text[2000] = "";
    struct err e = {0};

    for (int shift = 0; shift < 4; shift++) {
        memset(text, 'a', 4);
        for (size_t i = (size_t)shift; i + 4 < sizeof(text); i += 4)
            memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        (void)err_sys(&e, ENOENT, "open '%s'", text);
        T_OK(str_is_utf8(e.message, strlen(e.message)));
        T_OK(strlen(e.message) > ERR_MESSAGE_BYTES - 8);
        (void)err_wrap(&e, -ERR_NOT_FOUND, "%s", text);
        T_OK(str_is_utf8(e.message, strlen(e.message)));
    }
    /* Binary bytes: without characters the cut may be anywhere. */
    memset(text, '\xbf', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    (void)err_sys(&e, ENOENT, "%s", text);
    T_OK(str_has_suffix(e.message, ": no such file or directory"));
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
