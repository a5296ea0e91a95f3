#pragma once
/*
 * cmdline: parses the kernel's command line for the first process of a machine. No side effects. As in the kernel,
 * words in double quotes may have blanks; of a word given twice the last one counts. Unknown words are ignored:
 * they are the kernel's.
 *
 *   root=/dev/vda        the disk with the root file system (the default)
 *   hostname=NAME
 *   ip=CLIENT::GATEWAY:NETMASK:HOSTNAME:DEVICE:off:DNS0:DNS1   the kernel's own form; later fields may
 *                        be left out; ip=off or ip=none: no network. Without it: the address that
 *                        QEMU's user network gives every guest. There is no DHCP.
 *   -- WORD...           the agent's options
 */
#include <netinet/in.h>
#include <stdbool.h>

#include "common/err.h"

#define CMDLINE_MAX_BYTES 4096
#define CMDLINE_NAME_BYTES 64   /* a device's path; a host's name (the kernel's limit) */
#define CMDLINE_MAX_OPTIONS 128 /* words after "--" */
#define CMDLINE_N_DNS 2

struct cmdline_net {
    bool is_off, is_asked; /* asked: an interface must exist */
    struct in_addr client, gateway, netmask, dns[CMDLINE_N_DNS]; /* 0: none */
    char device[16];                                             /* "": the first one */
};

struct cmdline {
    char root[CMDLINE_NAME_BYTES];
    char hostname[CMDLINE_NAME_BYTES + 1]; /* "": not given */
    struct cmdline_net net;
    char **options; /* NULL: none */
};

/* Modifies `text`. ERR_INVALID names the word. On failure there is nothing to free. */
int cmdline_parse(char *text, struct cmdline *ret, struct err *e);
void cmdline_done(struct cmdline *c); /* accepts zeroed */
