# early
# Every command that changes a box, and the box's monitor under that command, killed with -9 before a system call that
# changes something. Afterwards gc says what is, the next up works, and rm leaves nothing. A sample; `make test-kill`
# takes every call (KILL_POINTS=all).
# needs: image

load ../lib/box
load ../providers/matrix
bats_require_minimum_version 1.5.0

POINTS_AT_ONCE=4

setup() { box_setup; }
teardown() { box_teardown; }

# Calls that change something: files, locks, processes, messages. kill.bats has the rest of up's.
CHANGES=mkdir,mkdirat,pwrite64,write,fdatasync,ftruncate,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,symlink
CHANGES+=,chmod,fchmod,clone,clone3,vfork,fork,execve,kill,pidfd_send_signal,connect,sendto,sendmsg,flock,mount,umount2

# COMMAND | the state of the box before it. The death of a monitor in a start is in ../providers/matrix.bats.
COMMANDS=('up|none' 'start|stopped' 'stop|running' 'pause|running' 'resume|paused' 'rm|running')

# A program that is BELLHOP's, or the monitor's, with a tracer before it.
write_wrapper() # FILE PROGRAM STRACE_OPTION...
{
    local file=$1 program=$2

    shift 2
    printf '#!/bin/sh\nexec strace %s %s "$@"\n' "$*" "$program" >"$file"
    chmod +x "$file"
}

# count_calls FILE PID: "CALL N" of that process, for the N-th of its calls of that name, one a line. PID "": all.
count_calls()
{
    sed -n "s/^${2:+$2 *}\([a-z0-9_]*\)(.*/\1/p" "$1" | awk '{ print $1, ++n[$1] }'
}

