# shellcheck shell=sh disable=SC2154,SC2164
version "$(zip -v | sed -n 2p)"
mkdir in && seq 20000 >in/numbers && printf 'x' >"in/a name"
zip -q -r out.zip in
[ "$(wc -c <out.zip)" -lt "$(wc -c <in/numbers)" ] || fail "zip did not make it smaller"
is "the archive's first bytes" "$(head -c 4 out.zip | od -An -tx1 | tr -d ' ')" 504b0304
