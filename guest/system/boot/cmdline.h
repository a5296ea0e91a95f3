#pragma once
/*
 * cmdline: what the kernel's command line says to the first process of a machine. Pure; the caller
 * owns what it gets. Words in double quotes may have blanks, as the kernel has it; a word that is
 * given twice counts the second time; words that are nothing to us are the kernel's.
 *
 *   root=/dev/vda        the disk with the root file system (the default)
 *   hostname=NAME
 *   ip=CLIENT::GATEWAY:NETMASK:HOSTNAME:DEVICE:off:DNS0:DNS1   the kernel's own form; later fields may
 *                        be left out; ip=off or ip=none: no network. Without it: what QEMU's user
 *                        network gives everybody. There is no DHCP.
 *   -- WORD...           the agent's options
 */
#include <netinet/in.h>
#include <stdbool.h>

#include "common/err.h"

#define CMDLINE_MAX_BYTES 4096
#define CMDLINE_NAME_BYTES 64   /* a device's path; a host's name, as the kernel bounds it */
#define CMDLINE_MAX_OPTIONS 128 /* words after "--" */
#define CMDLINE_N_DNS 2

struct cmdline_net {
    bool is_off, is_asked; /* asked: an interface must be there */
    struct in_addr client, gateway, netmask, dns[CMDLINE_N_DNS]; /* 0: none */
    char device[16];                                             /* "": the first there is */
};

struct cmdline {
    char root[CMDLINE_NAME_BYTES];
    char hostname[CMDLINE_NAME_BYTES + 1]; /* "": not said */
    struct cmdline_net net;
    char **options; /* NULL: none */
};

/* `text` is changed. ERR_INVALID names the word. On failure there is nothing to free. */
int cmdline_parse(char *text, struct cmdline *ret, struct err *e);
void cmdline_done(struct cmdline *c); /* accepts zeroed */
