# shellcheck shell=sh disable=SC2154,SC2164
# What the template waits for comes: as `up` asks for it, but sooner.
echo ready
cd "$(cat /etc/bellhop/workdir)"
tries=130
until sh -c "$(cat /etc/bellhop/ready_cmd)" >"$here/out" 2>&1; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "ready_cmd does not succeed: $(tail -n 1 "$here/out")"
    sleep 2
done
