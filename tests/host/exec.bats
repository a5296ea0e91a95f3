# Commands by their id: start detached, list, attach, wait, kill; and connections that break.

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    box_setup
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
}
teardown()
{
    [ -z "${BREAKER:-}" ] || kill "$BREAKER" 2>/dev/null || true
    box_teardown
}

@test "exec -d prints an id under which ps, attach, wait and kill know the command" {
    bellhop exec one -- mkfifo go
    id=$(bellhop exec -d one -- sh -c 'echo before; echo errors >&2; read -r line <go; echo "$line"; exit 7')
    bellhop ps one | grep -q "^$id	running	.*	sh -c 'echo before"
    [ "$(bellhop ps one --json | jq -r '.commands[0].id')" = "$id" ]
    [ "$(bellhop ps -q one)" = "$id" ]
    bellhop attach one "$id" >"$BOX_TMP/out" 2>"$BOX_TMP/err" 3>&- &
    attached=$!
    wait_for 10 grep -q before "$BOX_TMP/out"
    bellhop exec one -- sh -c 'echo after >go'
    status=0
    wait "$attached" || status=$?
    [ "$status" -eq 7 ]
    [ "$(cat "$BOX_TMP/out")" = "$(printf 'before\nafter')" ]
    [ "$(cat "$BOX_TMP/err")" = errors ]
    run -7 bellhop wait one "$id"
    run -7 bellhop attach one "$id"
    [ -z "$(bellhop ps -q one)" ]
    bellhop ps --all one | grep -q "^$id	exited 7	"
    bellhop exec one -c $'\n  echo "a script"\nexit 3' || true
    bellhop ps --all one | grep -q '	echo "a script" \.\.\.$'
    run -7 --separate-stderr bellhop wait --json one "$id"
    [ "$(jq -r .exit.reason <<<"$output")" = exited ]
    [ "$(jq .stdout.bytes <<<"$output")" -eq 13 ]
}

@test "the end of a command says how it came" {
    for row in "timeout 124 --timeout=100ms:sleep 60" "signaled 137 :kill -9 \$\$" "exited 3 :exit 3"; do
        read -r reason want rest <<<"$row"
        # shellcheck disable=SC2086 # an option or none
        run "-$want" --separate-stderr bellhop exec --json ${rest%%:*} one -c "${rest#*:}"
        [ "$(jq -r .exit.reason <<<"$output")" = "$reason" ] || fail "$row: $output"
    done
    run -124 bellhop exec --timeout 100ms one -- sleep 60
    [[ "$output" == *"reached its timeout"* ]]
    bellhop exec -d --id long one -- sleep 60
    run -124 bellhop wait --timeout 50ms one long
    [[ "$output" == *"'long' is still running"* ]]
    bellhop kill one long
    run -143 bellhop wait one long
    bellhop ps --all one | grep -q "^long	SIGTERM	"
    run bellhop kill one long
    [ "$status" -eq 4 ]
}

# each signal of the table, by name and by number, as the shell of this machine counts them
@test "a signal ends a command with the status that a shell gives it" {
    for sig in USR1 STKFLT VTALRM 26 IO PWR RTMIN RTMIN+1 35 64; do
        number=$([[ $sig == *[!0-9]* ]] && kill -l "$sig" || echo "$sig")
        run -$((128 + number)) bellhop exec one -- bash -c "kill -$sig \$\$"
    done
    bellhop exec -d --id numbered one -- sleep 60
    bellhop kill -s 9 one numbered
    run -137 bellhop wait one numbered
    bellhop exec -d --id real one -- sleep 60
    bellhop kill -s RTMIN+2 one real
    run -164 bellhop wait one real
    bellhop ps --all one | grep -q "^real	SIGRTMIN+2	"
}

@test "output that nobody takes is told as any command tells it, not as an interruption" {
    set +o pipefail
    bellhop exec one -- yes | head -n 1
    [ "${PIPESTATUS[0]}" -eq 141 ]
    bellhop exec -d --id flood one -- yes
    bellhop attach one flood 2>/dev/null | head -n 1
    [ "${PIPESTATUS[0]}" -eq 141 ]
    bellhop kill one flood
    if bellhop exec one -- echo lost >/dev/full 2>"$BOX_TMP/why"; then fail "a full disk is no error"; fi
    grep -q "writing standard output: no space left on device" "$BOX_TMP/why"
    run -125 bellhop exec one --script "$BOX_TMP/not-there"
}

