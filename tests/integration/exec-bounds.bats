#!/usr/bin/env bats
# The bounds of the Exec service, exceeded: concurrent commands, kept results, kept and spilled output, arguments,
# and the influence of one reader on another.
# early

load ../lib/agent

setup() { jobs_of_test=(); }
teardown() { stop_agents; }

rpc_file() { agent_curl "/bellhop.v1.$1" -H 'Content-Type: application/json' --data-binary "@$2"; }
is_running() { rpc Exec/Get "{\"id\":\"$1\"}" | jq -e '.state == "running"'; }
is_forgotten() { rpc Exec/Get "{\"id\":\"$1\"}" | jq -e '.code == "not_found" and (.message | test("forgotten"))'; }

@test "exec a thousand and twenty-four commands run at the same time, and each past them is refused at once" {
    [ "$(ulimit -Hn)" -ge 8000 ] || skip "needs 8,000 descriptors"
    start_agent --max-connections 3000
    python3 "$BATS_TEST_DIRNAME/../lib/exec_many.py" "$AGENT_SOCKET" "$AGENT_TOKEN" "$AGENT_DIR" 1044 1024 >"$AGENT_DIR/many"
    cat "$AGENT_DIR/many"
    jq -e '.at_once == 1024 and .good == 1024 and .refused == 20 and .late == "resource_exhausted" and .late_ms < 2000' "$AGENT_DIR/many"
    rpc Exec/Run '{"argv":["true"]}' | jq -e '.exit.code == 0'
}

@test "exec results are forgotten by time and by number, and an id that never was is not called forgotten" {
    start_agent --keep-results 4s --max-results 2
    for id in a b c; do rpc Exec/Run "{\"id\":\"$id\",\"argv\":[\"true\"]}" >/dev/null; done
    is_forgotten a
    rpc Exec/Get '{"id":"c"}' | jq -e '.state == "ended"'
    wait_until 5 is_forgotten c
    for method in Get Read Attach Wait Write CloseStdin Forget; do
        rpc Exec/$method '{"id":"c","data":{"text":""}}' | jq -se '.[0] | (.error // .) | .code == "not_found" or .field == "data"'
    done
    rpc Exec/Get '{"id":"never"}' | jq -e '.code == "not_found" and (.message | test("forgotten") | not)'
    rpc Exec/Run '{"id":"c","argv":["true"]}' | jq -e '.exit.code == 0'
}

holds_less_than_mb() { [ "$(awk '/^VmRSS/ {print $2}' "/proc/$AGENT_PID/status")" -lt $(($1 * 1024)) ]; }

# The request may have the maximum size; its summary in a list is bounded.
@test "exec what a kept result shows of its request is its beginning, and the rest is not held" {
    start_agent
    jq -n '{shell: ("# é\n" + "x=" + "é" * 4000000 + "\nexit 3")}' >"$AGENT_DIR/script"
    jq -n '{argv: (["true", "two"] + [range(15) | "a" * 100000]), env: {E: ("e" * 100000)}, stdin: {text: ("i" * 1000000)}}' >"$AGENT_DIR/words"
    for _ in 1 2 3 4; do
        rpc_file Exec/Run "$AGENT_DIR/script" | jq -e '.exit.code == 3'
        rpc_file Exec/Run "$AGENT_DIR/words" | jq -e '.exit.code == 0'
    done
    rpc Exec/List '{}' >"$AGENT_DIR/list"
    jq -e '.commands | length == 8' "$AGENT_DIR/list"
    jq -e '.commands[0] | .shell and .script.bytes == 8000014 and (.script.text | startswith("# é\nx=é")) and (.script.text | utf8bytelength | . > 1020 and . <= 1024)' "$AGENT_DIR/list"
    jq -e '.commands[1] | .argv == ["true", "two"] and .argv_omitted == {"arguments": 15, "bytes": 1500000}' "$AGENT_DIR/list"
    wait_until 60 holds_less_than_mb 24 # the requests are 39
    rpc Exec/Run '{"id":"small","argv":["sh","-c","exit 0","é"]}' >/dev/null
    rpc Exec/Get '{"id":"small"}' | jq -e '.argv == ["sh","-c","exit 0","é"] and (has("argv_omitted") | not)'
    rpc Exec/Run '{"id":"bytes","shell":{"b64":"ZXhpdCAw/w=="}}' >/dev/null
    rpc Exec/Get '{"id":"bytes"}' | jq -e '.script == {"b64":"ZXhpdCAw/w==","bytes":7}'
}

