# shellcheck shell=sh disable=SC2154,SC2164
version "$(curl --version)"
start_server
seq 20000 >numbers
curl -fsS -T numbers "$url/v1/files$here/sent" >/dev/null
curl -fsS -o got "$url/v1/files$here/sent"
cmp numbers got || fail "what came back is not what was sent"
is "a range of bytes" "$(curl -fsS -r 2-5 "$url/v1/files$here/sent" | od -An -tx1 | tr -d ' ')" 320a330a
rc=0
curl -fsS "$url/v1/files$here/nothing" 2>/dev/null || rc=$?
is "curl's status for what is not there" "$rc" 22
