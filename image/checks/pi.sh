# shellcheck shell=sh disable=SC2154,SC2164
version "$(pi --version 2>&1)"
printf '{"id":"1","type":"get_state"}\n' >ask
# It ends with its input, which is held open until the answer has come.
# shellcheck disable=SC2094 # the one waits for what the other has written
{ cat ask; within 100 test -s answer; } | timeout 110 pi --mode rpc --no-session --offline >answer 2>log || true
is "pi's answer" "$(jq -c 'select(.id == "1") | [.command, .success]' answer)" '["get_state",true]'
