#pragma once
/*
 * jtext: writes JSON directly into a buffer, for streams of many small messages. It adds the commas. After a
 * failure (no memory, the buffer's maximum) all calls do nothing, and jtext_end() returns the error. The
 * result is one line.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

struct jtext {
    struct buf *out;
    size_t start; /* of the message in out */
    bool needs_comma;
    int r;
};

void jtext_begin(struct jtext *t, struct buf *out);
void jtext_open(struct jtext *t, char bracket); /* '{' or '[' */
void jtext_close(struct jtext *t, char bracket);
void jtext_key(struct jtext *t, const char *name); /* plain ASCII, nothing to escape */
void jtext_int(struct jtext *t, uint64_t value);
void jtext_bool(struct jtext *t, bool value);
void jtext_str(struct jtext *t, const char *s);                  /* UTF-8 */
void jtext_path(struct jtext *t, const char *path);              /* "..." or {"b64"} */
void jtext_bytes(struct jtext *t, const char *data, size_t len); /* the field "text" or "b64" */
/* Ends the message with a line feed; a failed message is removed. */
int jtext_end(struct jtext *t, struct err *e);
