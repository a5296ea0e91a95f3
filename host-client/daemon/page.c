#include "daemon/page.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "http/respond.h"

/*
 * The page calls its own daemon and nobody else. xterm.js sets the sizes of its cells by style elements; a style
 * cannot call anything.
 */
#define PAGE_POLICY \
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " \
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; " \
    "frame-ancestors 'none'"

/* The bytes of a file, which the assembler includes. */
#define PAGE_FILE(i, name, type, etag, path) \
    __asm__(".pushsection .rodata\n" \
            "page_bytes_" #i ":\n.incbin \"" path "\"\n" \
            "page_end_" #i ":\n.byte 0\n" \
            ".popsection\n"); \
    extern const char page_bytes_##i[] __attribute__((visibility("hidden"))); \
    extern const char page_end_##i[] __attribute__((visibility("hidden")));
#include "page.inc"
#undef PAGE_FILE

struct page_file {
    const char *name;
    const char *type;
    const char *etag;
    const char *bytes;
    const char *end;
};

static const struct page_file page_files[] = {
#define PAGE_FILE(i, name, type, etag, path) {name, type, etag, page_bytes_##i, page_end_##i},
#include "page.inc"
};

static const struct page_file *find_file(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(page_files); i++)
        if (str_eq(page_files[i].name, name))
            return &page_files[i];
    return NULL;
}

static bool has_tag(struct request *q, const char *etag)
{
    const char *known = request_header(q, "If-None-Match");

    return known && (str_eq(known, "*") || strstr(known, etag));
}

static int page_finish(struct request *q, struct err *e)
{
    const struct page_file *file = find_file(q->rest ? q->rest : "index.html");
    struct reply *reply;
    bool is_known;

    if (!file)
        return err_set(e, ERR_NOT_FOUND, "the status page has no file '%.200s'", q->rest);
    is_known = has_tag(q, file->etag);
    reply = is_known ? reply_new_empty()
                     : reply_new_copy(file->bytes, (size_t)(file->end - file->bytes));
    if (!reply)
        return err_oom(e);
    reply_add_header(reply, "Content-Type", file->type);
    reply_add_header(reply, "ETag", file->etag);
    reply_add_header(reply, "Cache-Control", "no-cache");
    reply_add_header(reply, "Content-Security-Policy", PAGE_POLICY);
    reply_add_header(reply, "X-Content-Type-Options", "nosniff");
    reply_add_header(reply, "Referrer-Policy", "no-referrer");
    reply_add_header(reply, "Cross-Origin-Opener-Policy", "same-origin");
    return respond_queue(q, is_known ? HTTP_NOT_MODIFIED : HTTP_OK, reply, e);
}

const struct request_ops page_ops = {.finish = page_finish};