monitor_pid() { cut -d ' ' -f 1 "$BELLHOP_STATE_DIR"/boxes/*/monitor.lock; }

# trace_monitor STRACE_OPTION...: attaches to the box's monitor. end_tracer: lets it go.
trace_monitor()
{
    TRACED=$(monitor_pid)
    strace -f -p "$TRACED" "$@" 2>"$CELL/tracer" &
    TRACER=$!
    wait_for 10 grep -q attached "$CELL/tracer"
}
end_tracer()
{
    kill "$TRACER" 2>/dev/null || true
    wait "$TRACER" 2>/dev/null || true
}

# points_of WHO COMMAND BEFORE: the calls of the command, or of the monitor while the command runs.
points_of()
{
    CELL=$BOX_TMP/list-$1-$2
    export BELLHOP_STATE_DIR=$CELL/state
    mkdir -p -m 0700 "$CELL" "$BELLHOP_STATE_DIR"
    if [ "$1" = command ]; then
        make_ready "$3" || return 1
        write_wrapper "$CELL/bellhop" "$BELLHOP" -e "trace=?${CHANGES//,/,?}" -o "$CELL/calls"
        BELLHOP=$CELL/bellhop ask "$2" >/dev/null 2>&1
        count_calls "$CELL/calls" ''
    else
        make_ready "$3" || return 1
        trace_monitor -e "trace=?${CHANGES//,/,?}" -o "$CELL/calls"
        ask "$2" >/dev/null 2>&1
        end_tracer
        count_calls "$CELL/calls" "$TRACED"
    fi
    bellhop rm -f one >/dev/null 2>&1
    wait_for 10 no_traces
}

# sample N: that many lines of the input, evenly, or all.
sample()
{
    awk -v k="$1" '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) if (k == "all" || int(i * k / NR) != int((i - 1) * k / NR)) print line[i] }'
}

# point WHO COMMAND BEFORE CALL N: prints "ok EXIT STATE" or "FAIL reason".
point()
{
    local inject status truth

    inject="-o /dev/null -e trace=$4 -e inject=$4:signal=KILL:when=$5"
    if [ "$1" = command ]; then
        make_ready "$3" || { echo "FAIL it was not made $3"; return; }
        write_wrapper "$CELL/bellhop" "$BELLHOP" "$inject"
        { BELLHOP=$CELL/bellhop ask "$2" >"$CELL/out" 2>&1; } 2>/dev/null
        status=$?
        [ "$status" -eq 137 ] || [ "$status" -eq 0 ] || { echo "FAIL exit $status"; return; }
    else
        make_ready "$3" || { echo "FAIL it was not made $3"; return; }
        # shellcheck disable=SC2086
        trace_monitor $inject
        ask "$2" >"$CELL/out" 2>&1
        status=$?
        end_tracer
    fi
    # A box that an up has not finished has no file yet.
    truth=$(check_truth "$2") || [[ "$2" = up && "$truth" = *"its file is not there" ]] || { echo "FAIL $truth"; return; }
    cell_up >"$CELL/up" 2>&1 || { echo "FAIL the next up: $(tail -n 1 "$CELL/up")"; return; }
    [ "$(bellhop exec one -- echo alive)" = alive ] || { echo "FAIL the next exec"; return; }
    bellhop rm one >/dev/null || { echo "FAIL rm"; return; }
    bellhop gc >/dev/null || { echo "FAIL the last gc"; return; }
    [ -z "$(ls "$BELLHOP_STATE_DIR/boxes")" ] || { echo "FAIL a directory is left"; return; }
    wait_for 10 no_traces 2>/dev/null || { echo "FAIL left: $(traces | head -n 1)"; return; }
    echo "ok $status ${truth// /-}"
}

run_point() # WHO COMMAND BEFORE CALL N
{
    CELL=$BOX_TMP/$1-$2-$4-$5
    export BELLHOP_STATE_DIR=$CELL/state
    mkdir -p -m 0700 "$CELL" "$BELLHOP_STATE_DIR"
    printf '%s|%s|%s %s|%s\n' "$1" "$2" "$4" "$5" "$(point "$@")" >"$CELL.result"
    rm -rf --one-file-system "$CELL"
}

run_points() # PROVIDER N_POINTS WHO...
{
    local row command before who call n

    UP=(--provider "$1")
    shift
    for who in "${@:2}"; do
        for row in "${COMMANDS[@]}"; do
            IFS='|' read -r command before <<<"$row"
            [ "$who" = command ] || [ "$before" = running ] || [ "$before" = paused ] || continue
            (points_of "$who" "$command" "$before") 3>&- 4>&- >"$BOX_TMP/points-$who-$command" ||
                fail "$who $command cannot be traced"
            [ "$(wc -l <"$BOX_TMP/points-$who-$command")" -ge 3 ] || fail "$who $command: $(cat "$BOX_TMP/points-$who-$command")"
            while read -r call n <&9; do
                while [ "$(jobs -rp | wc -l)" -ge "$POINTS_AT_ONCE" ]; do
                    wait -n || true
                done
                (run_point "$who" "$command" "$before" "$call" "$n") 3>&- 4>&- 9<&- &
            done 9< <(sample "$1" <"$BOX_TMP/points-$who-$command")
        done
    done
    wait
    cat "$BOX_TMP"/*.result | awk -F '|' '{ n[$1 " " $2]++; split($4, w, " "); if (w[2] != 0) hit[$1 " " $2]++ }
        END { for (k in n) printf "# %s: killed at %d points, %d of them made the command fail\n", k, n[k], hit[k] }' | sort >&3
    ! grep -h '|FAIL' "$BOX_TMP"/*.result || fail "a killed command left what the next one cannot use"
}

@test "each command killed before a call that changes something leaves what gc and the next up finish: process" {
    run_points process "${KILL_POINTS:-7}" command
}

@test "the monitor killed before a call that changes something leaves what gc and the next up finish: process" {
    run_points process "${KILL_POINTS:-4}" monitor
}

@test "each command killed before a call that changes something leaves what gc and the next up finish: oci" {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    run_points oci "${KILL_POINTS:-3}" command
}
