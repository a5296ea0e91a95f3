#!/bin/sh
# Exec in a virtual machine with cgroup v2, and boxes whose host it is: emulated, so a quarter of an hour.
# VM_EXEC_ONLY: a filter.
set -eu

cd "$(dirname "$0")/../.."
BELLHOP_BUILD=${BELLHOP_BUILD:-$PWD/build/release}
export BELLHOP_BUILD
exec bats --timing -f "${VM_EXEC_ONLY:-.}" tests/long/vm-box.bats tests/long/vm-exec.bats
