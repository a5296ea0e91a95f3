#pragma once
/*
 * kube_retry: which failures of a call pass by themselves, and the pauses before the call is repeated: at most
 * kube_patience() in all. They double, and are never shorter than the API server asks for.
 *
 * Source: the Kubernetes API conventions (Status, retryAfterSeconds). client-go repeats a 429 or 5xx that has Retry-After.
 */
#include <jansson.h>

#include "lib/provider/kubernetes/kube_client.h"
#include "lib/util/transport.h"

/* The repetitions of one call. {0} before the first. */
struct kube_retry {
    int64_t until_mono_ms; /* 0: it has not failed yet */
    int pause_ms;
    int status;          /* of the last answer; 0: there was none */
    int after_ms;        /* the pause that it asked for */
    bool is_passing;     /* it says itself that it passes */
    unsigned n_internal; /* the last answers with 500 that do not */
};
/* Reads the answer's head, and the Status that refuses; res NULL: there was no answer. */
void kube_retry_answer(struct kube_retry *t, const struct http_response *res);
void kube_retry_read(struct kube_retry *t, const json_t *status);
/* After the result r: 1: a pause was made, repeat the call; 0: do not; or an error: canceled. */
int kube_retry_pause(const struct kube *k, struct kube_retry *t, int r, struct err *e);