@test "a closed standard stream of the caller is empty for the command, and no file of ours takes its place" {
    # By a shell of its own: bash would open a file of its own in the place of the closed one.
    run -0 timeout 60 sh -c '"$1" exec one -- sh -c "cat; echo end" <&-' sh "$BELLHOP"
    [ "$output" = end ]
    run -0 timeout 60 sh -c '"$1" exec one -- sh -c "echo out; echo err >&2" 2>&-' sh "$BELLHOP"
    [ "$output" = out ]
    run timeout 60 sh -c '"$1" exec one -- echo out >&-' sh "$BELLHOP"
    [ "$status" -eq 125 ] && [[ "$output" == *'bad file descriptor' ]] || fail "$status $output"
}

@test "an id may have 128 characters" {
    id=$(printf 'i%.0s' $(seq 128))
    run -5 bellhop exec --json --id "$id" one -- sh -c 'exit 5'
    [ "$(jq -r .id <<<"$output")" = "$id" ]
    run -5 bellhop wait one "$id"
    run bellhop exec --id "${id}x" one -- true
    [[ "$output" == *"1 to 128"* ]]
}

@test "kill --tree ends what a command has started in a session of its own" {
    bellhop exec -d --id tree one -c 'setsid sleep 4321 & echo $! >pid; wait'
    wait_for 10 bellhop exec one -- test -s pid
    pid=$(bellhop exec one -- cat pid)
    bellhop kill --tree -s KILL one tree
    run -137 bellhop wait one tree
    wait_for 5 is_gone "$pid"
}

@test "a command with an id of the caller's runs once, and another under that id is refused" {
    run -3 bellhop exec --id once one -c 'echo ran >>times; echo out; exit 3'
    run -3 bellhop exec --id once one -c 'echo ran >>times; echo out; exit 3'
    [ "$output" = out ]
    [ "$(bellhop exec one -- cat times)" = ran ]
    run -125 bellhop exec --id once one -- true
    [[ "$output" == *"'once' is the id of another command"* ]]
}

@test "scripts, environment, umask and limits reach the command" {
    [ "$(bellhop exec one -c 'echo $((6 * 7))')" = 42 ]
    {
        echo ': "'
        head -c 2000000 /dev/zero | tr '\0' '#'
        echo '"'
        echo 'echo long enough'
    } >"$BOX_TMP/script"
    [ "$(bellhop exec -s "$BOX_TMP/script" one)" = "long enough" ]
    [ "$(echo 'echo from stdin' | bellhop exec -s - one)" = "from stdin" ]
    printf 'A=from file\nB=b\n' >"$BOX_TMP/env"
    [ "$(C=c bellhop exec --env-file "$BOX_TMP/env" -e B=over -e C one -c 'echo "$A,$B,$C"')" = "from file,over,c" ]
    [ "$(bellhop exec --umask 077 one -c umask)" = 0077 ]
    [ "$(bellhop exec --rlimit nofile=77 one -c 'ulimit -n')" = 77 ]
    [ "$(bellhop exec -n one -- wc -c </etc/passwd)" = 0 ]
}

@test "exec -s runs a script of Node.js by its first line" {
    command -v node >/dev/null || skip "no node"
    printf '#!/usr/bin/env node\nconsole.log(typeof require, 6 * 7)\n' >"$BOX_TMP/script"
    [ "$(bellhop exec -n -s "$BOX_TMP/script" one)" = "function 42" ]
}

@test "exec -s runs a script by the interpreter of its first line, Python too" {
    printf '#!/usr/bin/env python3\nimport sys\nprint(sys.version_info[0], sys.stdin.read())\n' >"$BOX_TMP/script"
    [ "$(echo typed | bellhop exec -s "$BOX_TMP/script" one)" = "3 typed" ]
    [ "$(printf '#!/bin/sh -e\nfalse\necho no\n' | bellhop exec -s - one; echo $?)" = 1 ]
    printf '#!/no/such/interpreter\n' >"$BOX_TMP/script"
    run -127 bellhop exec -n -s "$BOX_TMP/script" one
    [[ "$output" == *"/no/such/interpreter"* ]]
}

@test "input for a detached command arrives by attach -i" {
    bellhop exec -d -i --id cat one -- cat
    run -0 bellhop attach -i one cat <<<"typed later"
    [ "$output" = "typed later" ]
}

@test "a detached command with a terminal is detached from by ^P ^Q and goes on" {
    bellhop exec -d -t --id tty one -c 'echo hello; while read -r line; do echo "got $line"; [ "$line" != end ] || exit 5; done'
    python3 - "$BELLHOP" <<'PY'
import os, pty, sys

def attach(keys, until):
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.argv[1], [sys.argv[1], "attach", "one", "tty"])
    seen = b""
    sent = False
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
        if not sent and until in seen:
            os.write(fd, keys)
            sent = True
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen

status, seen = attach(b"first\r\x10\x11", b"hello")
assert status == 0 and b"goes on" in seen, (status, seen)
status, seen = attach(b"end\r", b"got first")
assert status == 5 and b"got end" in seen, (status, seen)
PY
}

