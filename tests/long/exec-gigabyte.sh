#!/bin/sh
# A gigabyte through the stdin of `cat`, exact, with some pieces sent twice: about a minute.
set -eu

cd "$(dirname "$0")/../.."
EXEC_FEED_BYTES=$((1024 * 1024 * 1024)) exec bats -f 'goes through cat exactly' tests/integration/exec-bounds.bats
