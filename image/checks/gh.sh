# shellcheck shell=sh disable=SC2154,SC2164
version "$(gh --version)"
rc=0
said=$(GH_TOKEN='' gh auth status 2>&1) || rc=$?
[ "$rc" -eq 1 ] || fail "gh without an account ended with $rc: $said"
case $said in *"not logged in"*) ;; *) fail "gh says: $said" ;; esac
GH_CONFIG_DIR=$here/gh gh config set git_protocol ssh
is "gh's setting" "$(GH_CONFIG_DIR=$here/gh gh config get git_protocol)" ssh
