#!/bin/sh
# Writes the header with version and commit; touches it only if its text changes, to avoid needless compilation.
set -eu

version=$1
out=$2

cd "$(dirname "$0")/.."
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown

new="/* Made by scripts/version-header.sh. */
#pragma once
#ifndef BELLHOP_VERSION
#define BELLHOP_VERSION \"$version\"
#endif
#define BELLHOP_COMMIT \"$commit\""

if [ ! -f "$out" ] || [ "$(cat "$out")" != "$new" ]; then
    printf '%s\n' "$new" >"$out.tmp.$$"
    mv -f "$out.tmp.$$" "$out"
fi
