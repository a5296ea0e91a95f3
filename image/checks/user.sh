# shellcheck shell=sh disable=SC2154,SC2164
version "uid $(id -u).$(id -g)"
is "the user" "$(id -un)" "$BOX_USER"
is "the home" "$HOME" "/home/$BOX_USER"
is "git's hooks" "$(git config --system core.hooksPath 2>/dev/null || echo none)" /dev/null
# Its own things are its to write.
touch "$HOME/.check" && rm "$HOME/.check"
# What the template sets is set for every command.
while read -r line; do
    env | grep -qxF "$line" || fail "the template's variable is not set: $line"
done </etc/bellhop/env
