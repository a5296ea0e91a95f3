#!/usr/bin/env bats
# Every way in which commands end and their end is reported; processes that end with them and that live on;
# identity, environment and descriptors of a command.
# early

load ../lib/agent

setup()
{
    start_agent
    jobs_of_test=()
    SECONDS_NAME=87$$. # a `sleep` with so many seconds belongs to this test; the number ends at the point
}
teardown()
{
    for pid in $(pgrep -x -f "sleep $SECONDS_NAME[0-9]*"); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    stop_agents
}

is_running() { rpc Exec/Get "{\"id\":\"$1\"}" | jq -e '.state == "running"'; }
has_ended() { rpc Exec/Get "{\"id\":\"$1\"}" | jq -e '.state == "ended"'; }
n_sleeps() { pgrep -c -x -f "sleep $SECONDS_NAME[0-9]*" || true; }
are_sleeping() { [ "$(n_sleeps)" = "$1" ]; }

# Prints the result of the request in $1, as METHOD reports it: Run's reply, a stream's end, or a later Wait's.
ask()
{
    case $2 in
    Run) rpc Exec/Run "$1" ;;
    Start) rpc Exec/Start "$1" | jq -c 'select(.end).end' ;;
    Wait)
        rpc Exec/Start "$(jq -c '.id = "'"$3"'"' <<<"$1")" -o /dev/null
        rpc Exec/Wait "{\"id\":\"$3\"}"
        ;;
    Get)
        rpc Exec/Start "$(jq -c '.id = "'"$3"'"' <<<"$1")" -o /dev/null
        rpc Exec/Get "{\"id\":\"$3\"}"
        ;;
    esac
}

# name | request | reason code signal oom tree
ends()
{
    cat <<'ROWS'
zero|{"shell":"exit 0"}|["exited",0,null,false,"gone"]
code|{"shell":"exit 255"}|["exited",255,null,false,"gone"]
own signal|{"shell":"kill -USR1 $$"}|["signaled",null,"SIGUSR1",false,"gone"]
core|{"shell":"ulimit -c 0; kill -SEGV $$"}|["signaled",null,"SIGSEGV",false,"gone"]
timeout by TERM|{"argv":["sleep","60"],"timeout_ms":80}|["timeout",null,"SIGTERM",false,"gone"]
timeout by KILL|{"shell":"trap '' TERM; : >@READY@; while :; do sleep 0.01; done","timeout_ms":80,"kill_grace_ms":60}|["timeout",null,"SIGKILL",false,"gone"]
timeout without grace|{"argv":["sleep","60"],"timeout_ms":80,"kill_grace_ms":0}|["timeout",null,"SIGKILL",false,"gone"]
code in the grace|{"shell":"trap 'exit 7' TERM; : >@READY@; while :; do sleep 0.01; done","timeout_ms":80,"kill_grace_ms":60000}|["timeout",7,null,false,"gone"]
stopped|{"shell":"kill -STOP $$","timeout_ms":80}|["timeout",null,"SIGTERM",false,"gone"]
ROWS
}