# Seventeen such requests exceed the bound on the bodies of all concurrent requests.
@test "exec what a large request has brought is not held while its reply goes on" {
    local i pids=()

    start_agent
    python3 -c 'print("{\"shell\":\"cat >/dev/null; echo all is in; exec sleep 600\",\"stdin\":{\"text\":\"" + "x" * 16500000 + "\"}}")' \
        >"$AGENT_DIR/request"
    for i in {1..17}; do
        curl -sSN --max-time 300 -H "Authorization: Bearer $AGENT_TOKEN" -H 'Content-Type: application/json' \
            --data-binary "@$AGENT_DIR/request" "$AGENT_URL/bellhop.v1.Exec/Start" >"$AGENT_DIR/out.$i" 3>&- &
        pids+=($!)
        wait_until 60 grep -q -e 'all is in' -e '"code"' "$AGENT_DIR/out.$i"
        grep -q 'all is in' "$AGENT_DIR/out.$i"
    done
    kill "${pids[@]}"
    wait "${pids[@]}" || true
}

@test "exec two gigabytes of output leave 64 KiB of it, an exact count, and an agent below 16 MB" {
    start_agent
    rpc Exec/Run '{"shell":"yes | head -c 2000000000","output":{"head_bytes":32768,"tail_bytes":32768}}' >"$AGENT_DIR/reply"
    jq -e '.exit.code == 0 and .stdout.bytes == 2000000000 and .stdout.dropped_bytes == 2000000000 - 65536' "$AGENT_DIR/reply"
    jq -j '.stdout.text + .stdout.tail.text' "$AGENT_DIR/reply" | cmp - <(yes | head -c 65536)
    # The peak, not the present value.
    peak=$(awk '/^VmHWM/ { print $2 }' "/proc/$AGENT_PID/status")
    [ "$peak" -lt 16384 ] || fail "$peak KiB"
}

# For comparison: sandbox-agent, which does the same work, is a program of 24.6 MB and uses 15.6 MB of memory.
@test "an idle agent needs less than 4 MB of memory, and its bounds are options" {
    start_agent --max-commands 2 --max-connections 50 --keep-results 1m --max-results 5 --output-memory 1M --spill-disk 1M
    rpc Exec/Run '{"argv":["true"]}' | jq -e '.exit.code == 0'
    wait_until 60 holds_less_than_mb 4
    for id in one two; do
        ask_and_leave Exec/Start "{\"id\":\"$id\",\"argv\":[\"sleep\",\"600\"]}" "$AGENT_DIR/$id" is_running "$id"
    done
    rpc Exec/Run '{"argv":["true"]}' | jq -e '.code == "resource_exhausted"'
}

@test "exec options of the bounds are refused outside their range" {
    for option in --keep-results=1ms --keep-results=8d --max-results=0 --max-commands=0 --output-memory=1K --spill-disk=x; do
        run "$BELLHOPD" --listen 127.0.0.1:0 --auth=open "$option"
        [ "$status" -eq 2 ] || fail "$option: $output"
        [[ "$output" == *"${option%%=*}"* ]] || fail "not named: $output"
    done
}

@test "exec output of all commands stays within one budget, the oldest results give theirs first" {
    start_agent --output-memory 2M
    for i in 1 2 3 4; do
        rpc Exec/Run "{\"id\":\"o$i\",\"shell\":\"head -c 700000 /dev/zero\"}" -o /dev/null
    done
    rpc Exec/Get '{"id":"o1"}' | jq -e '.stdout | .bytes == 700000 and .dropped_bytes == 700000'
    rpc Exec/Read '{"id":"o1"}' | jq -e '.code == "data_loss" and .detail.first_held == 700000'
    rpc Exec/Get '{"id":"o4"}' | jq -e '.stdout.dropped_bytes == 0'
    agent_curl /v1/metrics | awk '/^bellhop_output_bytes_kept / { found = 1; if ($2 > 2097152) exit 1 } END { exit !found }'
}

@test "exec spilled output is read back whole, and its bound and a full disk are said" {
    start_agent
    rpc Exec/Run '{"id":"s","shell":"seq 1000000; seq 9 >&2","output":{"head_bytes":100,"tail_bytes":100,"spill_bytes":100000000}}' |
        jq -e '.stdout | .bytes == 6888896 and .dropped_bytes == 0 and .spilled_bytes == 6888796 and (.text | length == 100) and (.tail.text | endswith("1000000\n"))'
    rpc Exec/Attach '{"id":"s"}' | jq -j 'select(.data.stream == "stdout").data.text' | cmp - <(seq 1000000)
    rpc Exec/Read '{"id":"s","offset":3000000,"max_bytes":700}' | jq -j .text | cmp - <(seq 1000000 | tail -c +3000001 | head -c 700)
    rpc Exec/Run '{"id":"b","shell":"seq 1000000","output":{"head_bytes":100,"tail_bytes":100,"spill_bytes":5000}}' |
        jq -e '.stdout | .spilled_bytes == 5000 and .dropped_bytes == 6888896 - 5200 and (has("spill_error") | not)'
    rpc Exec/Read '{"id":"b","offset":5100}' | jq -e '.code == "data_loss" and .detail.first_held == 6888796'
    rpc Exec/Run '{"argv":["true"],"output":{"spill_bytes":17179869185}}' | jq -e '.code == "invalid_argument" and .field == "output.spill_bytes"'
    [ -z "$(find "/proc/$AGENT_PID/fd" -lname '*bellhop-spill*' ! -lname '*(deleted)')" ]
}

