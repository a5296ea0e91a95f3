#include "search/linewise.h"

#include "search/token.h"

static bool add_token(const struct token *t, const char *pattern, struct buf *out)
{
    const char *text = pattern + t->at;
    bool ok;

    switch (t->kind) {
    case TOKEN_SET_NL:
        ok = buf_adds(out, "(?:(?!\\n)", NULL) == 0;
        return ok && buf_add(out, text, t->len, NULL) == 0 && buf_adds(out, ")", NULL) == 0;
    case TOKEN_NOT: /* "[^" ... */
        ok = buf_adds(out, "[^\\n", NULL) == 0;
        return ok && buf_add(out, text + 2, t->len - 2, NULL) == 0;
    case TOKEN_CHAR:
    case TOKEN_SET:
    case TOKEN_ASSERT:
    case TOKEN_BACKREF:
    case TOKEN_OPEN:
    case TOKEN_LOOK:
    case TOKEN_CLOSE:
    case TOKEN_ALT:
    case TOKEN_QUANT:
    case TOKEN_CASELESS:
        return buf_add(out, text, t->len, NULL) == 0;
    case TOKEN_END:
    case TOKEN_NEWLINE:
    case TOKEN_OTHER:
    default:
        return false;
    }
}

bool linewise_rewrite(const char *pattern, size_t len, struct buf *out)
{
    struct token_reader r = {.pattern = pattern, .len = len};
    struct token t;

    for (;;) {
        token_next(&r, &t);
        if (t.kind == TOKEN_END)
            return true;
        if (!add_token(&t, pattern, out))
            return false;
    }
}
