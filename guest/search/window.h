#pragma once
/*
 * window: a file read in pieces, for searching line by line: what of it may be searched now, and
 * where it turns binary. `rg -P` decodes 3 bytes and then 8 KiB at a time and gives up at the piece
 * that has a NUL byte; the same pieces are followed here, so that the same lines are found before it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "search/utf16.h"

#define WINDOW_FIRST_BYTES (256 * 1024)
#define WINDOW_BYTES (1024 * 1024)
#define WINDOW_PIECE_BYTES (8 * 1024)
#define WINDOW_HEAD_BYTES (64 * 1024) /* where a NUL byte makes a file binary that is read whole */

enum window_nul {
    WINDOW_NUL_STOPS,   /* the searchable text ends before the piece with the NUL */
    WINDOW_NUL_BECOMES, /* NUL bytes become line feeds; has_nul tells from where */
    WINDOW_NUL_IS_TEXT,
};

enum window_encoding {
    WINDOW_AUTO,    /* a byte order mark tells UTF-16 from UTF-8; else the bytes as they are */
    WINDOW_NONE,    /* the bytes as they are, also a mark */
    WINDOW_UTF16LE, /* these when there is no mark that says otherwise */
    WINDOW_UTF16BE,
    WINDOW_LATIN1, /* as the web has it: windows-1252 */
};

struct window {
    int fd;
    enum window_nul nul;
    enum window_encoding encoding;
    struct buf data; /* what is held of the file */
    uint64_t base;   /* the offset of its first byte in the (decoded) file */
    size_t end;      /* data[0..end) are whole lines that may be searched */
    bool is_last;    /* there is no more after `end` */
    bool has_nul;
    uint64_t nul_from; /* offset: from the line here on it counts as binary */
    uint64_t n_read;   /* bytes */

    bool eof;
    size_t checked;                    /* data[0..checked) was looked at for NUL bytes */
    uint64_t first_piece, piece_bytes; /* how long pieces are */
    struct pieces pieces;              /* what they are of text that was converted */
    uint64_t piece;     /* offset: the lines before it are in pieces without a NUL byte */
    uint64_t sought;    /* offset: from `piece` to here there is no line feed */
    uint64_t lines_end; /* offset: behind the last line feed that was seen */
};

void window_init(struct window *w, size_t line_max);
void window_done(struct window *w);
/* Keeps the memory. */
void window_start(struct window *w, int fd, enum window_nul nul, enum window_encoding encoding);
/* Drops data[0..keep_from) and reads on. Fails when a line is longer than line_max. */
int window_next(struct window *w, size_t keep_from, struct err *e);
/* Reads all of it, at most `max` bytes; for multiline. */
int window_read_all(struct window *w, size_t max, struct err *e);
/* The start of the piece that has this offset. */
uint64_t window_piece_start(const struct window *w, uint64_t at);
