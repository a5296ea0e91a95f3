# shellcheck shell=sh disable=SC2154,SC2164
version "$(pi --version 2>&1)"
mkfifo in
timeout 1100 pi --mode rpc --no-session --offline <in >answer 2>log &
pid=$!
trap 'kill "$pid" 2>/dev/null || true; rm -rf "$here"' EXIT
# pi ends at the end of its input: keep that open until the answer is there.
exec 4>in
printf '{"id":"1","type":"get_state"}\n' >&4
until [ -s answer ] || ! kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
done
exec 4>&-
wait "$pid" || true
[ -s answer ] || fail "pi has not answered: $(tail -n 1 log)"
is "pi's answer" "$(jq -c 'select(.id == "1") | [.command, .success]' answer)" '["get_state",true]'
