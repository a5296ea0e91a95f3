#pragma once
/*
 * options: bellhopd's command line, as one table. Strings point into argv; the lists are the
 * caller's to free (options_done).
 */
#include <stdbool.h>

#include "common/err.h"
#include "proc/registry.h"

#define MAX_FDS 65536

struct options {
    char **listen;
    char **unix_paths;
    const char *token_file;
    int token_fd;
    bool token_once;
    bool auth_open;
    char **allow_hosts;
    bool cors;
    const char *root;
    const char *user;
    const char *workdir;
    int ready_fd;
    bool init;
    bool read_only;
    char **required;
    unsigned max_connections;
    int64_t keepalive_ms;
    struct registry_options exec;
    const char *forward_localhost;
    const char *hold_socket;
    const char *start_file;
    const char *env_file;
};

int options_parse(int argc, char **argv, struct options *o, struct err *e);
int options_check(const struct options *o, struct err *e); /* do they go together? */
void options_done(struct options *o);
void options_print_help(void);
