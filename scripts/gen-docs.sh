#!/bin/sh
# Writes what the command's own tables say, under DIR (default: the tree itself): the man pages and
# the completion scripts. The program must be built.
set -eu

cd "$(dirname "$0")/.."
dir=${1:-.}
bellhop=${BELLHOP_BUILD:-build/release}/bellhop

if [ ! -x "$bellhop" ]; then
    echo "gen-docs: $bellhop is not built" >&2
    exit 1
fi
mkdir -p "$dir/docs/man" "$dir/docs/completion"
"$bellhop" help --man >"$dir/docs/man/bellhop.1"
for command in $("$bellhop" help | sed -n 's/^  \([a-z][a-z-]\{1,\}\)  .*/\1/p' | sort -u); do
    "$bellhop" help --man "$command" >"$dir/docs/man/bellhop-$command.1"
done
for shell in bash zsh fish; do
    "$bellhop" completion "$shell" >"$dir/docs/completion/bellhop.$shell"
done
