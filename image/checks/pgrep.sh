# shellcheck shell=sh disable=SC2154,SC2164
version "$(pgrep --version)"
sleep 987 &
pid=$!
within 10 pgrep -x -f 'sleep 987'
is "pgrep" "$(pgrep -x -f 'sleep 987')" "$pid"
is "ps" "$(ps -o args= -p "$pid")" "sleep 987"
pkill -x -f 'sleep 987'
rc=0
wait "$pid" || rc=$?
is "the status of what pkill ended" "$rc" 143
