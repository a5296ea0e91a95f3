#!/bin/sh
# A gigabyte through the daemon's gateway, there and back: as a file of a box, and by the host name of a port.
set -eu

cd "$(dirname "$0")/../.."
export MB=1024
bats -f 'a large file passes both ways' tests/daemon/gateway.bats
exec bats -f 'an upload and a download by host name' tests/daemon/programs.bats