# Prints the end of a request as METHOD reports it. A command that must be READY before its timeout gets a longer one
# if it was not: on a very busy machine nothing runs for a while.
end_of()
{
    local request=${1//@READY@/$AGENT_DIR/ready} ms

    for ms in 80 800 8000; do
        rm -f "$AGENT_DIR/ready"
        id=$((id + 1))
        got=$(ask "$(jq -c --argjson ms "$ms" 'if .timeout_ms then .timeout_ms = $ms else . end' <<<"$request")" \
            "$2" "e$id" | jq -c '.exit | [.reason, .code, .signal, .oom, .tree]')
        [[ "$1" == *@READY@* ]] && [ ! -e "$AGENT_DIR/ready" ] || return 0
    done
}

@test "exec each end is told the same by Run, Start, Wait and Get, with pipes and with a terminal" {
    local name request want got method n=0 id=0

    while IFS='|' read -r name request want; do
        for extra in '{}' '{"pty":{}}'; do
            for method in Run Start Wait Get; do
                n=$((n + 1))
                end_of "$(jq -c ". + $extra" <<<"$request")" "$method"
                [ "$got" = "$want" ] || fail "$name, $extra, $method: got $got, expected $want"
            done
        done
    done < <(ends)
    [ "$n" -eq 72 ]
}

# Ways to leave a process behind: a shell line that starts `sleep T` and continues.
leavers()
{
    cat <<'ROWS'
child|sleep T &
group|set -m; sleep T &
session|setsid sleep T &
double fork|(setsid sh -c 'sleep T & exit' &)
no environment|env -i setsid sleep T &
other user|setsid setpriv --reuid 65534 --clear-groups sleep T &
stopped|setsid sleep T & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done; kill -STOP $!
nohup|nohup sleep T >/dev/null 2>&1 &
ROWS
}

@test "exec whatever was left behind lives on after a normal exit, and is ended by each way to end a tree" {
    local name line how n=0 script

    while IFS='|' read -r name line; do
        [ "$name" != "other user" ] || [ "$(id -u)" = 0 ] || continue
        for how in exit timeout cancel signal kill_on_exit; do
            n=$((n + 1))
            script=${line//sleep T/sleep $SECONDS_NAME$n}
            case $how in
            exit)
                rpc Exec/Run "$(jq -n --arg s "$script"$'\n'"sleep 0.1" '{shell: $s, id: "x'$n'"}')" | jq -e '.exit.reason == "exited" and .exit.tree != "gone"' >/dev/null ||
                    fail "$name, $how"
                wait_until 5 are_sleeping 1 || fail "$name: did not live on"
                rpc Exec/Signal '{"id":"x'$n'","signal":"KILL","tree":true}' >/dev/null
                ;;
            timeout)
                rpc Exec/Run "$(jq -n --arg s "$script"$'\n'"sleep 60" '{shell: $s, timeout_ms: 200, kill_grace_ms: 100}')" |
                    jq -e '.exit.reason == "timeout" and .exit.tree == "gone"' >/dev/null || fail "$name, $how"
                ;;
            cancel)
                ask_and_leave Exec/Run "$(jq -n --arg s "$script"$'\n'"sleep 60" '{shell: $s, id: "x'$n'", kill_grace_ms: 100}')" /dev/null are_sleeping 1
                rpc Exec/Wait '{"id":"x'$n'","timeout_ms":60000}' | jq -e '.exit.reason == "canceled"' >/dev/null || fail "$name, $how"
                ;;
            signal)
                rpc Exec/Start "$(jq -n --arg s "$script"$'\n'"sleep 60" '{shell: $s, id: "x'$n'"}')" -o /dev/null &
                jobs_of_test+=($!)
                wait_until 5 are_sleeping 1
                rpc Exec/Signal '{"id":"x'$n'","signal":"KILL","tree":true}' >/dev/null
                rpc Exec/Wait '{"id":"x'$n'","timeout_ms":60000}' | jq -e '.exit.signal == "SIGKILL"' >/dev/null || fail "$name, $how"
                ;;
            kill_on_exit)
                rpc Exec/Run "$(jq -n --arg s "$script"$'\n'"sleep 0.1" '{shell: $s, kill_on_exit: true, kill_grace_ms: 100}')" |
                    jq -e '.exit.reason == "exited" and .exit.code == 0 and .exit.tree == "gone"' >/dev/null || fail "$name, $how"
                ;;
            esac
            wait_until 5 are_sleeping 0 || fail "$name, $how: $(n_sleeps) left"
        done
    done < <(leavers)
    wait "${jobs_of_test[@]}"
}

@test "exec two sleeps are gone within the timeout and the grace" {
    # SIGTERM ends them: nothing waits for a grace period that is longer than the client's timeout.
    rpc Exec/Run "{\"shell\":\"sleep ${SECONDS_NAME}1 & sleep ${SECONDS_NAME}2\",\"timeout_ms\":500,\"kill_grace_ms\":600000}" --max-time 300 |
        jq -e '.exit.reason == "timeout" and .exit.tree == "gone" and .usage.wall_ms >= 500'
    wait_until 10 are_sleeping 0
}

@test "exec a server that was started in the background goes on serving" {
    local port

    port=$(free_port)
    rpc Exec/Run "{\"id\":\"server\",\"shell\":\"nohup python3 -m http.server --bind 127.0.0.1 --directory /etc $port >/dev/null 2>&1 & echo started\"}" |
        jq -e '.exit.code == 0 and .exit.tree == "left" and .stdout.text == "started\n"'
    wait_until 10 curl -sf "http://127.0.0.1:$port/passwd" -o /dev/null
    rpc Exec/Signal '{"id":"server","signal":"TERM","tree":true}' | jq -e '.id == "server"'
    wait_until 5 sh -c "! curl -sf -m 1 http://127.0.0.1:$port/ -o /dev/null"
}

