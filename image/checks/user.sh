# shellcheck shell=sh disable=SC2154,SC2164
version "uid $(id -u).$(id -g)"
is "the user" "$(id -un)" "$BOX_USER"
is "the home" "$HOME" "/home/$BOX_USER"
is "git's hooks" "$(git config --system core.hooksPath 2>/dev/null || echo none)" /dev/null
# The user can write to its own directories.
touch "$HOME/.check" && rm "$HOME/.check"
# Every command has the template's variables.
while read -r line; do
    env | grep -qxF "$line" || fail "the template's variable is not set: $line"
done </etc/bellhop/env
