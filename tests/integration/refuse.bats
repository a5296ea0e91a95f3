#!/usr/bin/env bats
# A refusal during the body reaches common clients as its status, not as a broken connection: 401 and 413 at the
# head or later, 507 in the middle; bodies of 1 KB, 1 MB and 100 MB; with and without a declared length. The next
# request is answered as well.
# early

load ../lib/agent
load ../lib/node
load ../lib/venv

REPEAT=${REPEAT:-20} # of the small ones; of 100 MB the tenth, or REPEAT_LARGE
export REPEAT_LARGE=${REPEAT_LARGE:-$(((REPEAT + 9) / 10))}

setup()
{
    start_agent --workdir /
    mkdir "$AGENT_DIR/tiny"
}

teardown()
{
    umount "$AGENT_DIR/tiny" 2>/dev/null || true
    stop_agents
}

small_disk() { mount -t tmpfs -o size=4m none "$AGENT_DIR/tiny" || skip "mounts are not allowed here"; }

by_node() { node_client "$BATS_TEST_DIRNAME/refuse.mjs" "$AGENT_URL" "$AGENT_TOKEN" "$AGENT_DIR" "$1" "$REPEAT"; }

by_httpx()
{
    local python

    python=$(venv_python httpx 0.28.1) || skip "httpx can't be installed"
    ${WIRE_BIN:+"$WIRE_BIN/launch"} "$python" "$BATS_TEST_DIRNAME/refuse.py" "$AGENT_URL" "$AGENT_TOKEN" "$AGENT_DIR" "$1" "$REPEAT"
}

# by_curl STATUS PATH TOKEN METHOD SIZES...
by_curl()
{
    local want=$1 path=$2 token=$3 method=$4 size encoding expect i n

    shift 4
    for size in "$@"; do
        head -c "$size" /dev/zero >"$AGENT_DIR/body"
        n=$([ "$size" -gt 20000000 ] && echo "$REPEAT_LARGE" || echo "$REPEAT")
        for encoding in identity chunked; do
            for expect in '' 100-continue; do
                for i in $(seq "$n"); do
                    run curl -s -o /dev/null -o /dev/null -w '%{http_code} ' -X "$method" -H "Expect: $expect" \
                        -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
                        $([ "$encoding" = identity ] || echo -H Transfer-Encoding:chunked) \
                        -T "$AGENT_DIR/body" "$AGENT_URL$path" --next -s -o /dev/null -w '%{http_code}' "$AGENT_URL/v1/health"
                    [ "$output" = "$want 200" ] || fail "$size $encoding '$expect' #$i: $output"
                done
            done
        done
    done
}

@test "401 at the head reaches curl" { by_curl 401 "/v1/files/$AGENT_DIR/f" wrong PUT 1000 1000000 100000000; }
@test "413 reaches curl" { by_curl 413 /bellhop.v1.System/Info "$AGENT_TOKEN" POST 17000000 100000000; }
@test "507 in the middle reaches curl" {
    small_disk
    by_curl 507 "/v1/files/$AGENT_DIR/tiny/f" "$AGENT_TOKEN" PUT 100000000
}
@test "401 at the head reaches node's fetch" { by_node head; }
@test "413 reaches node's fetch" { by_node size; }
@test "507 in the middle reaches node's fetch" { small_disk && by_node disk; }
@test "401 at the head reaches httpx" { by_httpx head; }
@test "413 reaches httpx" { by_httpx size; }
@test "507 in the middle reaches httpx" { small_disk && by_httpx disk; }