@test "exec the working directory is checked, each way it can be wrong" {
    mkdir "$AGENT_DIR/closed"
    touch "$AGENT_DIR/file"
    chmod 0711 "$AGENT_DIR"
    chmod 0 "$AGENT_DIR/closed"
    for row in "/no/such|not_found" "$AGENT_DIR/file|failed_precondition invalid_argument not_found" ; do
        rpc Exec/Run "$(jq -n --arg d "${row%%|*}" '{argv: ["pwd"], cwd: $d}')" |
            jq -e --arg c "${row##*|}" '.field == "cwd" and (.code as $got | $c | split(" ") | index($got) != null)' || fail "$row"
    done
    rpc Exec/Run "$(jq -n --arg d "/$(printf 'x%.0s' $(seq 5000))" '{argv: ["pwd"], cwd: $d}')" | jq -e '.field == "cwd"'
    [ "$(id -u)" != 0 ] ||
        rpc Exec/Run "$(jq -n --arg d "$AGENT_DIR/closed" '{argv: ["pwd"], cwd: $d, user: "daemon"}')" | jq -e '.code == "permission_denied" and .field == "cwd"'
    rpc Exec/Run '{"argv":["pwd"],"cwd":"/usr/../usr/bin"}' | jq -e '.stdout.text == "/usr/bin\n"'
}

@test "exec a user has all groups of the box's own files, and nothing of the agent" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    unshare -m true 2>/dev/null || skip "can't unshare here"
    stop_agents
    AGENT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-agent-XXXXXX")
    AGENT_DIRS+=("$AGENT_DIR")
    chmod 0711 "$AGENT_DIR"
    # The directory: a mount over a file ends when somebody on the machine replaces that, as useradd does.
    cp -a /etc "$AGENT_DIR/etc"
    printf 'root:x:0:0:root:/root:/bin/sh\nann:x:5001:5002:Ann:/tmp:/bin/sh\n' >"$AGENT_DIR/etc/passwd"
    printf 'root:x:0:root\nann:x:5002:\nblue:x:5003:bob,ann\nred:x:5004:ann\nother:x:5005:bob,annie\n' >"$AGENT_DIR/etc/group"
    cat >"$AGENT_DIR/agent" <<SCRIPT
#!/bin/sh
exec unshare -m sh -c 'mount --bind $AGENT_DIR/etc /etc && exec $BELLHOPD "\$@"' sh "\$@"
SCRIPT
    chmod +x "$AGENT_DIR/agent"
    BELLHOPD=$AGENT_DIR/agent run_agent --listen 127.0.0.1:0 --auth=open
    rpc Exec/Run '{"shell":"id -u; id -g; id -G | tr \" \" \"\\n\" | sort -n | xargs; echo $HOME $USER; grep -c CapEff:.0000000000000000 /proc/self/status","user":"ann"}' |
        jq -e '.stdout.text == "5001\n5002\n5002 5003 5004\n/tmp ann\n1\n"'
    rpc Exec/Run '{"shell":"id -G","user":"5001:5003"}' | jq -e '.stdout.text | test("5003") and (test("^0| 0") | not)'
}
@test "exec a command has three descriptors, the limits it was given, and goes first when memory is short" {
    stop_agents
    AGENT_DIR=
    exec 7</etc/passwd 8>/dev/null
    AGENT_TOKEN=open
    run_agent --listen 127.0.0.1:0 --auth=open
    exec 7>&- 8>&-
    rpc Exec/Run '{"argv":["ls","/proc/self/fd"]}' | jq -e '.stdout.text == "0\n1\n2\n3\n"' # 3 is ls's own
    rpc Exec/Run '{"argv":["ls","/proc/self/fd"],"pty":{}}' | jq -e '.stdout.text | gsub("[\\s]+"; " ") == "0 1 2 3 "'
    [ "$(rpc Exec/Run '{"shell":"ulimit -Sn"}' | jq -r .stdout.text)" = "$(ulimit -Sn)" ]
    [ "$(rpc Exec/Run '{"argv":["cat","/proc/self/oom_score_adj"]}' | jq -r .stdout.text)" -gt "$(cat "/proc/$AGENT_PID/oom_score_adj")" ] ||
        [ "$(cat "/proc/$AGENT_PID/oom_score_adj")" = 1000 ]
}
