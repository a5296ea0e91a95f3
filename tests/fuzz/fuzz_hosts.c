/*
 * Setting a name in /etc/hosts: afterwards it has one address of its family, at one place; lines
 * without the name keep their content and order; repeating it changes nothing.
 * fuzz-flags: -max_len=600
 */
#include "fuzz.h"

#include <arpa/inet.h>

#include "common/buf.h"
#include "dialect/e2b/hosts.h"

#define NAME "n.x"
#define BLANKS " \t\r\v\f"

/* 0: the line does not give the name an address. */
static int family_of(const char *line, const char *address, bool *ret_right)
{
    char *copy = strdup(line), *rest = copy, *first = NULL, *word;
    struct in6_addr a, wanted;
    bool is_named = false;
    int family = 0;

    CHECK(copy);
    copy[strcspn(copy, "#")] = '\0';
    while ((word = strsep(&rest, BLANKS))) {
        if (!*word)
            continue;
        if (first && strcasecmp(word, NAME) == 0)
            is_named = true;
        first = first ? first : word;
    }
    if (is_named)
        family = inet_pton(AF_INET, first, &a) == 1    ? AF_INET
                 : inet_pton(AF_INET6, first, &a) == 1 ? AF_INET6
                                                       : 0;
    *ret_right = family && inet_pton(family, address, &wanted) == 1 &&
                 memcmp(&a, &wanted, family == AF_INET ? 4 : 16) == 0;
    free(copy);
    return family;
}

/* The next line of *at that is not for the family, or NULL; counts those that are. */
static char *next_other(char **at, int family, const char *address, unsigned *n, unsigned *n_right)
{
    while (*at && **at) {
        char *line = strsep(at, "\n");
        bool is_right;

        if (family_of(line, address, &is_right) != family)
            return line;
        ++*n;
        *n_right += is_right;
    }
    return NULL;
}

FUZZ(data, size)
{
    static const char *const addresses[] = {"10.0.0.1", "fd00::1"};
    struct fuzz_in in = {data, size};
    bool is_v6 = fuzz_byte(&in) & 1;
    const char *address = addresses[is_v6];
    int family = is_v6 ? AF_INET6 : AF_INET;
    char *text = fuzz_str(&in, size, NULL), *given = fuzz_str(&in, 60, NULL);
    char *before = strdup(text), *after, *a, *b, *line, *other;
    unsigned n = 0, n_right = 0, n_before = 0, n_right_before = 0;
    struct buf once, twice;

    buf_init(&once, 4 * size + 1000);
    buf_init(&twice, 4 * size + 1000);
    CHECK(hosts_edit(text, NAME, address, &once, NULL) == 0);
    CHECK(hosts_edit(once.data, NAME, address, &twice, NULL) == 0);
    CHECK(strcmp(once.data, twice.data) == 0);
    CHECK(hosts_check_address(given, NULL) < 0 || !strpbrk(given, BLANKS "\n#"));
    after = strdup(once.data);
    CHECK(before && after);
    a = before;
    b = after;
    while ((line = next_other(&a, family, address, &n_before, &n_right_before))) {
        other = next_other(&b, family, address, &n, &n_right);
        while (other && strcmp(line, other) != 0) /* the rest of a line that also had the name */
            other = next_other(&b, family, address, &n, &n_right);
        CHECK(other);
    }
    while (next_other(&b, family, address, &n, &n_right))
        ;
    CHECK(n == 1 && n_right == 1);
    buf_done(&once);
    buf_done(&twice);
    free(text);
    free(given);
    free(before);
    free(after);
    return 0;
}
