#pragma once
/*
 * terminal: a command of a box with a terminal over a WebSocket. Binary messages are the bytes of the terminal, both ways;
 * text messages are JSON: {"resize":{"cols","rows"}} and {"signal":"SIGINT"} of the client, {"started":{"id"}} and
 * {"exit":{"reason","code","signal"}} of the daemon. Without id= the command is a new one, which gets SIGHUP when the client leaves; with
 * it, a running command is attached to, and goes on.
 */
#define TERMINAL_MAX 32 /* each has two threads of the pool */
#define TERMINAL_PROTOCOL "bellhop"

extern const struct request_ops terminal_ops;
