#!/usr/bin/env bats
# The Exec service through HTTP, as any client sees it.
# early

load ../lib/agent

setup()
{
    start_agent
    jobs_of_test=() # `wait` alone would wait for the agent as well
    # The last digits of the lengths of this test's sleeps, by which they are found: the same tests may run in a box.
    N=$SRANDOM
}
teardown() { stop_agents; }

# A request too long for a command line.
rpc_file() { agent_curl "/bellhop.v1.$1" -H 'Content-Type: application/json' --data-binary "@$2"; }

is_running() { rpc Exec/Get "{\"id\":\"$1\"}" | jq -e '.state == "running"'; }
has_late_output() { rpc Exec/Read '{"id":"late","offset":6}' | jq -e '.text == "late\n"'; }

# check_run JSON FILTER EXPECTED: a Run's reply through jq
check_run()
{
    local got

    got=$(rpc Exec/Run "$1" | jq -c "$2")
    [ "$got" = "$3" ] || fail "got $got, expected $3"
}

@test "exec run gives output, code and usage" {
    check_run '{"argv":["sh","-c","echo out; echo err >&2; exit 3"]}' \
        '[.exit.reason, .exit.code, .exit.signal, .exit.oom, .exit.tree, .stdout.text, .stderr.text]' \
        '["exited",3,null,false,"gone","out\n","err\n"]'
    check_run '{"shell":"exec true"}' \
        '[.usage | .wall_ms, .user_ms, .system_ms, .max_rss_bytes] | map(type) | unique' '["number"]'
    check_run '{"argv":["true"]}' '.usage.max_rss_bytes > 100000' true
}

@test "exec errors name the field" {
    local big

    rpc Exec/Run '{"argv":["no-such-program"]}' | jq -e '.code == "not_found" and .field == "argv[0]"'
    rpc Exec/Run '{"argv":["/etc/passwd"]}' | jq -e '.code == "permission_denied" and .field == "argv[0]"'
    rpc Exec/Run '{"argv":["true"],"cwd":"/no/such"}' | jq -e '.code == "not_found" and .field == "cwd"'
    rpc Exec/Run '{"argv":["true"],"user":"nobody-at-all"}' | jq -e '.code == "not_found" and .field == "user"'
    rpc Exec/Run '{"argv":[]}' | jq -e '.code == "invalid_argument" and .field == "argv"'
    rpc Exec/Run '{}' | jq -e '.code == "invalid_argument" and .field == "argv"'
    rpc Exec/Run '{"argv":["a"],"shell":"b"}' | jq -e '.field == "shell"'
    rpc Exec/Run '{"argv":["true"],"envv":{}}' | jq -e '.field == "envv"'
    rpc Exec/Run '{"argv":["true"],"argv":["true"]}' | jq -e '.code == "invalid_argument" and .field == "argv"'
    rpc Exec/Run '{"argv":["true"],"limits":{"pids":1,"pids":2}}' | jq -e '.field == "pids" and (.message | test("twice"))'
    rpc Exec/Run '{"argv":["true"],"timeout_ms":9223372036854775808}' | jq -e '.message | test("too large")'
    rpc Exec/Run '{"argv":["true"],"env":{"A=B":"c"}}' | jq -e '.field == "env.A=B"'
    rpc Exec/Run '{"argv":["true"],"umask":"9"}' | jq -e '.field == "umask"'
    rpc Exec/Run '{"argv":["true"],"id":"a b"}' | jq -e '.field == "id"'
    rpc Exec/Run '{"argv":["true"],"pty":{"cols":0}}' | jq -e '.field == "pty.cols"'
    rpc Exec/Get '{"id":"nothing"}' | jq -e '.code == "not_found" and .field == "id"'
    big=$(head -c 131072 /dev/zero | tr '\0' x)
    printf '{"argv":["true","a","%s"]}' "$big" >"$AGENT_DIR/big.json"
    rpc_file Exec/Run "$AGENT_DIR/big.json" | jq -e '.code == "invalid_argument" and .field == "argv[2]"'
    printf '{"argv":["true","a","%s"]}' "${big:1}" >"$AGENT_DIR/big.json"
    rpc_file Exec/Run "$AGENT_DIR/big.json" | jq -e '.exit.code == 0'
}

