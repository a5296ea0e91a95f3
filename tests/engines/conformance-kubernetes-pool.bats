#!/usr/bin/env bats
# early
# engines-only
# turn: kubernetes
# time-limit: 2700
# needs: image
# The cases of tests/providers with boxes from a pool of agent-sandbox, whose template is that of docs/kubernetes.md, in a
# cluster of one node.

load ../providers/drivers
load ../providers/cases
bats_require_minimum_version 1.5.0

DRIVERS=("${DRIVERS_KUBERNETES_POOL[@]}")
export KUBERNETES_NODES=1

setup_file()
{
    find_cluster --agent-sandbox || return 0
    cases_setup_file
}
teardown_file() { [ -n "$NO_CLUSTER" ] || cases_teardown_file; }
setup()
{
    need_cluster
    box_setup
}
teardown() { [ -n "$NO_CLUSTER" ] || box_teardown; }

@test "a provider prepares, finds, starts, stops and destroys a box, and each twice changes nothing" {
    each_driver case_twice
}

@test "up, start, stop and rm may be repeated with every provider, and the disk outlives a stop" {
    each_driver case_twice_by_bellhop
}

@test "files and streams are byte for byte the same with every provider" {
    each_driver case_files
}

@test "a port answers a half-closed connection in full with every provider" {
    each_driver case_ports
}

@test "the exit status of a command is the same with every provider" {
    each_driver case_exit
}

@test "a limit and a network are in force, or refused by name before anything is made, with every provider" {
    each_driver case_limits
}

@test "what a provider says of its isolation is what the kernel says" {
    each_driver case_isolation
}

@test "the death of a box's first process is seen, with its status, and its disk is kept with every provider" {
    each_driver case_death
}

@test "a sweep ends the boxes that nobody knows and no others, with every provider" {
    each_driver case_sweep
}

@test "commands at once leave a state that is the provider's, with every provider" {
    each_driver case_at_once
}

@test "a snapshot leaves the state as it is, or is refused by name, with every provider" {
    each_driver case_snapshot
}

@test "variables, labels, time, runtime and snapshot of a new box are in force, or refused by name, with every provider" {
    each_driver case_options
    each_driver case_from
}

@test "arguments, variables and the directory of a command arrive byte for byte with every provider" {
    each_driver case_arguments
}

@test "after up a session works through the URL alone, with every other function of the provider broken" {
    each_driver case_url_alone
}

@test "a box is made, found, started once and used in this order, and one that cannot be used is removed, with every provider" {
    each_driver case_order
}

@test "pause, stop and rm are three things, or refused by name, and rm leaves nothing, with every provider" {
    each_driver case_ends
}

@test "a box whose disk somebody removed is gone, typed, and made anew where that was asked for, with every provider" {
    each_driver case_gone
}

@test "two stores leave each other's boxes alone, also when one of them is lost, with every provider" {
    each_driver case_stores
}

@test "boxes are listed, and one that is named with its provider is no box of another, with every provider" {
    each_driver case_list
}

@test "a box that takes a minute to resume or to start is there within its deadline of 90 seconds, with every provider" {
    each_driver_at_once case_wake
}

@test "an upload of 1 GB to a box needs less than 32 MB of memory with every provider" {
    each_driver case_upload
}
