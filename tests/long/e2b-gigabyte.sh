#!/bin/sh
# A gigabyte by E2B's JavaScript SDK, there and back, compared by its SHA-256, with the agent under 16 MB: about
# half a minute.
set -eu

cd "$(dirname "$0")/../.."
MB=1024 E2B_MAX_S=540 E2B_API_KEY=e2b_00 exec bats -f 'a gigabyte goes up' tests/e2b/files.bats
