#!/bin/sh
# The same exec and file cases against Bellhop's agent, sandbox-agent and codex' exec-server: prints
# who passes what. Exits 1 unless Bellhop passes all. Arguments: names of cases (default: all).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=$top/build/cache/conformance
mkdir -p "$cache"

# package NAME PATH-BELOW-THE-REGISTRY SHA512 PROGRAM: unpacked to $cache/NAME, once.
package()
{
    dir=$cache/$1-$(printf %s "$3" | cut -c1-12)
    [ ! -e "$dir/.done" ] || return 0
    registry=${registry:-$("$top/scripts/npm-registry.sh")}
    echo "fetching $1 ..." >&2
    rm -rf "$dir"
    mkdir -p "$dir"
    curl -fsSL --retry 3 --max-time 600 -o "$dir/package.tgz" "$registry/$2"
    echo "$3  $dir/package.tgz" | sha512sum -c --quiet -
    tar -xzf "$dir/package.tgz" -C "$dir"
    rm "$dir/package.tgz"
    chmod 755 "$dir/$4"
    : >"$dir/.done"
}

package sandbox-agent @sandbox-agent/cli-linux-x64/-/cli-linux-x64-0.4.2.tgz \
    1fd45baaad03464087bda93379f2540eb0dadb2faf263958779fed79fcca6d0df8968704d774c63728112f1744557a411028caf7055d0704d512985036c39c8f package/bin/sandbox-agent
sandbox_agent=$dir/package/bin/sandbox-agent
package codex @openai/codex/-/codex-0.169.0-linux-x64.tgz \
    a34e4dc803820f28123d1a35ca29f3c6f91149d9ac672043f44ee66e99a345a9d27ccf25ca9a96b50804a385df364c21b82476685bbc9a518eb101855d56d5c3 package/vendor/x86_64-unknown-linux-musl/bin/codex
codex=$dir/package/vendor/x86_64-unknown-linux-musl/bin/codex

# Debian's python3, since it is the one that has Debian's websocket module.
exec /usr/bin/python3 "$here/conformance.py" --bellhopd "${BELLHOPD:-$top/build/release/bellhopd}" \
    --sandbox-agent "$sandbox_agent" --codex "$codex" "$@"
