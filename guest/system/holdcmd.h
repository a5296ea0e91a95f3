#pragma once
/*
 * holdcmd: `bellhopd hold`, run by whoever works in the box: takes a hold from the box's agent, for
 * a time or while a command runs. Needs no token.
 */

/* The arguments behind `hold`. Returns the exit status: the command's, or 125 when the hold was not
 * to be had, 126 and 127 when the command can't be run or is not there. */
int holdcmd_main(int argc, char **argv);
