#pragma once
/*
 * holdcmd: the command `bellhopd hold`, for users inside the box: takes a hold from the box's agent, for a time
 * or while a command runs. Needs no token.
 */

/* The arguments after `hold`. Returns the exit status: the command's; 125 if the hold was refused; 126 or 127 if
 * the command can't be run or does not exist. */
int holdcmd_main(int argc, char **argv);
