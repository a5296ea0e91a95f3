#pragma once
/*
 * control: the protocol between a command and a box's monitor on <box dir>/monitor.sock (0600).
 * One JSON object a line, one reply a line: {"ok":true,...} or {"error":{code,...}}.
 *
 *   {"op":"ping"}                        -> {"ok":true,"pid":N,"deadline_ms":T,"uses":N,...}
 *   {"op":"touch"}                       counts as a use of the box: renews the lease; an error if
 *                                        the box is paused, as from "hold"
 *   {"op":"hold"}                        the box counts as used until this connection closes
 *   {"op":"extend","until_ms":T[,"awake":true]}  never shortens; -> {"ok":true,"deadline_ms":T}.
 *                                        awake: nor is it paused for want of use until then
 *   {"op":"forward","port":P[,"host_port":H]} -> {"ok":true,"host_port":H}
 *   {"op":"supervise"}                   reads agent-start.json and keeps that command running
 *   {"op":"pause"}                       freezes the box
 *   {"op":"resume"[,"timeout_ms":N]}     it runs again, and its guest agent has answered
 *   {"op":"stop","cause":"..."[,"grace_ms":N]}  stops the box, replies once it is stopped, exits
 */
#include <jansson.h>
#include <stdint.h>

#include "common/err.h"

struct bh_ctx;

#define CONTROL_LINE_BYTES (64 * 1024)

/* Sends one request and reads one reply. ERR_UNAVAILABLE: there is no monitor. Takes req. */
int control_call_take(struct bh_ctx *ctx, const char *box_id, json_t *req, int64_t timeout_ms,
                      json_t **ret, struct err *e);
/* The same, but the connection stays open; the caller owns it (hold). */
int control_open_take(struct bh_ctx *ctx, const char *box_id, json_t *req, int64_t timeout_ms,
                      int *ret_fd, struct err *e);

/* Makes sure that the box has a monitor: starts one (double fork, setsid, descriptors closed)
 * and waits until it reports that the guest agent answers, or an error. */
int control_ensure_monitor(struct bh_ctx *ctx, const char *box_id, int64_t deadline_mono_ms,
                           struct err *e);

/* 0: the box has a monitor, and the guest agent has answered that monitor. */
int control_ping(struct bh_ctx *ctx, const char *box_id, struct err *e);
/* Ends the monitor unless it is the caller: SIGKILL if it does not exit within a moment. The
 * box stays as it is. */
void control_kill_monitor(struct bh_ctx *ctx, const char *box_id);
