#pragma once
/*
 * kube_config: the way to an API server, from a kubeconfig or a pod's service account. Certificates and keys that a
 * kubeconfig has as data are in files in memory. libyaml is loaded with the first kubeconfig.
 */
#include "common/err.h"

struct kube_config {
    char *server;          /* "https://HOST:PORT" */
    char *context;         /* its name; or NULL */
    char *namespace;       /* of the context; or NULL */
    char *ca, *cert, *key; /* paths, or NULL */
    char *bearer;          /* "Authorization: Bearer TOKEN", or NULL */
    int fds[3];            /* of the paths that are in memory; -1 */
};

void kube_config_init(struct kube_config *c);
void kube_config_done(struct kube_config *c);
/* context NULL: the current one. ERR_UNIMPLEMENTED: it wants a plug-in, a proxy or no verification. */
int kube_config_read(struct kube_config *c, const char *path, const char *context, struct err *e);
/* In a pod; address: "HOST:PORT". */
int kube_config_of_pod(struct kube_config *c, const char *address, struct err *e);
