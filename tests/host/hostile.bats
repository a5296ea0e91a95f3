#!/usr/bin/env bats
# early
# The host against a guest agent that attacks it: every command that talks to a box, and every attack of
# tests/lib/hostile_agent.py. tests/lib/hostile_run.py runs them once; each test checks one promise. The last ones
# check that the host talks only to the box's own agent.

load ../lib/agent
load ../lib/box

setup_file()
{
    box_setup
    RUNS=$BATS_FILE_TMPDIR/runs
    export RUNS BOX_TMP
    BELLHOP_AGENT=$BATS_TEST_DIRNAME/../lib/hostile_agent.py \
        python3 "$BATS_TEST_DIRNAME/../lib/hostile_run.py" "$BELLHOP_BUILD/bellhop" "$BOX_TMP/work" >"$RUNS" 3>&- 4>&-
}
teardown_file()
{
    box_teardown
}

# none FILTER: fails, and prints the runs that the filter selects, if there are any.
none() # FILTER
{
    local found

    found=$(jq -c "select($1)" "$RUNS")
    [ -z "$found" ] || fail "$found"
}

@test "every command is run against every attack" {
    attacks=$(python3 "$BATS_TEST_DIRNAME/../lib/hostile_agent.py" --attacks | wc -l)
    [ "$attacks" -ge 20 ]
    [ "$(jq -r 'select(.command == "activity").attack' "$RUNS" | wc -l)" -ge $((attacks - 6)) ]
    # Every command that takes a box is here, or does not ask the agent.
    for command in $("$BELLHOP_BUILD/bellhop" completion bash | grep -o "'[a-z -]*'" | tr -d "'" | tr ' ' '\n' | sort -u); do
        case $command in
        image | providers | doctor | completion | help | version | gc | -*) continue ;;
        esac
        "$BELLHOP_BUILD/bellhop" help "$command" >/dev/null 2>&1 || continue
        jq -r .command "$RUNS" | grep -Eq "^$command(-|\$)" || fail "$command is not run"
    done
}

@test "every command ends, by itself, whatever the agent does" {
    none '.hung or .status < 0'
}

@test "no answer makes a command larger than 64 MiB" {
    none '.max_rss_kb > 65536'
}

@test "nothing of a box that a terminal would obey is printed, but content that a pipe gets" {
    none '.dirty | length > 0'
}

@test "nothing outside the directory of a command is changed" {
    none '.changed // [] | length > 0'
    jq -e 'select(.command == "all")' "$RUNS" >/dev/null
}

@test "what is copied out of a box is what was asked for, and nothing else" {
    none '.command == "get" and (.made - ["file.txt"] | length > 0)'
    none '.command == "get-dir" and (.made - ["x"] | map(select(startswith("x/") | not)) | length > 0)'
    none '(.command | startswith("sync")) and (.made | map(select(test("^\\.git|^\\.GIT|^\\.ssh|^sentinel"))) | length > 0)'
    none '(.command | startswith("sync") or startswith("get") | not) and (.made | length > 0)'
}

@test "who has taken the agent's place on its socket gets neither the token nor a byte" {
    unset BELLHOP_AGENT
    BOX_TMP=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-box-XXXXXX")
    BELLHOP_STATE_DIR=$BOX_TMP/state bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
    run_dir=$(dirname "$(BELLHOP_STATE_DIR=$BOX_TMP/state bellhop status one --json | jq -r .guest.socket)")
    mv "$run_dir/agent.sock" "$run_dir/real.sock"
    (cd "$run_dir" && exec python3 "$BATS_TEST_DIRNAME/../lib/hostile_agent.py" --unix agent.sock) 3>&- &
    other=$!
    wait_until 10 test -S "$run_dir/agent.sock"
    for command in 'exec one -- true' 'ps one' 'cat one :/etc/hostname' 'grep one x' 'activity one'; do
        # shellcheck disable=SC2086 # words
        output=$(BELLHOP_STATE_DIR=$BOX_TMP/state bellhop $command 2>&1) && fail "$command was answered: $output"
        [[ "$output" == *"not the guest agent but process $other listens"* ]] || fail "$command: $output"
    done
    # A connection to the forwarded port of the agent is not passed on either.
    url=$(BELLHOP_STATE_DIR=$BOX_TMP/state bellhop status one --json | jq -r .guest.url)
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/health" || true)" = 000 ]
    kill "$other"
    [ ! -e "$run_dir/requests" ]
    mv "$run_dir/real.sock" "$run_dir/agent.sock"
    [ "$(BELLHOP_STATE_DIR=$BOX_TMP/state bellhop exec one -- echo hello)" = hello ]
    BELLHOP_STATE_DIR=$BOX_TMP/state bellhop rm one
    rm -rf "$BOX_TMP"
}
