#pragma once
/*
 * oci_exec: runs a helper program with a deadline and keeps its output. The child may run a setup
 * first (enter namespaces, mount); its error becomes this call's error. The caller's process must
 * not reap this child elsewhere meanwhile.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define OCI_OUTPUT_BYTES 8192

struct oci_output {
    char text[OCI_OUTPUT_BYTES]; /* the head of stdout and stderr together, NUL-terminated */
    size_t len;
    int status; /* exit status, or 128 + signal */
};

struct oci_cmd {
    const char *const *argv;                /* argv[0] is an absolute path */
    const char *input;                      /* fed to standard input; NULL: /dev/null */
    int stdio_fd;                           /* standard output and error; -1: captured */
    int (*setup)(void *arg, struct err *e); /* in the child, before exec; no allocation */
    void *setup_arg;
    int64_t timeout_ms;
    int cancel_fd; /* 0 or -1: none */
};

/* 0: the program ran to its end, with any status. */
int oci_exec(const struct oci_cmd *c, struct oci_output *ret, struct err *e);

/* The same, but a status other than 0 is an error with the first lines of the output. */
int oci_exec_ok(const struct oci_cmd *c, struct oci_output *ret, struct err *e);

/* The absolute path of a program, looked up in the system's usual directories (and in `hint`
 * itself when that is a path); NULL when there is none. */
char *oci_find_program(const char *name);

/* Joins the last lines of a text for a message: line feeds become "; ". */
void oci_one_line(const char *text, char *out, size_t out_bytes);
