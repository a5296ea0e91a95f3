# The limits of a box: a part of the machine by default, more on request, and the size of its disk.
# needs: image

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "boxes need root"
    box_setup
}
teardown()
{
    [ "$(id -u)" -ne 0 ] || box_teardown
}

up() # NAME [OPTION...]
{
    bellhop up --name "$1" --agent none --empty "${@:2}" >/dev/null 2>&1
    remember_box "$1"
}

limit() # NAME
{
    bellhop status one --json | jq ".enforced.limits.$1"
}

@test "a default box leaves a part of memory, processors and disk to the machine, and status says how much" {
    up one
    memory=$(($(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo) * 1024))
    n=$(getconf _NPROCESSORS_ONLN)
    [ "$(limit memory_bytes)" -le $((memory / 5 * 4)) ]
    [ "$(limit memory_bytes)" -gt $((memory / 2)) ] || [ "$(cat /sys/fs/cgroup/memory.max 2>/dev/null)" ]
    [ "$(limit cpu_millis)" -eq $((n < 5 ? n * 800 : (n - 1) * 1000)) ]
    [ "$(limit pids)" -eq 4096 ]
    free=$(($(stat -f -c '%a * %S' "$BELLHOP_STATE_DIR")))
    [ "$(limit disk_bytes)" -gt 0 ]
    [ "$(limit disk_bytes)" -lt "$free" ]
    [[ "$(limit disk_limited_by)" =~ ^\"(quota|monitor)\"$ ]]
    bellhop status one | grep -Eq "^ +memory_bytes +$(limit memory_bytes)\$"
    [ "$(bellhop status one --json | jq -c .enforced.missing)" = '[]' ]
    # after a stop they are the same, and a second up asks for nothing else
    before=$(limit memory_bytes)
    bellhop stop one
    bellhop up --name one --agent none --empty >/dev/null 2>&1
    [ "$(limit memory_bytes)" = "$before" ]
}

@test "limits that are asked for are the ones that hold, however large" {
    up one --memory 64T --cpus 1000 --disk 100T --pids 100
    [ "$(limit memory_bytes)" = $((64 << 40)) ]
    [ "$(limit cpu_millis)" = 1000000 ]
    [ "$(limit disk_bytes)" = $((100 << 40)) ]
    [ "$(limit pids)" = 100 ]
    run bellhop up --name one --agent none --empty --disk 1G
    [ "$status" -eq 4 ]
    [[ "$output" == *"disk: the box was made with '104857600M', not '1024M'"* ]] || fail "$output"
    run bellhop up --name two --agent none --empty --disk 1M
    [ "$status" -eq 2 ]
    [[ "$output" == *"disk must be from 16M"* ]]
}

is_stopped()
{
    [ "$(bellhop status one --json | jq -r .state)" = stopped ]
}

@test "a box that writes more than --disk is stopped, says why, and can be started to be cleared up" {
    up one --disk 64M
    run bellhop exec -n one -c 'head -c 20000000 /dev/zero >~/small; head -c 100000000 /dev/zero >~/big; exec sleep 4321'
    [ "$status" -ne 0 ]
    wait_for 60 is_stopped
    [[ "$(bellhop status one --json | jq -r .cause)" == *"its limit is 64.0 (--disk)"* ]]
    big=$(bellhop exec -n one -c 'wc -c <~/big; rm ~/big')
    [ "$big" -ge $((64 * 1024 * 1024 - 20000000)) ] # with the other file it is over the limit
    [ "$big" -le 100000000 ]
    [ "$(bellhop exec -n one -c 'wc -c <~/small')" = 20000000 ]
    bellhop stop one
    [ "$(bellhop exec -n one -c 'echo goes on')" = "goes on" ]
}

@test "a box that is over --disk when it is started may not grow on" {
    up one --disk 16M
    run bellhop exec -n one -c 'head -c 30000000 /dev/zero >~/big; exec sleep 4321'
    wait_for 60 is_stopped
    run bellhop exec -n one -c 'head -c 30000000 /dev/zero >~/more; exec sleep 4321'
    [ "$status" -ne 0 ]
    wait_for 60 is_stopped
}

@test "exec --limit holds where the host has cgroup v2, and is refused with the reason where it has v1" {
    up one
    run bellhop exec -n --limit memory=64M one -c 'perl -e "\$x = q(a) x 200000000"; echo "status $?"'
    if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then
        [[ "$output" == *"status 137"* || "$status" -eq 137 ]] || fail "$output"
    else
        [ "$status" -eq 125 ]
        [[ "$output" == *"limits.memory_bytes"*"cgroup v1"*"a limit of the whole box works"* ]] || fail "$output"
    fi
    bellhop help exec | grep -q 'It needs a host with cgroup v2'
}
