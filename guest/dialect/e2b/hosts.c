#include "dialect/e2b/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"
#include "fs/write.h"

#define PATH "/etc/hosts"
#define BLANKS " \t\r\v\f"

struct address {
    int family; /* AF_INET, AF_INET6; 0: none */
    struct in6_addr ip;
};

static struct address parse_address(const char *text)
{
    struct address a = {0};

    if (inet_pton(AF_INET, text, &a.ip) == 1)
        a.family = AF_INET;
    else if (inet_pton(AF_INET6, text, &a.ip) == 1)
        a.family = AF_INET6;
    return a;
}

int hosts_check_address(const char *text, struct err *e)
{
    return parse_address(text).family ? 0
                                      : err_set(e, ERR_INVALID, "'%.64s' is no IP address", text);
}

/* The next word of a line that ends at `end`; false: there is none. */
static bool next_word(const char **at, const char *end, const char **ret, size_t *ret_len)
{
    while (*at < end && strchr(BLANKS, **at))
        ++*at;
    *ret = *at;
    while (*at < end && !strchr(BLANKS, **at))
        ++*at;
    *ret_len = (size_t)(*at - *ret);
    return *ret_len > 0;
}

/* Names are compared without regard to case. */
static bool is_word(const char *word, size_t len, const char *wanted)
{
    return len == strlen(wanted) && strncasecmp(word, wanted, len) == 0;
}

static bool has_name(const char *at, const char *end, const char *name)
{
    const char *word;
    size_t len;

    while (next_word(&at, end, &word, &len))
        if (is_word(word, len, name))
            return true;
    return false;
}

/* Adds a line without the name: address, other names, comment. Adds nothing if no other name is left. */
static int add_without(struct buf *out, const char *at, const char *end, const char *line_end,
                       const char *name, struct err *e)
{
    size_t begin = out->len, n_names = 0, len;
    const char *word;
    int r = 0;

    (void)next_word(&at, end, &word, &len);
    r = buf_add(out, word, len, e);
    while (r == 0 && next_word(&at, end, &word, &len)) {
        if (is_word(word, len, name))
            continue;
        r = buf_addf(out, e, "%s%.*s", n_names++ ? " " : "\t", (int)len, word);
    }
    if (r < 0)
        return r;
    if (!n_names) {
        out->len = begin;
        out->data[begin] = '\0';
        return 0;
    }
    if (end < line_end)
        r = buf_addf(out, e, " %.*s", (int)(line_end - end), end);
    return r < 0 ? r : buf_adds(out, "\n", e);
}

/* The address of a line; *ret_names: the rest after it. */
static struct address line_address(const char *line, const char *end, const char **ret_names)
{
    char text[INET6_ADDRSTRLEN] = "";
    const char *word;
    size_t len;

    if (next_word(&line, end, &word, &len) && len < sizeof(text))
        memcpy(text, word, len);
    *ret_names = line;
    return parse_address(text);
}

int hosts_edit(const char *text, const char *name, const char *address, struct buf *out,
               struct err *e)
{
    struct address wanted = parse_address(address);
    bool is_there = false;
    int r = hosts_check_address(address, e);

    while (r == 0 && *text) {
        const char *line_end = text + strcspn(text, "\n");
        const char *end = text + strcspn(text, "#\n"); /* without the comment */
        const char *names;
        struct address a = line_address(text, end, &names);
        bool is_named = a.family == wanted.family && has_name(names, end, name);
        bool is_right = is_named && memcmp(&a.ip, &wanted.ip, sizeof(a.ip)) == 0;

        if (is_named && (!is_right || is_there))
            r = add_without(out, text, end, line_end, name, e);
        else
            r = buf_addf(out, e, "%.*s\n", (int)(line_end - text), text);
        is_there = is_there || is_right;
        text = line_end + (*line_end == '\n');
    }
    return r < 0 || is_there ? r : buf_addf(out, e, "%s\t%s\n", address, name);
}

/* A missing file counts as empty. */
static int read_hosts(const struct fs_caller *c, char **ret, struct err *e)
{
    _cleanup_free_ char *text = malloc(HOSTS_MAX_BYTES + 1);
    _cleanup_close_ int fd = -1;
    struct err why = {0};
    size_t len = 0;
    int r;

    if (!text)
        return err_oom(e);
    r = fs_open(c, PATH, O_RDONLY | O_NONBLOCK, 0, &fd, &why);
    if (r < 0 && why.sys != ENOENT) {
        if (e)
            *e = why;
        return r;
    }
    r = fd < 0 ? 0 : io_read_full(fd, text, HOSTS_MAX_BYTES + 1, &len, e);
    if (r < 0)
        return r;
    if (len > HOSTS_MAX_BYTES || memchr(text, 0, len))
        return err_set(e, ERR_PRECONDITION, PATH " is larger than %d bytes, or no text",
                       HOSTS_MAX_BYTES);
    text[len] = '\0';
    *ret = TAKE(text);
    return 0;
}

static int write_hosts(struct fs_caller *c, const struct buf *text, struct err *e)
{
    const struct fs_write_options o = {0};
    struct fs_write_result result;
    struct fs_write *w = NULL;
    int r = fs_write_begin(c, PATH, &o, &w, e);

    if (r == 0)
        r = fs_write_data(w, text->data, text->len, e);
    if (r == 0)
        r = fs_write_commit(w, &result, e);
    fs_write_free(w);
    return r;
}

int hosts_set(struct fs_root *root, const char *name, const char *address, struct err *e)
{
    _cleanup_fs_caller_ struct fs_caller *c = NULL;
    _cleanup_free_ char *old = NULL;
    _cleanup_buf_ struct buf text;
    int r;

    buf_init(&text, 2 * HOSTS_MAX_BYTES);
    r = fs_caller_new(root, NULL, fs_root_path(root), &c, e);
    if (r == 0)
        r = read_hosts(c, &old, e);
    if (r == 0)
        r = hosts_edit(old, name, address, &text, e);
    if (r < 0 || str_eq(old, text.data))
        return r;
    return write_hosts(c, &text, e);
}
