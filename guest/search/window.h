#pragma once
/*
 * window: reads a file in pieces for a search line by line, and determines how much of it may be searched and
 * where it becomes binary. `rg -P` decodes 3 bytes and then 8 KiB at a time, and stops at the piece that has
 * a NUL byte; the same pieces are tracked here, so that the same lines are found before it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "search/encoding.h"

#define WINDOW_FIRST_BYTES (256 * 1024)
#define WINDOW_BYTES (1024 * 1024)
#define WINDOW_PIECE_BYTES (8 * 1024)
#define WINDOW_HEAD_BYTES (64 * 1024) /* a NUL byte in it makes a file binary that is read whole */

enum window_nul {
    WINDOW_NUL_STOPS,   /* the searchable text ends before the piece with the NUL */
    WINDOW_NUL_BECOMES, /* NUL bytes become line feeds from nul_from on */
    WINDOW_NUL_IS_TEXT,
};

enum window_encoding {
    WINDOW_AUTO,    /* UTF-16 or UTF-8 by the byte order mark; without one the bytes as they are */
    WINDOW_NONE,    /* the bytes as they are, including a mark */
    WINDOW_UTF16LE, /* these two unless a mark says otherwise */
    WINDOW_UTF16BE,
    WINDOW_LATIN1, /* windows-1252, as on the web */
};

struct window {
    int fd;
    enum window_nul nul;
    enum window_encoding encoding;
    struct buf data; /* the part of the file in memory */
    uint64_t base;   /* the offset of its first byte in the (decoded) file */
    size_t end;      /* data[0..end) are whole lines that may be searched */
    bool is_last;    /* the file ends at `end` */
    bool has_nul;
    uint64_t nul_from; /* offset of the line from which on the file is binary */
    uint64_t n_read;   /* bytes */

    bool eof;
    size_t checked;                    /* data[0..checked) was checked for NUL bytes */
    uint64_t first_piece, piece_bytes; /* lengths of the pieces */
    struct pieces pieces;              /* the pieces of converted text */
    uint64_t piece;     /* offset: lines before it are in pieces without a NUL byte */
    uint64_t sought;    /* offset: there is no line feed from `piece` to here */
    uint64_t lines_end; /* offset: after the last line feed seen */
};

void window_init(struct window *w, size_t line_max);
void window_done(struct window *w);
/* Begins a file; reuses the memory. */
void window_start(struct window *w, int fd, enum window_nul nul, enum window_encoding encoding);
/* Drops data[0..keep_from) and reads more. Fails if a line is longer than line_max. */
int window_next(struct window *w, size_t keep_from, struct err *e);
/* Reads the whole file, at most `max` bytes; for multiline. */
int window_read_all(struct window *w, size_t max, struct err *e);
/* The start of the piece that contains this offset. */
uint64_t window_piece_start(const struct window *w, uint64_t at);
