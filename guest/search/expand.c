#include <ctype.h>
#include <string.h>

#include "search/match_impl.h"

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The group that "$..." names: its name in s[*ret_from..*ret_to), and where that ends; NULL when it
 * names none. */
static const char *read_reference(const char *s, const char **ret_name, size_t *ret_len)
{
    bool braces = *s == '{';
    size_t n = 0;

    s += braces;
    while (is_name_char(s[n]))
        n++;
    if (!n || (braces && s[n] != '}'))
        return NULL;
    *ret_name = s;
    *ret_len = n;
    return s + n + braces;
}

static int add_group(struct matcher *w, const char *name, size_t len, struct buf *out,
                     struct err *e)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->data);
    uint32_t n_groups = pcre2_get_ovector_count(w->data);
    char copy[64];
    int number = 0;

    if (len >= sizeof(copy))
        return 0; /* PCRE2's names have 32 characters at most */
    memcpy(copy, name, len);
    copy[len] = '\0';
    if (strspn(copy, "0123456789") < len)
        number = pcre2_substring_number_from_name(w->code, (PCRE2_SPTR)copy);
    else if (len > 5)
        return 0;
    else
        for (size_t i = 0; i < len; i++)
            number = number * 10 + (copy[i] - '0');
    if (number < 0 || (uint32_t)number >= n_groups || at[2 * number] == PCRE2_UNSET)
        return 0;
    if (at[2 * number] > at[2 * number + 1]) /* \K */
        return 0;
    return buf_add(out, w->matched + at[2 * number], at[2 * number + 1] - at[2 * number], e);
}

int matcher_expand(struct matcher *w, const char *replacement, struct buf *out, struct err *e)
{
    int r = 0;

    while (r == 0 && *replacement) {
        const char *name, *end;
        size_t n = strcspn(replacement, "$"), len;

        r = buf_add(out, replacement, n, e);
        replacement += n;
        if (r < 0 || !*replacement)
            return r;
        end = read_reference(replacement + 1, &name, &len);
        if (end) {
            r = add_group(w, name, len, out, e);
            replacement = end;
        } else {
            r = buf_add(out, "$", 1, e);
            replacement += replacement[1] == '$' ? 2 : 1;
        }
    }
    return r;
}