@test "exec timeout takes the whole tree within the time plus the grace" {
    check_run "{\"shell\":\"sleep 7177.$N & setsid sleep 7178.$N & trap '' TERM; sleep 7179.$N; sleep 7179.$N\",\"timeout_ms\":500,\"kill_grace_ms\":300}" \
        '[.exit.reason, .exit.tree != "left", .usage.wall_ms >= 500, .usage.wall_ms < 2500]' '["timeout",true,true,true]'
    wait_until 10 none_of "sleep 717[789].$N"
}

@test "exec setsid grandchild with an empty environment dies with the timeout" {
    rpc Exec/Run "{\"shell\":\"env -i setsid sh -c 'sleep 7277.$N & exec sleep 7278.$N' & sleep 7279.$N\",\"timeout_ms\":300,\"kill_grace_ms\":0}" |
        jq -e '.exit.reason == "timeout"'
    wait_until 10 none_of "sleep 727[789].$N"
}

@test "exec returns at once when a background child holds the pipe" {
    # The file exists when the call has returned.
    check_run '{"id":"bg","shell":"sleep 600 & echo done"}' '[.stdout.text, .exit.tree]' '["done\n","left"]'
    pgrep -fx 'sleep 600' -s "$(rpc Exec/Get '{"id":"bg"}' | jq .pid)"
    rpc Exec/Signal '{"id":"bg","signal":"KILL","tree":true}' | jq -e '.id == "bg"'
}

@test "exec kill_on_exit ends what is left" {
    check_run "{\"shell\":\"sleep 7377.$N & echo done\",\"kill_on_exit\":true}" \
        '[.exit.reason, .exit.code, .exit.tree != "left", .stdout.text]' '["exited",0,true,"done\n"]'
    wait_until 10 none_of "sleep 7377.$N"
}

@test "exec wait_for eof waits for the grandchild" {
    check_run '{"shell":"(sleep 0.4; echo late) & echo early","wait_for":"eof"}' '.stdout.text' '"early\nlate\n"'
}

@test "exec keeps what a grandchild writes after the end" {
    rpc Exec/Run "$(jq -nc --arg go "$AGENT_DIR/go" '{id: "late", shell: "(until [ -e \($go) ]; do sleep 0.05; done; echo late) & echo early"}')" |
        jq -e '.stdout.text == "early\n"'
    touch "$AGENT_DIR/go"
    wait_until 5 has_late_output
}

@test "exec binary output is exact" {
    rpc Exec/Run '{"shell":"head -c 300000 /dev/urandom | tee '"$AGENT_DIR"'/want"}' |
        jq -r .stdout.b64 | base64 -d >"$AGENT_DIR/got"
    cmp "$AGENT_DIR/got" "$AGENT_DIR/want"
    check_run '{"shell":"printf \"a\\0b\""}' '.stdout' '{"bytes":3,"dropped_bytes":0,"text":"a\u0000b"}'
}

@test "exec runs a script of two megabytes" {
    {
        printf '{"shell":"'
        head -c 2000000 /dev/zero | tr '\0' '#'
        printf '\\necho $((40 + 2)); cd /proc/self/fd; echo *"}'
    } >"$AGENT_DIR/script.json"
    rpc_file Exec/Run "$AGENT_DIR/script.json" | jq -e '.stdout.text | startswith("42\n0 1 2 ")'
}

@test "exec runs a script by the interpreter that its first line names, with the argument as one word" {
    rpc Exec/Run "$(jq -nc '{shell: "#!/usr/bin/env perl\nprint 6 * 7, qq(\\n);"}')" | jq -e '.stdout.text == "42\n"'
    rpc Exec/Run "$(jq -nc '{shell: "#! /bin/echo  one  and two \t\nnothing"}')" |
        jq -e '.stdout.text | test("^one  and two /[^ ]+\n$")'
    # of any length, with any bytes, and with stdin
    jq -nc '{shell: {b64: ("#!/bin/cat\n" + ("x" * 200000) + "\u0000" | @base64)}, stdin: {text: "no"}}' >"$AGENT_DIR/long.json"
    rpc_file Exec/Run "$AGENT_DIR/long.json" | jq -e '.stdout.bytes == 200012'
    rpc Exec/Run "$(jq -nc '{shell: "#!/usr/bin/perl\nprint while <STDIN>", stdin: {text: "input"}}')" |
        jq -e '.stdout.text == "input"'
    check_run "$(jq -nc '{shell: "#!/bin/sh -e\nfalse\necho not reached"}')" '[.exit.code, .stdout.text]' '[1,""]'
    # without an interpreter: for the shell
    check_run '{"shell":"#! \necho ${BASH_VERSION:+bash}"}' .stdout.text '"bash\n"'
    check_run '{"shell":"# !/bin/cat\necho shell"}' .stdout.text '"shell\n"'
}

