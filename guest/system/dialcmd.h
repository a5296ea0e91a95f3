#pragma once
/* dialcmd: the command `bellhopd dial PATH|PORT`: joins its standard input and output with a unix socket, or with a TCP
 * port of 127.0.0.1. For engines that run commands in a box, and have no other way in. */

int dialcmd_main(int argc, char **argv);
