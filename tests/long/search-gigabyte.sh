#!/bin/sh
# search-gigabyte.sh: a file of one line of a gigabyte, beside others, through the agent that ships. The others are
# searched, the line is reported as too long (or searched where only files count), and the agent stays within its
# memory. About a minute.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d "${TMPDIR:-/dev/shm}/bellhop-gigabyte-XXXXXX")
agent=
clean_up()
{
    [ -z "$agent" ] || kill "$agent" 2>/dev/null || true
    rm -rf "$dir"
}
trap clean_up EXIT

mkdir "$dir/tree"
{
    printf 'needle'
    head -c 1073741824 /dev/zero | tr '\0' a
    printf 'needle'
} >"$dir/tree/big"
echo 'a needle' >"$dir/tree/small"
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/token"
chmod 600 "$dir/token"
mkfifo "$dir/ready"
"$top/build/release/bellhopd" --unix "$dir/sock" --token-file "$dir/token" --ready-fd 3 \
    3>"$dir/ready" >"$dir/log" 2>&1 &
agent=$!
read -r _ <"$dir/ready"

passed=0
failed=0
# check NAME FIELDS JQ-FILTER WANTED: the filter's output for all messages of a Grep for "needle" is WANTED
check()
{
    start=$(date +%s%N)
    got=$(curl -sS --max-time 300 --unix-socket "$dir/sock" -H "Authorization: Bearer $(cat "$dir/token")" \
        -H 'Content-Type: application/json' \
        --data-binary "{\"pattern\":\"needle\",\"path\":\"$dir/tree\",\"sort\":\"path\"$2}" \
        http://box/bellhop.v1.Search/Grep | jq -sc "$3")
    peak=$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$agent/status")
    echo "$1: $((($(date +%s%N) - start) / 1000000)) ms, the agent's most memory $peak MB"
    if [ "$got" = "$4" ] && [ "$peak" -lt 400 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "wrong: $1: $got, not $4"
    fi
}

end='[[.[].match.path // empty|sub(".*/"; "")],[.[].end.incomplete // []|.[]|(.path|sub(".*/"; "")) + " " + .error]]'
long='["big has a line of more than 67108864 bytes"]'
check "a line too long is told of" '' "$end" "[[\"small\"],$long]"
check "in whole lines" ',"line":true' "$end" "[[],$long]"
check "inverted" ',"invert":true' "$end" "[[],$long]"
check "counted" ',"mode":"count"' "$end" "[[\"small\"],$long]"
check "with context" ',"context":3' "$end" "[[\"small\"],$long]"
check "without regard to binary" ',"binary":"text"' "$end" "[[\"small\"],$long]"
check "over several lines" ',"multiline":true' "$end" '[["small"],["big larger than 133169152 bytes"]]'
check "left out for its size" ',"max_filesize":1000000' "$end" '[["small"],[]]'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