@test "^C leaves a command without a terminal alone and ends the attaching" {
    bellhop exec -d --id loop one -c 'trap "echo interrupted" INT; while :; do sleep 0.1; echo tick; done'
    bash -c 'exec "$@"' - "$BELLHOP" attach one loop >"$BOX_TMP/out" 2>"$BOX_TMP/err" 3>&- &
    pid=$!
    wait_for 10 grep -q tick "$BOX_TMP/out"
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    grep -q "'loop' goes on" "$BOX_TMP/err"
    [ "$(bellhop ps -q one)" = loop ]
    bellhop kill --tree -s KILL one loop
}

@test "a second signal ends a command's caller also while the guest agent hangs" {
    local agent pid status=0

    export BELLHOP_ANSWER_TIMEOUT=10m
    agent=$(jq -r .pid "$BELLHOP_STATE_DIR/boxes/$(bellhop status one --json | jq -r .id)/run.json")
    bash -c 'exec "$@"' - "$BELLHOP" exec one -c 'echo begun; sleep 600' >"$BOX_TMP/out" 2>"$BOX_TMP/err" 3>&- &
    pid=$!
    wait_for 10 grep -q begun "$BOX_TMP/out"
    kill -STOP "$agent"
    # One that comes before the last was delivered is lost.
    signal_it() { kill -TERM "$pid" 2>/dev/null; is_gone "$pid"; }
    wait_for 60 signal_it || status=1
    kill -CONT "$agent"
    [ "$status" -eq 0 ]
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
}

@test "output over connections that break is whole and comes once" {
    break_after 100000 0
    bellhop exec one -c 'seq 1 100000; seq 1 30000 >&2' >"$BOX_TMP/out" 2>"$BOX_TMP/err"
    seq 1 100000 | cmp - "$BOX_TMP/out"
    seq 1 30000 | cmp - "$BOX_TMP/err"
    [ "$(cuts)" -ge 5 ]
    bellhop exec one -- seq 1 1000000 >"$BOX_TMP/out"
    seq 1 1000000 | cmp - "$BOX_TMP/out"
    [ "$(cuts)" -ge 50 ]
}

@test "input over connections that break is whole and arrives once" {
    break_after 0 300000
    head -c 2000000 /dev/urandom >"$BOX_TMP/random"
    sum=$(bellhop exec one -- sha256sum <"$BOX_TMP/random")
    [ "${sum%% *}" = "$(sha256sum <"$BOX_TMP/random" | cut -d ' ' -f 1)" ]
    [ "$(cuts)" -ge 5 ]
}

# sum_input [EXEC_OPTION...]: the checksum of random input, by a command that ends at the end of its input alone.
sum_input()
{
    head -c 200000 /dev/urandom >"$BOX_TMP/random"
    sum=$(timeout 60 "$BELLHOP" exec "$@" one -- sha256sum <"$BOX_TMP/random") || return
    [ "${sum%% *}" = "$(sha256sum <"$BOX_TMP/random" | cut -d ' ' -f 1)" ]
}

@test "input and its end arrive once also when the agent refuses them at first, or their answers are lost" {
    agent_faults
    for method in Exec/Write Exec/CloseStdin; do
        for fault in 429 503 500 cut lost; do
            agent_fault "$fault" "$method" 2
            sum_input || fail "$fault of $method"
            [ "$(agent_hits)" -eq 2 ]
        done
    done
}

@test "a command whose input cannot be delivered fails with the reason, and is ended" {
    agent_faults
    agent_fault 503 Exec/CloseStdin 1000
    run --separate-stderr timeout 60 "$BELLHOP" exec --id lost one -- cat <<<text
    [ "$status" -eq 125 ]
    [[ $stderr == *"the input of 'lost': the injected refusal"* ]]
    [ -z "$(bellhop ps -q one)" ]
    run --separate-stderr timeout 60 "$BELLHOP" exec one -- cat </
    [ "$status" -eq 125 ]
    [[ $stderr == *"read: is a directory"* ]] || fail "$stderr"
}

@test "input for a terminal and its end arrive once when the answer to any write is lost" {
    agent_faults
    for nth in 1 2 3; do
        bellhop exec -d -t -i --id "pty$nth" one -c 'cat; echo over; read -r line; echo "<$line>"'
        agent_fault lost 'Exec/(Write|CloseStdin)' 1 "$nth"
        bellhop attach -i one "pty$nth" <<<first >"$BOX_TMP/out" 3>&- &
        pid=$!
        wait_for 20 grep -q first "$BOX_TMP/out"
        wait_for 20 grep -q over "$BOX_TMP/out"
        bellhop attach -i one "pty$nth" <<<second >/dev/null
        wait "$pid"
        grep -q '<second>' "$BOX_TMP/out" || fail "$nth: $(cat "$BOX_TMP/out")"
    done
}

