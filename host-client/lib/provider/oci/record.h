#pragma once
/*
 * oci_record: records a box's parts on the host's disk, so that any process can find and undo them
 * after a crash at any point. Plain data; every write is atomic.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"
#include "lib/provider/oci/oci.h"

/* A process, identified even if its pid is reused. pid 0: none. */
struct oci_proc {
    pid_t pid;
    uint64_t start; /* /proc/PID/stat field 22 */
};

/* run.json. A name is written before the named object is made, a pid right after. */
struct oci_run {
    char runtime[16];         /* "runc" */
    char runtime_path[256];   /* the program's path */
    char container[40];       /* the container's id for the runtime */
    char cgroup[64];          /* below each hierarchy's root, with the leading '/' */
    char network[16];         /* the spec's, when it was started */
    char lower[16];           /* kind of the lower layer: "squashfs", "directory", "host" */
    char network_program[16]; /* "slirp4netns", "pasta", or "" */
    bool network_filtered;    /* nft rules are in place */
    bool is_started;          /* the start is complete and the isolation was read back */
    struct oci_proc init;     /* pid 1 of the box */
    struct oci_proc listener; /* listens on run/agent.sock: pid 1, or the gofer of runsc */
    struct oci_proc keeper;   /* ends the network helper when the box ends, forwards the proxy */
    struct oci_proc helper;   /* slirp4netns or pasta */
};

/* The names that a run of the box has, from the box's id. */
void oci_run_name(const struct provider_box *b, struct oci_run *run);

int oci_disk_load(const struct provider_box *b, struct oci_disk *ret, struct err *e);
int oci_disk_save(const struct provider_box *b, const struct oci_disk *disk, struct err *e);

/* The layers of snapshots below the disk in the directory `dir` ("oci/disk"), the lowest first: its
 * file layers.json. No file: none. The caller owns the list. */
int oci_layers_load(const struct provider_box *b, const char *dir, char ***ret, struct err *e);
int oci_layers_save(const struct provider_box *b, const char *dir, char *const *layers,
                    struct err *e);

/* ERR_NOT_FOUND: nothing is recorded. */
int oci_run_load(const struct provider_box *b, struct oci_run *ret, struct err *e);
int oci_run_save(const struct provider_box *b, const struct oci_run *run, struct err *e);
int oci_run_remove(const struct provider_box *b, struct err *e);

/* Fills in the start time of a pid; ERR_NOT_FOUND: there is no such live process. */
int oci_proc_identify(pid_t pid, struct oci_proc *ret, struct err *e);
/* A zombie is not alive. */
bool oci_proc_is_alive(const struct oci_proc *p);
/* Sends a signal to this very process and no later one. */
void oci_proc_signal(const struct oci_proc *p, int sig);
/* True: it has ended within the time. */
bool oci_proc_wait(const struct oci_proc *p, int timeout_ms);
