#pragma once
/* kube_place: the cluster that kubectl would use, from the environment. */
#include "common/err.h"

/*
 * set: KUBECONFIG, or a setting of the user's; or NULL. Of a list of files, the first that is there. *ret is as
 * bh_options.kubeconfig; NULL: there is none. Without anything set, a pod's service account comes before ~/.kube/config.
 * free() it.
 */
int kube_place_resolve(const char *set, char **ret, struct err *e);
