#pragma once
/*
 * archive_lib: libarchive, loaded when the first archive is read or written. Debian's brings a dozen libraries (ICU's and
 * C++'s among them), whose loading takes longer than most commands, and megabytes of each box's monitor.
 *
 * archive_lib_load() comes before every other call; these have libarchive's own names. Thread-safe.
 */
#include <archive.h>
#include <archive_entry.h>

#include "common/err.h"

int archive_lib_load(struct err *e);

#define ARCHIVE_LIB_CALLS(F) \
    F(archive_entry_clear) \
    F(archive_entry_copy_pathname) \
    F(archive_entry_copy_symlink) \
    F(archive_entry_filetype) \
    F(archive_entry_free) \
    F(archive_entry_hardlink) \
    F(archive_entry_mtime) \
    F(archive_entry_mtime_nsec) \
    F(archive_entry_new) \
    F(archive_entry_pathname) \
    F(archive_entry_perm) \
    F(archive_entry_set_filetype) \
    F(archive_entry_set_mtime) \
    F(archive_entry_set_pathname) \
    F(archive_entry_set_perm) \
    F(archive_entry_set_size) \
    F(archive_entry_size) \
    F(archive_entry_symlink) \
    F(archive_error_string) \
    F(archive_read_data) \
    F(archive_read_data_block) \
    F(archive_read_free) \
    F(archive_read_new) \
    F(archive_read_next_header) \
    F(archive_read_open_fd) \
    F(archive_read_open_filename) \
    F(archive_read_support_filter_gzip) \
    F(archive_read_support_filter_zstd) \
    F(archive_read_support_format_tar) \
    F(archive_write_add_filter_zstd) \
    F(archive_write_close) \
    F(archive_write_data) \
    F(archive_write_free) \
    F(archive_write_header) \
    F(archive_write_new) \
    F(archive_write_open) \
    F(archive_write_open_filename) \
    F(archive_write_set_bytes_per_block) \
    F(archive_write_set_format_pax) \
    F(archive_write_set_format_pax_restricted) \
    F(archive_write_set_options)

struct archive_lib {
#define ARCHIVE_LIB_MEMBER(name) __typeof__(name) *name;
    ARCHIVE_LIB_CALLS(ARCHIVE_LIB_MEMBER)
#undef ARCHIVE_LIB_MEMBER
};
const struct archive_lib *archive_lib(void); /* after archive_lib_load() */

#ifndef ARCHIVE_LIB_LOADS
#define archive_entry_clear archive_lib()->archive_entry_clear
#define archive_entry_copy_pathname archive_lib()->archive_entry_copy_pathname
#define archive_entry_copy_symlink archive_lib()->archive_entry_copy_symlink
#define archive_entry_filetype archive_lib()->archive_entry_filetype
#define archive_entry_free archive_lib()->archive_entry_free
#define archive_entry_hardlink archive_lib()->archive_entry_hardlink
#define archive_entry_mtime archive_lib()->archive_entry_mtime
#define archive_entry_mtime_nsec archive_lib()->archive_entry_mtime_nsec
#define archive_entry_new archive_lib()->archive_entry_new
#define archive_entry_pathname archive_lib()->archive_entry_pathname
#define archive_entry_perm archive_lib()->archive_entry_perm
#define archive_entry_set_filetype archive_lib()->archive_entry_set_filetype
#define archive_entry_set_mtime archive_lib()->archive_entry_set_mtime
#define archive_entry_set_pathname archive_lib()->archive_entry_set_pathname
#define archive_entry_set_perm archive_lib()->archive_entry_set_perm
#define archive_entry_set_size archive_lib()->archive_entry_set_size
#define archive_entry_size archive_lib()->archive_entry_size
#define archive_entry_symlink archive_lib()->archive_entry_symlink
#define archive_error_string archive_lib()->archive_error_string
#define archive_read_data archive_lib()->archive_read_data
#define archive_read_data_block archive_lib()->archive_read_data_block
#define archive_read_free archive_lib()->archive_read_free
#define archive_read_new archive_lib()->archive_read_new
#define archive_read_next_header archive_lib()->archive_read_next_header
#define archive_read_open_fd archive_lib()->archive_read_open_fd
#define archive_read_open_filename archive_lib()->archive_read_open_filename
#define archive_read_support_filter_gzip archive_lib()->archive_read_support_filter_gzip
#define archive_read_support_filter_zstd archive_lib()->archive_read_support_filter_zstd
#define archive_read_support_format_tar archive_lib()->archive_read_support_format_tar
#define archive_write_add_filter_zstd archive_lib()->archive_write_add_filter_zstd
#define archive_write_close archive_lib()->archive_write_close
#define archive_write_data archive_lib()->archive_write_data
#define archive_write_free archive_lib()->archive_write_free
#define archive_write_header archive_lib()->archive_write_header
#define archive_write_new archive_lib()->archive_write_new
#define archive_write_open archive_lib()->archive_write_open
#define archive_write_open_filename archive_lib()->archive_write_open_filename
#define archive_write_set_bytes_per_block archive_lib()->archive_write_set_bytes_per_block
#define archive_write_set_format_pax archive_lib()->archive_write_set_format_pax
#define archive_write_set_format_pax_restricted \
    archive_lib()->archive_write_set_format_pax_restricted
#define archive_write_set_options archive_lib()->archive_write_set_options
#endif
