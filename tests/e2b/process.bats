#!/usr/bin/env bats
# E2B's process.Process on the wire.
# early

load ../lib/e2b

setup_file()
{
    export BATS_NO_PARALLELIZE_WITHIN_FILE=true
}

setup()
{
    start_e2b
}

teardown()
{
    stop_agents
}

wire()
{
    timeout 600 python3 "$BATS_TEST_DIRNAME/process_wire.py" "$1" 3>&-
}

@test "e2b: a start, the data, one end; a program that is not there ends with 127" {
    wire events
}

@test "e2b: the end waits for who holds the output, but not after a signal" {
    wire eof_semantics
}

@test "e2b: a deadline kills the command, with and without its client" {
    wire deadline
}

@test "e2b: a client that goes ends nothing, and Connect tells what comes from then on" {
    wire disconnect
}

@test "e2b: a header asks for what was written before, and what is gone of it is counted" {
    wire replay
}

@test "e2b: Connect finds the end of a command that is over, by pid and tag" {
    wire retained
}

@test "e2b: a tag finds its command among other tags, and what is not there is said" {
    wire selectors
}

@test "e2b: input that can't be written is said as envd says it" {
    wire input_errors
}

@test "e2b: user, home, relative paths and environment" {
    wire who_and_where
}

@test "e2b: a terminal has its size, its changes and its input" {
    wire pty
}

@test "e2b: keepalives after each interval of silence" {
    wire keepalive
}

@test "e2b: a signal is the first process's alone, with descendants everybody's" {
    wire descendants
}

@test "e2b: slow subscribers get every byte, and one that reads nothing is passed by in the end" {
    wire slow_subscribers
}

@test "e2b: StreamInput writes as it comes and answers once" {
    wire stream_input
}

@test "e2b: what has arrived of long messages of many StreamInputs has a bound" {
    wire stream_input_bounds
}

@test "e2b: StreamInput to a command that does not read waits, and is taken up again" {
    wire stream_input_waits
}

@test "e2b: unknown methods, types and fields; pages of a browser may call where --cors lets them" {
    stop_agents
    start_e2b --cors
    wire protocol
}

@test "e2b: integers are numbers, whole ones with a point or an exponent, or strings of these" {
    wire numbers
}

@test "e2b: a NUL in a command is said, and where it is" {
    wire nul
}

@test "e2b: commands that have ended cost no more than the thousand results that are kept" {
    wire forgotten
}

@test "e2b: two hundred clients that open a stream and vanish leave nothing behind" {
    wire vanish
}
