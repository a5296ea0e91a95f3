#pragma once
/*
 * options: of the command line of bellhop-daemon, and of the document that `bellhop daemon` gives it through a
 * descriptor (--options-fd): the options of libbellhop and the administrator's limits as JSON, under the names of
 * struct bh_options and struct bh_limits.
 */
#include <jansson.h>

#include "bellhop/bellhop.h"
#include "common/err.h"

struct daemon_options {
    struct bh_options lib; /* of the contexts; .state_dir and .cache_dir are set */
    struct bh_limits limits;
    char **limit_providers, **limit_networks, **limit_privileges;
    json_t *document; /* has the strings of lib */
    const char *socket;
    char **listen; /* addresses of TCP, or NULL */
    const char *tls_cert, *tls_key;
    char **domains; /* names of the daemon; those of ports of boxes are below; or NULL */
    char **webhooks;
    const char *webhook_secret_file;
    const char *lease;      /* leader.h; NULL: none */
    bool takes_over;        /* the boxes of a daemon that has gone with their monitors */
    int64_t follow_keep_ms; /* attention.h; 0: its default. For tests */
    int ready_fd;           /* -1: none */
    bool says_address;      /* on standard error */
};

/* ERR_INVALID names the option. daemon_options_done() in any case. */
int daemon_options_parse(int argc, char **argv, struct daemon_options *o, struct err *e);
void daemon_options_done(struct daemon_options *o);