@test "input reaches a command of a guest agent that was started before an update" {
    agent_faults
    agent_fault writer Exec/Write 1
    run -0 --separate-stderr bellhop exec one -- cat <<<text
    [ "$output" = text ]
    [ "$(agent_hits)" -eq 1 ]
}

@test "two that write to one command at the same time lose nothing" {
    local n fd_a fd_b pids

    bellhop exec -d -i --id both one -- cat
    mkfifo "$BOX_TMP/a" "$BOX_TMP/b"
    bellhop attach -i one both <"$BOX_TMP/a" >"$BOX_TMP/out" 3>&- &
    pids=$!
    bellhop attach -i one both <"$BOX_TMP/b" >/dev/null 3>&- &
    pids+=" $!"
    exec {fd_a}>"$BOX_TMP/a" {fd_b}>"$BOX_TMP/b"
    for n in 1 2 3; do
        echo "one $n" >&"$fd_a"
        wait_for 20 grep -q "one $n" "$BOX_TMP/out"
        echo "two $n" >&"$fd_b"
        wait_for 20 grep -q "two $n" "$BOX_TMP/out"
    done
    exec {fd_a}>&- {fd_b}>&-
    for n in $pids; do
        wait "$n"
    done
    [ "$(wc -l <"$BOX_TMP/out")" -eq 6 ] || fail "$(cat "$BOX_TMP/out")"
}

# interrupt_twice [EXEC_OPTION...]: the second signal ends the caller of a command that ignores both.
interrupt_twice()
{
    local pid caller=0

    bash -c 'exec "$@"' - "$BELLHOP" exec "$@" one -c 'trap "" TERM; echo begun; while :; do sleep 0.1; done' \
        >"$BOX_TMP/out" 2>"$BOX_TMP/err" 3>&- &
    pid=$!
    wait_for 20 grep -q begun "$BOX_TMP/out"
    # One that comes before the last was delivered is lost.
    signal_it() { kill -TERM "$pid" 2>/dev/null; is_gone "$pid"; }
    wait_for 60 signal_it
    wait "$pid" || caller=$?
    [ "$caller" -eq 130 ]
}

@test "a command is ended also when the agent refuses the first signals" {
    agent_faults
    agent_fault 503 Exec/Signal 5
    interrupt_twice
    [ "$(agent_hits)" -eq 5 ]
    [ -z "$(bellhop ps -q one)" ]
    [ ! -s "$BOX_TMP/err" ]
}

@test "a command whose end is not known is said to be, when its caller was interrupted" {
    agent_faults
    agent_fault 503 Exec/Signal 1000
    interrupt_twice --id on
    grep -q "the command 'on' may still run" "$BOX_TMP/err"
    rm "$BOX_TMP/fault"
    bellhop kill --tree -s KILL one on
}

@test "a detached command whose start is interrupted does not run on unknown" {
    agent_faults
    agent_fault mute Exec/Start
    bash -c 'exec "$@"' - "$BELLHOP" exec -d one -- sleep 600 >"$BOX_TMP/out" 2>"$BOX_TMP/err" 3>&- &
    pid=$!
    is_running() { [ "$(bellhop ps -q one | wc -l)" -eq 1 ]; }
    wait_for 20 is_running
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    [ -z "$(bellhop ps -q one)" ]
}

@test "a box that is removed or stopped under a running exec is said to be" {
    for verb in rm stop; do
        bellhop up --name two --provider process --agent none --empty >/dev/null 2>&1
        bellhop exec two -- sleep 60 >"$BOX_TMP/out" 2>"$BOX_TMP/err" 3>&- &
        pid=$!
        wait_for 10 bash -c "[ \"\$('$BELLHOP' ps -q two | wc -l)\" -eq 1 ]"
        bellhop "$verb" two
        status=0
        wait "$pid" || status=$?
        cat "$BOX_TMP/err" >&2
        [ "$status" -ne 0 ]
        grep -q "two' was \(removed\|stopped\) while" "$BOX_TMP/err" || [ "$status" -gt 128 ]
        bellhop rm two 2>/dev/null || true
    done
}

@test "attach from an offset that is not held any more goes on with the first that is, and counts what is missing" {
    id=$(bellhop exec -d one -- seq 1000000)
    bellhop wait one "$id"
    bellhop attach one "$id" --stdout-offset 1000000 >"$BOX_TMP/out" 2>"$BOX_TMP/err"
    seq 1000000 | tail -c 524288 | cmp - "$BOX_TMP/out"
    grep -q "$((6888896 - 1000000 - 524288)) " "$BOX_TMP/err" || fail "$(cat "$BOX_TMP/err")"
}