@test "exec an interpreter that is not there is named, and its script's file is gone with the command" {
    rpc Exec/Run "$(jq -nc '{shell: "#!/no/such/thing -x\n"}')" |
        jq -e '.code == "not_found" and .field == "shell" and (.message | test("/no/such/thing"))'
    rpc Exec/Run "$(jq -nc '{shell: ("#!/" + "x" * 5000)}')" | jq -e '.code == "invalid_argument" and .field == "shell"'
    file=$(rpc Exec/Run "$(jq -nc '{shell: "#!/bin/ls -l\n"}')" | jq -r .stdout.text)
    [[ "$file" == -rwx------*/bellhop-script-* ]] || fail "$file"
    [ ! -e "/${file#*/}" ]
    # Tests that run beside this one have files of their own there.
    ! grep -lsE '^#!/(no/such/thing|bin/ls) -' /tmp/bellhop-script-* || fail "left behind"
}

@test "exec output past the bound keeps head and tail and counts the rest" {
    check_run '{"shell":"printf head; head -c 5000000 /dev/zero | tr \"\\0\" x; printf tail","output":{"head_bytes":1000,"tail_bytes":100}}' \
        '.stdout | [.bytes, .dropped_bytes, (.text | length), (.tail.text | length), .text[0:5], .tail.text[-5:]]' \
        '[5000008,4998908,1000,100,"headx","xtail"]'
}

@test "exec same id attaches, another request is refused, and a result can be read again" {
    check_run '{"id":"one","shell":"echo $$"}' '.exit.code' 0
    [ "$(rpc Exec/Run '{"id":"one","shell":"echo $$"}' | jq .stdout.text)" = \
        "$(rpc Exec/Get '{"id":"one","output":true}' | jq .stdout.text)" ]
    rpc Exec/Run '{"id":"one","shell":"echo 2"}' | jq -e '.code == "already_exists" and .field == "id"'
    [ "$(rpc_status Exec/Run '{"id":"one","shell":"echo 2"}')" = 409 ]
    rpc Exec/Forget '{"id":"one"}' | jq -e '.id == "one"'
    rpc Exec/Get '{"id":"one"}' | jq -e '.code == "not_found" and (.message | test("forgotten"))'
}

@test "exec failed start leaves the id free" {
    rpc Exec/Run '{"id":"f","argv":["no-such-program"]}' | jq -e '.code == "not_found"'
    check_run '{"id":"f","argv":["true"]}' '.exit.code' 0
}

@test "exec start streams, and attach goes on from an offset after a drop" {
    rpc Exec/Start '{"id":"s","shell":"echo one; echo é >&2; sleep 0.2; echo two"}' >"$AGENT_DIR/stream"
    jq -se '.[0].start.id == "s" and (.[-1].end.exit.code == 0)' "$AGENT_DIR/stream"
    [ "$(jq -rs 'map(select(.data.stream == "stdout").data.text) | add' "$AGENT_DIR/stream")" = "one
two" ]
    jq -se 'map(select(.data.stream == "stderr").data.text) | add == "é\n"' "$AGENT_DIR/stream"

    ask_and_leave Exec/Start '{"id":"d","shell":"echo one; sleep 1; echo two"}' "$AGENT_DIR/cut" grep -q one "$AGENT_DIR/cut"
    rpc Exec/Attach '{"id":"d","stdout_offset":4}' |
        jq -se 'map(select(.data).data) | length == 1 and .[0].offset == 4 and .[0].text == "two\n"'
    rpc Exec/Attach '{"id":"d","stdout_offset":99}' | jq -se '.[0] | (.error // .) | .code == "out_of_range" and .field == "stdout_offset"'
}

@test "exec read and attach of what is gone is data_loss with the first offset held" {
    rpc Exec/Run '{"id":"g","shell":"head -c 5000 /dev/zero","output":{"head_bytes":10,"tail_bytes":10}}' >/dev/null
    rpc Exec/Read '{"id":"g","offset":10}' | jq -e '.code == "data_loss" and .detail.first_held == 4990'
    rpc Exec/Attach '{"id":"g","stdout_offset":11}' | jq -se '.[0] | (.error // .) | .code == "data_loss" and .detail.first_held == 4990 and .field == "stdout_offset"'
    rpc Exec/Read '{"id":"g","offset":4990}' | jq -e '.next_offset == 5000 and .eof'
}

@test "exec run is canceled when its client goes" {
    ask_and_leave Exec/Run "{\"id\":\"c\",\"shell\":\"sleep 7477.$N\"}" /dev/null is_running c
    rpc Exec/Wait '{"id":"c","timeout_ms":60000}' | jq -e '.exit.reason == "canceled"'
    wait_until 10 none_of "sleep 7477.$N"
}

@test "exec started command survives its client" {
    ask_and_leave Exec/Start '{"id":"l","shell":"read -r line; echo still","stdin_open":true}' /dev/null is_running l
    rpc Exec/Write '{"id":"l","data":{"text":"go on\n"}}' -o /dev/null
    rpc Exec/Wait '{"id":"l","timeout_ms":60000}' | jq -e '.exit.reason == "exited"'
    rpc Exec/Get '{"id":"l","output":true}' | jq -e '.stdout.text == "still\n"'
}

@test "exec wait has a deadline" {
    rpc Exec/Start '{"id":"w","argv":["sleep","7577"]}' >/dev/null &
    jobs_of_test+=($!)
    wait_until 5 is_running w
    rpc Exec/Wait '{"id":"w","timeout_ms":100}' | jq -e '.code == "deadline_exceeded"'
    rpc Exec/Signal '{"id":"w","signal":15}' | jq -e '.id == "w"'
    rpc Exec/Wait '{"id":"w"}' | jq -e '.exit.reason == "signaled" and .exit.signal == "SIGTERM"'
    rpc Exec/Signal '{"id":"w","signal":"SIGTERM"}' | jq -e '.code == "failed_precondition"'
    rpc Exec/Signal '{"id":"w","signal":"SIGNOPE"}' | jq -e '.code == "invalid_argument" and .field == "signal"'
    wait "${jobs_of_test[@]}"
}

@test "exec each writer to a stdin counts its own bytes, under a name of at most 32 characters" {
    local name=$(printf 'w%.0s' $(seq 32)) wrong

    rpc Exec/Start '{"id":"w","argv":["cat"],"stdin_open":true}' >/dev/null &
    jobs_of_test+=($!)
    wait_until 5 is_running w
    rpc Exec/Write "{\"id\":\"w\",\"writer\":\"$name\",\"offset\":0,\"data\":{\"text\":\"one \"}}" | jq -e '.offset == 4'
    rpc Exec/Write '{"id":"w","writer":"b","offset":0,"data":{"text":"two "}}' | jq -e '.offset == 4'
    rpc Exec/Write "{\"id\":\"w\",\"writer\":\"$name\",\"offset\":0,\"data\":{\"text\":\"one and\"}}" | jq -e '.offset == 7'
    rpc Exec/Write '{"id":"w","writer":"b","offset":5,"data":{"text":"x"}}' | jq -e '.code == "out_of_range" and .field == "offset"'
    for wrong in "w$name" '' 'a b' 'é'; do
        rpc Exec/Write "{\"id\":\"w\",\"writer\":\"$wrong\",\"data\":{\"text\":\"x\"}}" |
            jq -e '.code == "invalid_argument" and .field == "writer"'
    done
    rpc Exec/Write '{"id":"w","writer":"b","between_lines":true,"data":{"text":"x\n"}}' |
        jq -e '.code == "invalid_argument" and .field == "writer"'
    rpc Exec/CloseStdin '{"id":"w"}' | jq -e '.id == "w"'
    rpc Exec/Wait '{"id":"w"}' | jq -e '.exit.code == 0'
    rpc Exec/Get '{"id":"w","output":true}' | jq -e '.stdout.text == "one two and"'
    wait "${jobs_of_test[@]}"
}

@test "exec stdin is written by offset and closed" {
    rpc Exec/Start '{"id":"i","argv":["cat"],"stdin_open":true}' >/dev/null &
    jobs_of_test+=($!)
    wait_until 5 is_running i
    rpc Exec/Write '{"id":"i","offset":0,"data":{"text":"hello "}}' | jq -e '.offset == 6'
    rpc Exec/Write '{"id":"i","offset":0,"data":{"text":"hello "}}' | jq -e '.offset == 6'
    rpc Exec/Write '{"id":"i","offset":4,"data":{"text":"o world"}}' | jq -e '.offset == 11'
    rpc Exec/Write '{"id":"i","offset":50,"data":{"text":"x"}}' | jq -e '.code == "out_of_range" and .field == "offset"'
    rpc Exec/CloseStdin '{"id":"i"}' | jq -e '.id == "i"'
    rpc Exec/Wait '{"id":"i"}' | jq -e '.exit.code == 0'
    rpc Exec/Get '{"id":"i","output":true}' | jq -e '.stdout.text == "hello world"'
    rpc Exec/Write '{"id":"i","data":{"text":"x"}}' | jq -e '.code == "failed_precondition"'
    wait "${jobs_of_test[@]}"
}

@test "exec write to a command that does not read has a deadline" {
    rpc Exec/Start '{"id":"n","argv":["sleep","7677"],"stdin_open":true}' >/dev/null &
    jobs_of_test+=($!)
    head -c 200000 /dev/zero | tr '\0' x | jq -Rs '{id: "n", timeout_ms: 200, data: {text: .}}' >"$AGENT_DIR/data.json"
    wait_until 5 is_running n
    rpc_file Exec/Write "$AGENT_DIR/data.json" | jq -e '.code == "deadline_exceeded"'
    rpc Exec/Signal '{"id":"n","signal":"KILL"}'
    wait "${jobs_of_test[@]}"
}

@test "exec bytes written in several calls go through cat exactly" {
    local i

    head -c 8000000 /dev/urandom >"$AGENT_DIR/piece"
    CURL_MAX_S=120 rpc Exec/Start '{"id":"m","shell":"cat | sha256sum","stdin_open":true}' >"$AGENT_DIR/stream" &
    jobs_of_test+=($!)
    { printf '{"id":"m","data":{"b64":"'; base64 -w0 "$AGENT_DIR/piece"; printf '"}}'; } >"$AGENT_DIR/piece.json"
    wait_until 5 is_running m
    for i in 1 2 3; do
        rpc_file Exec/Write "$AGENT_DIR/piece.json" | jq -e ".offset == $((i * 8000000))"
    done
    rpc Exec/CloseStdin '{"id":"m"}'
    wait "${jobs_of_test[@]}"
    [ "$(jq -rs 'map(select(.data).data.text) | add' "$AGENT_DIR/stream")" = \
        "$(for i in 1 2 3; do cat "$AGENT_DIR/piece"; done | sha256sum)" ]
}

@test "exec lossless stream has every byte" {
    rpc Exec/Start '{"shell":"seq 4000000","lossless":true}' --limit-rate 20M |
        jq -j 'select(.data).data.text' | cmp - <(seq 4000000)
}

@test "exec pty has a size, is resized, and several can attach" {
    rpc Exec/Start '{"id":"t","argv":["sh"],"pty":{"cols":91,"rows":22}}' -N >"$AGENT_DIR/stream" &
    jobs_of_test+=($!)
    wait_until 5 is_running t
    rpc Exec/Attach '{"id":"t"}' -N >"$AGENT_DIR/stream2" &
    jobs_of_test+=($!)
    rpc Exec/Write '{"id":"t","data":{"text":"stty size\n"}}' >/dev/null
    wait_until 5 grep -q "22 91" "$AGENT_DIR/stream"
    rpc Exec/Resize '{"id":"t","cols":77,"rows":33}' | jq -e '.id == "t"'
    rpc Exec/Write '{"id":"t","data":{"text":"stty size; exit 5\n"}}' >/dev/null
    rpc Exec/Wait '{"id":"t","timeout_ms":60000}' | jq -e '.exit.code == 5'
    wait "${jobs_of_test[@]}"
    grep -q "33 77" "$AGENT_DIR/stream"
    grep -q "33 77" "$AGENT_DIR/stream2"
    rpc Exec/Resize '{"id":"t","cols":77,"rows":33}' | jq -e '.code == "failed_precondition"'
}

@test "exec a terminal that its command has closed is not hung up, and is there when it opens it again" {
    check_run '{"shell":"exec <&- >&- 2>&-; sleep 0.3; echo again >/dev/tty; exit 5","pty":{}}' \
        '[.exit.reason, .exit.code, .stdout.text]' '["exited",5,"again\r\n"]'
    rpc Exec/Start '{"id":"shut","shell":"exec <&- >&- 2>&-; sleep 0.3; exec 0<>/dev/tty 1>&0; read -r a; echo \"<$a>\"","pty":{}}' \
        >"$AGENT_DIR/stream" &
    jobs_of_test+=($!)
    wait_until 10 is_running shut
    rpc Exec/Write '{"id":"shut","data":{"text":"typed\n"}}' | jq -e '.offset == 6'
    wait "${jobs_of_test[@]}"
    grep -q '<typed>' "$AGENT_DIR/stream"
}

# The initial input of a terminal ends with ^D; inside a line with two.
@test "exec stdin that is given to a terminal has an end" {
    local stdin

    for stdin in 'abc\n' abc '\n' 'two\nlines'; do
        check_run "$(jq -nc --arg to "$AGENT_DIR/got" --arg in "$(printf '%b.' "$stdin")" \
            '{shell: "cat >\($to); exit 4", pty: {}, timeout_ms: 60000, stdin: {text: $in[:-1]}}')" \
            '[.exit.reason, .exit.code]' '["exited",4]'
        cmp "$AGENT_DIR/got" <(printf '%b' "$stdin")
    done
    check_run '{"argv":["head","-c","4"],"pty":{"raw":true},"stdin":{"text":"abcd"}}' '.stdout.text' '"abcd"'
    rpc Exec/Start '{"id":"open","argv":["cat"],"pty":{},"stdin":{"text":"a\n"},"stdin_open":true}' -o /dev/null &
    jobs_of_test+=($!)
    wait_until 10 is_running open
    rpc Exec/Write '{"id":"open","data":{"text":"b\n"}}' | jq -e '.offset == 4'
    rpc Exec/CloseStdin '{"id":"open"}' | jq -e .id
    rpc Exec/Wait '{"id":"open"}' | jq -e '.exit.code == 0'
    rpc Exec/Resize '{"id":"open","cols":0,"rows":1}' | jq -e '.code == "failed_precondition"'
}

@test "exec raw pty passes long lines and every byte" {
    rpc Exec/Start '{"id":"r","shell":"head -c 20256 | sha256sum","pty":{"raw":true}}' >"$AGENT_DIR/stream" &
    jobs_of_test+=($!)
    { head -c 20000 /dev/zero | tr '\0' x; for i in $(seq 0 255); do printf "\\x$(printf %02x "$i")"; done; } >"$AGENT_DIR/bytes"
    wait_until 5 is_running r
    jq -n --arg b "$(base64 -w0 "$AGENT_DIR/bytes")" '{id: "r", data: {b64: $b}}' >"$AGENT_DIR/bytes.json"
    rpc_file Exec/Write "$AGENT_DIR/bytes.json" | jq -e '.offset == 20256'
    wait "${jobs_of_test[@]}"
    grep -q "$(sha256sum <"$AGENT_DIR/bytes" | cut -c1-64)" "$AGENT_DIR/stream"
}

@test "exec switches the user with home and groups" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    check_run '{"shell":"id -u; id -g; id -G; echo $HOME $USER $LOGNAME","user":"daemon"}' '.stdout.text' '"1\n1\n1\n/usr/sbin daemon daemon\n"'
    check_run '{"shell":"id -u; id -g","user":"12345:54321"}' '.stdout.text' '"12345\n54321\n"'
}

@test "exec umask and rlimits are set" {
    check_run '{"shell":"umask; ulimit -n; ulimit -Hn","umask":"027","rlimits":{"nofile":123}}' '.stdout.text' '"0027\n123\n123\n"'
}

@test "exec limits are kept or refused by name" {
    rpc Exec/Run '{"argv":["dd","if=/dev/zero","of=/dev/null","bs=300M","count=1"],"limits":{"memory_bytes":33554432}}' |
        jq -e '(.exit.reason == "oom" and .exit.oom == true) or (.code == "unimplemented" and .field == "limits.memory_bytes")'
    rpc Exec/Run '{"argv":["true"],"limits":{"cpu_millis":500,"pids":10}}' |
        jq -e '.exit.code == 0 or (.code == "unimplemented" and .field == "limits.pids")'
}

@test "exec environment is exactly what was asked" {
    check_run '{"argv":["env","-0"],"env":{"A":"1 2","EMPTY":""}}' '.stdout.text | split("\u0000") | map(split("=")[0]) | sort' \
        '[null,"A","EMPTY","HOME","LOGNAME","PATH","USER"]'
    rpc Exec/Run '{"argv":["env"]}' | jq -e '.stdout.text | contains("'"$AGENT_TOKEN"'") | not'
}

@test "exec signals are named" {
    check_run '{"shell":"kill -SEGV $$"}' '[.exit.reason, .exit.signal, .exit.code]' '["signaled","SIGSEGV",null]'
}

@test "exec a SIGKILL from nobody known is not called anything else" {
    rpc Exec/Run '{"shell":"kill -9 $$"}' |
        jq -e '.exit.reason == "signaled" and (.exit.oom == "unknown" or .exit.oom == false)'
}

@test "exec a thousand commands at once each have their own output" {
    seq 1000 | awk -v url="$AGENT_URL" -v token="$AGENT_TOKEN" -v dir="$AGENT_DIR" '{
        if (NR > 1) print "next"
        printf "url = \"%s/bellhop.v1.Exec/Run\"\nheader = \"Authorization: Bearer %s\"\n", url, token
        printf "header = \"Content-Type: application/json\"\noutput = \"%s/out.%d\"\n", dir, $1
        printf "data = \"{\\\"shell\\\":\\\"echo %d; exit %d\\\"}\"\n", $1, $1 % 200 }' >"$AGENT_DIR/curl"
    curl -sS --parallel --parallel-max 200 --parallel-immediate -K "$AGENT_DIR/curl"
    seq -f "$AGENT_DIR/out.%g" 1000 | xargs jq -c . >"$AGENT_DIR/all"
    jq -e -s 'length == 1000 and ([range(1000)] as $n | . as $all | all($n[]; . as $k | $all[$k] |
        .stdout.text == "\($k + 1)\n" and .exit.code == (($k + 1) % 200)))' "$AGENT_DIR/all"
}

