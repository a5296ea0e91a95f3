#pragma once
/*
 * kube_stream: a byte stream to a process or a port of a pod, over a WebSocket of the API server. Its messages begin
 * with the number of a channel. Bounded by socket_relay.h; a ping is answered.
 */
#include "lib/provider/kubernetes/kube_client.h"

/* By `bellhopd dial PORT` in the pod: v5.channel.k8s.io, which passes a half-close of either side. */
int kube_stream_exec(struct kube *k, const char *pod, const char *agent, unsigned port, int *ret_fd,
                     struct err *e);
/* A shell with a script in the pod: our side is its standard input, the other its standard output. */
int kube_stream_script(struct kube *k, const char *pod, const char *script, int *ret_fd,
                       struct err *e);
/* By port-forward: v4.channel.k8s.io. It knows no half-close: the end of our side ends the connection, and an answer
 * that was still to come is lost. */
int kube_stream_forward(struct kube *k, const char *pod, unsigned port, int *ret_fd, struct err *e);
/* The same over a WebSocket that is there; it is taken over whatever happens. */
int kube_stream_start_take(int websocket, bool is_exec, int *ret_fd, struct err *e);
