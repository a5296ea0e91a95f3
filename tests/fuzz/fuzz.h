#pragma once
/*
 * fuzz: what the targets share. A target is tests/fuzz/fuzz_NAME.c with one
 *
 *   FUZZ(data, size) { ...; CHECK(property); return 0; }
 *
 * and nothing else needs to know of it. It is linked with every object of the agent but main.o. A
 * target asserts a property (result if and only if success; the same as a slow reference; the path
 * is inside), not just survival. State that outlives one input is made once, by fuzz_once().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ(data, size) \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)

/* Like assert(), in every build; prints the values, so that the log alone explains the failure. */
#define CHECK(cond) \
    do { \
        if (!(cond)) { \
            (void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond); \
            abort(); \
        } \
    } while (0)

/* The rest of the input, consumed from the front; 0 and "" when it is used up. */
struct fuzz_in {
    const uint8_t *data;
    size_t len;
};

static inline uint8_t fuzz_byte(struct fuzz_in *in)
{
    if (!in->len)
        return 0;
    in->len--;
    return *in->data++;
}

/* At most max bytes, ended early by 0xff; a copy with a NUL behind it: free(). */
static inline char *fuzz_str(struct fuzz_in *in, size_t max, size_t *ret_len)
{
    size_t n = 0;
    char *s;

    while (n < in->len && n < max && in->data[n] != 0xff)
        n++;
    s = malloc(n + 1);
    CHECK(s);
    memcpy(s, in->data, n);
    s[n] = '\0';
    in->data += n;
    in->len -= n;
    if (in->len && *in->data == 0xff)
        (void)fuzz_byte(in);
    if (ret_len)
        *ret_len = n;
    return s;
}

/* A new empty directory, removed at a normal exit of the program. */
const char *fuzz_dir(void);