@test "exec spilling to a full disk ends there, and the command goes on" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    mount -t tmpfs -o size=4m tmpfs "$BATS_TEST_TMPDIR" || skip "can't mount here"
    start_agent --spill-dir "$BATS_TEST_TMPDIR"
    rpc Exec/Run '{"shell":"seq 2000000; echo end >&2","output":{"head_bytes":100,"tail_bytes":100,"spill_bytes":100000000}}' >"$AGENT_DIR/reply"
    stop_agents_later=1
    jq -e '.exit.code == 0 and .stderr.text == "end\n" and (.stdout | .spilled_bytes > 3000000 and .spilled_bytes <= 4194304
        and .dropped_bytes == .bytes - .spilled_bytes - 200 and (.spill_error | test("no space"; "i")))' "$AGENT_DIR/reply"
    stop_agents
    umount "$BATS_TEST_TMPDIR"
}

@test "exec arguments and environment past the kernel's bounds are typed errors that name the element" {
    local long

    start_agent
    long=$(head -c 131072 /dev/zero | tr '\0' x)
    for row in 'argv[1]|{"argv":["true","LONG"]}' 'argv[0]|{"argv":["LONG"]}' 'env.BIG|{"argv":["true"],"env":{"BIG":"LONG"}}'; do
        row=${row//LONG/$long}
        printf '%s' "${row#*|}" >"$AGENT_DIR/request"
        rpc_file Exec/Run "$AGENT_DIR/request" | jq -e --arg f "${row%%|*}" '.code == "invalid_argument" and .field == $f' ||
            fail "not refused: ${row%%|*}"
    done
    # Each argument is short enough; together they exceed a quarter of the stack limit.
    jq -n --arg a "${long:0:100000}" '{argv: (["true"] + [range(100) | $a])}' >"$AGENT_DIR/request"
    rpc_file Exec/Run "$AGENT_DIR/request" | jq -e '.code == "invalid_argument" and .field == "argv" and (.message | test("together"))'
    rpc Exec/Run '{"argv":["true","a\u0000b"]}' | jq -e '.code == "invalid_argument" and (.field | startswith("argv"))'
}

@test "exec a slow reader slows neither the command nor another reader" {
    start_agent
    rpc Exec/Start '{"id":"f","shell":"read -r line; seq 3000000; echo done >&2","stdin_open":true}' >"$AGENT_DIR/fast" &
    jobs_of_test+=($!)
    wait_until 5 is_running f
    curl -sSN --limit-rate 20k -H "Authorization: Bearer $AGENT_TOKEN" -H 'Content-Type: application/json' \
        -d '{"id":"f"}' "$AGENT_URL/bellhop.v1.Exec/Attach" >"$AGENT_DIR/slow" 2>/dev/null &
    jobs_of_test+=($!)
    wait_until 5 grep -q start "$AGENT_DIR/slow"
    rpc Exec/Write '{"id":"f","data":{"text":"go\n"}}' -o /dev/null
    rpc Exec/Wait '{"id":"f","timeout_ms":60000}' | jq -e '.exit.code == 0'
    wait "${jobs_of_test[0]}"
    jq -se '.[-1].end.exit.code == 0 and any(.[]; .data.text == "done\n")' "$AGENT_DIR/fast"
    kill "${jobs_of_test[1]}" || fail "the slow reader has had everything"
    wait "${jobs_of_test[1]}" || true
}

# tests/long/exec-gigabyte.sh does the same with a gigabyte.
@test "exec a long stdin goes through cat exactly, and a piece written twice is there once" {
    start_agent
    CURL_MAX_S=900 rpc Exec/Start '{"id":"g","shell":"cat | sha256sum","stdin_open":true}' >"$AGENT_DIR/stream" &
    jobs_of_test+=($!)
    wait_until 5 is_running g
    python3 "$BATS_TEST_DIRNAME/../lib/exec_feed.py" "$AGENT_SOCKET" "$AGENT_TOKEN" g "${EXEC_FEED_BYTES:-50331648}" >"$AGENT_DIR/want"
    wait "${jobs_of_test[@]}"
    [ "$(jq -rs 'map(select(.data).data.text) | add' "$AGENT_DIR/stream")" = "$(cat "$AGENT_DIR/want")  -" ]
    [ "$(awk '/^VmHWM:/ { print $2 }' "/proc/$AGENT_PID/status")" -lt 200000 ]
}
