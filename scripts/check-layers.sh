#!/bin/sh
# Calls go down only: main -> server -> rpc, dialect -> {proc, fs, search, archive, system} -> common,
# and the host uses guest/common alone. Libraries' headers are seen where STYLE says. Exceptions,
# each with its reason, are rows of scripts/layers.allow.
set -eu

cd "$(dirname "$0")/.."

# The folders of guest/ that a file of this folder may include from.
may_include()
{
    modules="common proc fs search archive system"
    case $1 in
    guest/common) echo common ;;
    guest/proc | guest/fs | guest/system) echo "common ${1#guest/}" ;;
    guest/search) echo "common search" ;;
    # It reads and writes the tree, for which fs has the only safe ways; search knows what ignore
    # files hide.
    guest/archive) echo "common fs search archive" ;;
    guest/rpc) echo "$modules rpc" ;;
    guest/dialect) echo "$modules rpc dialect" ;;
    guest/server) echo "$modules rpc dialect server" ;;
    guest) echo "$modules rpc dialect server" ;;
    host-client/*) echo "common" ;;
    esac
}

# What all of the guest above common may use besides: the loop and the worker pool.
is_shared()
{
    case $1:$2 in
    guest/common:*) return 1 ;;
    guest/*:proc/loop.h | guest/*:system/pool.h) return 0 ;;
    esac
    return 1
}

is_allowed()
{
    sed -e 's/#.*//' -e 's/[[:space:]]*$//' scripts/layers.allow 2>/dev/null | grep -qxF "$1 $2"
}

complain()
{
    is_allowed "$1" "$2" || printf 'check-layers: %s includes %s: %s\n' "$1" "$2" "$3"
}

check_project_header()
{
    case $2 in
    common/* | proc/* | fs/* | search/* | archive/* | system/* | rpc/* | dialect/* | server/*)
        ! is_shared "$3" "$2" || return 0
        case " $(may_include "$3") " in
        *" ${2%%/*} "*) ;;
        *) complain "$1" "$2" "not below $3" ;;
        esac
        ;;
    esac
}

check_library_header()
{
    case $2:$1 in
    microhttpd.h:guest/server/* | microhttpd.h:host-client/daemon/*) ;;
    microhttpd.h:*) complain "$1" "$2" "libmicrohttpd is seen in guest/server and host-client/daemon" ;;
    curl/*:host-client/lib/transport.c) ;;
    curl/*:*) complain "$1" "$2" "libcurl is seen in host-client/lib/transport.c" ;;
    jansson.h:guest/rpc/* | jansson.h:guest/dialect/* | jansson.h:guest/common/jsonx.* | \
        jansson.h:guest/server/respond.* | jansson.h:guest/server/encode.* | jansson.h:host-client/*) ;;
    jansson.h:*) complain "$1" "$2" "JSON is seen in rpc, dialect, the responder and jsonx" ;;
    esac
}

list=$(find guest host-client -name '*.[ch]' -not -path 'guest/deps/*' | sort)
problems=$(
    for file in $list; do
        folder=$(dirname "$file")
        # Folders below a layer's own (common/wire) belong to it.
        case $folder in guest/*/*) folder=${folder%/*} ;; esac
        sed -n 's/^#include "\([^"]*\)".*/project \1/p; s/^#include <\([^>]*\)>.*/library \1/p' "$file" |
            while read -r kind header; do
                "check_${kind}_header" "$file" "$header" "$folder"
            done
    done
)
if [ -n "$problems" ]; then
    printf '%s\n' "$problems" >&2
    exit 1
fi
echo "  OK    layers: calls go down only"
