# shellcheck shell=sh disable=SC2154,SC2164
version "$(jq --version)"
printf '{"a":[3,1,2],"b":"\\u00e4\\n"}' >in.json
is "jq's sort" "$(jq -c '.a | sort | map(. * 2)' in.json)" "[2,4,6]"
is "jq's string" "$(jq -r '.b' in.json | od -An -tx1 | tr -d ' \n')" c3a40a0a
! jq . /dev/null/no 2>/dev/null || fail "jq did not fail"
