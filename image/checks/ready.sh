# shellcheck shell=sh disable=SC2154,SC2164
# The template's ready_cmd succeeds: the condition that `up` waits for, with a shorter deadline.
echo ready
cd "$(cat /etc/bellhop/workdir)"
tries=130
until sh -c "$(cat /etc/bellhop/ready_cmd)" >"$here/out" 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "ready_cmd does not succeed: $(tail -n 1 "$here/out")"
    sleep 2
done
