# matrix.bash: one fault of one function of a provider under one command (matrix.bats). A cell has a state directory of
# its own, so that cells run beside each other.
#
# Not here: probe(), which `bellhop providers` reports and which fails nothing (matrix.bats), and exit_status(), which no
# provider has.
#
# A row: FUNCTION | COMMAND (a case of ask) | what the box is before (a case of make_ready)

MATRIX=(
    'check|up|none'
    'prepare|up|none'
    'start|up|none'
    'start|start|stopped'
    'start|exec|stopped'
    'find|exec|running'
    'find|start|running'
    'find|gc|orphan'
    'stop|stop|running'
    'stop|pause-disk|running'
    'destroy|rm|running'
    'destroy|gc-stopped|stopped'
    'check_pause|pause|running'
    'pause|pause|running'
    'resume|resume|paused'
    'resume|exec|paused'
    'inspect|status|running'
    'sweep|gc|stopped'
)

# Of the providers that make snapshots.
MATRIX_SNAPSHOTS=(
    'check_capture|snapshot|running'
    'capture|snapshot|running'
    'restore|restore|snapshotted'
    'has_restored|restore|snapshotted'
)

# make_ready: brings the box to the state that a command needs.
make_ready() # BEFORE
{
    local dir pid

    [ "$1" != none ] || return 0
    cell_up >/dev/null 2>&1 || return 1
    bellhop exec one -- sh -c 'echo kept >file' || return 1
    case $1 in
    stopped) bellhop stop one >/dev/null ;;
    snapshotted) bellhop snapshot one --name s >/dev/null ;;
    paused) bellhop pause one >/dev/null ;;
    orphan) # it runs, and has neither a monitor nor the monitor's guard
        dir=$(echo "$BELLHOP_STATE_DIR"/boxes/*)
        pid=$(cut -d ' ' -f 1 "$dir/monitor.lock")
        kill -9 "$(ps -o ppid= -p "$pid" | tr -d ' ')"
        end_now "$pid"
        ;;
    esac
}

cell_up() { bellhop up --name one --agent none --empty "${UP[@]}" "$@"; }

ask() # COMMAND
{
    case $1 in
    up) cell_up ;;
    start) bellhop start one ;;
    stop) bellhop stop one ;;
    rm) bellhop rm one ;;
    pause) bellhop pause --level freeze one ;;
    pause-disk) bellhop pause --level disk one ;;
    resume) bellhop resume one ;;
    snapshot) bellhop snapshot one --name s ;;
    restore) bellhop restore one s ;;
    exec) bellhop exec one -- cat file ;;
    status) bellhop status one --json ;;
    gc) bellhop gc ;;
    gc-stopped) bellhop gc --stopped-for 0 ;;
    esac
}

state_now() { bellhop status one --json 2>/dev/null | jq -r '.state // empty'; }
events_now() { bellhop events one --json 2>/dev/null | jq -c '.events[]?'; }
n_events() { events_now | wc -l; }

# fault_event FUNCTION: there is an event of it, whose cause begins with its name.
fault_event() { events_now | jq -s -e --arg f "$1: " '[.[] | select(.kind == "fault" and (.cause | startswith($f)))] | length > 0' >/dev/null; }

# The store says what is: after gc, the state is the last event's, and the box is whole or gone.
check_truth() # COMMAND
{
    local now

    bellhop gc >"$CELL/gc" 2>&1 || { echo "gc after it: $(tail -n 1 "$CELL/gc")"; return 1; }
    now=$(state_now)
    if [ -z "$now" ]; then
        [ "$1" = up ] || [ "$1" = rm ] || [ "$1" = gc-stopped ] || { echo "the box is gone"; return 1; }
        [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ] || { echo "a directory is left"; return 1; }
        [ -z "$(events_now)" ] || events_now | tail -n 1 | grep -q '"after":"destroyed"' || { echo "no destroyed"; return 1; }
        echo gone
        return 0
    fi
    [ "$(events_now | tail -n 1 | jq -r .after)" = "$now" ] || { echo "state $now is not the last event's"; return 1; }
    case $now in
    stopped | error)
        ! processes_naming "$BELLHOP_STATE_DIR/boxes" | grep -q . || { echo "$now, but processes are left"; return 1; }
        ;;
    running | paused) ;;
    *)
        echo "$now after gc"
        return 1
        ;;
    esac
    [ "$(bellhop exec one -- cat file 2>/dev/null)" = kept ] || { echo "$now, but its file is not there"; return 1; }
    echo "$now"
}

# cell FUNCTION COMMAND BEFORE MODE: prints "ok EXIT EVENT STATE", or "FAIL reason".
cell()
{
    local before status event=- truth

    make_ready "$3" || { echo "FAIL it was not made $3"; return; }
    before=$(n_events)
    echo "$1 $4" >"$BELLHOP_STATE_DIR/fault"
    ask "$2" >"$CELL/out" 2>&1
    status=$?
    rm "$BELLHOP_STATE_DIR/fault"
    [ "$status" -ne 0 ] || { echo "FAIL exit 0"; return; }
    case $1 in
    check | sweep) ;; # about no box
    *)
        if [[ $4 != kill* ]]; then
            fault_event "$1" || { echo "FAIL no event"; return; }
            event=fault
        elif [ "$(n_events)" -gt "$before" ]; then
            event=state
        fi
        ;;
    esac
    truth=$(check_truth "$2") || { echo "FAIL $truth"; return; }
    # A program that died may have left nothing to tell of if it had changed nothing.
    if [ "$event" = - ] && [[ $4 == kill* ]] && [[ $1 =~ ^(prepare|start|stop|destroy|pause|resume)$ ]]; then
        [ "$(n_events)" -gt "$before" ] || { echo "FAIL no event of what died"; return; }
        event=later
    fi
    echo "ok $status $event $truth"
}

# run_cell ROW MODE RESULT: in a state directory of its own, with everything removed afterwards.
run_cell()
{
    local function command ready

    IFS='|' read -r function command ready <<<"$1"
    CELL=$BOX_TMP/$function-$command-$2
    export BELLHOP_STATE_DIR=$CELL/state
    mkdir -p -m 0700 "$CELL" "$BELLHOP_STATE_DIR"
    [ "$2" != hang ] || export BELLHOP_PROVIDER_TIMEOUT=3s
    printf '%s|%s|%s|%s\n' "$function" "$command" "$2" "$(cell "$function" "$command" "$ready" "$2")" >"$3"
    unset BELLHOP_PROVIDER_TIMEOUT
    bellhop rm -f one >/dev/null 2>&1
    bellhop gc >/dev/null 2>&1
    wait_for 10 no_traces || echo "$function|$command|$2|FAIL left: $(traces | head -n 1)" >"$3"
}

# print_table: the results as a table, a row for each function and command, a column for each mode.
print_table() # MODE...
{
    cat "$BOX_TMP"/result.* | awk -F '|' -v modes="$*" '
        { row = $1 " " $2; if (!(row in seen)) { seen[row] = 1; order[++n] = row } cell[row, $3] = $4 }
        END {
            k = split(modes, mode, " ")
            line = sprintf("%-24s", "function command")
            for (i = 1; i <= k; i++) line = line sprintf("%-24s", mode[i])
            print line
            for (j = 1; j <= n; j++) {
                line = sprintf("%-24s", order[j])
                for (i = 1; i <= k; i++) line = line sprintf("%-24s", cell[order[j], mode[i]])
                print line
            }
        }'
}