@test "exec leaves no zombie, no descriptor and no process behind" {
    local before

    rpc Exec/Run '{"shell":"true"}' >/dev/null
    before=$(n_fds)
    for _ in $(seq 20); do
        rpc Exec/Run '{"shell":"(sleep 0.05 >/dev/null 2>&1 &); (true &); true"}' >/dev/null
    done
    wait_until 5 sh -c "! ps -o stat= --ppid $AGENT_PID | grep ."
    fds_are_back() { [ "$(n_fds)" -le "$before" ]; }
    wait_until 5 fds_are_back
}

@test "exec child cannot read the token" {
    local what

    for what in environ mem cmdline maps; do
        rpc Exec/Run '{"shell":"cat /proc/$PPID/'$what' 2>/dev/null | tr -d \"\\0\" | grep -c -a -F '"$AGENT_TOKEN"' || true"}' |
            jq -e '.stdout.text == "0\n"'
    done
    rpc Exec/Run '{"shell":"ls /proc/$PPID/fd >/dev/null && cat /proc/$PPID/fd/* 2>/dev/null </dev/null | head -c 100000 | grep -c -a -F '"$AGENT_TOKEN"' || true","user":"daemon"}' |
        jq -e '.stdout.text == "0\n" or .stdout.text == ""'
}

@test "exec list shows commands with their state" {
    rpc Exec/Run '{"id":"x","argv":["echo","hi"]}' >/dev/null
    rpc Exec/List '{}' | jq -e '.commands | length == 1 and (.[0] | .id == "x" and .state == "ended" and .argv == ["echo","hi"]
        and .exit.code == 0 and (.started | test("^20")) and .stdout.bytes == 3)'
}
