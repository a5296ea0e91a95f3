#!/usr/bin/env bats
# early
# The slim image as a virtual machine, emulated: the kernel calls the agent as its first process. One
# machine has the squashfs with its changes in memory, another a disk of its own.
# needs: image

load ../lib/agent
load ../lib/vm

setup_file()
{
    vm_need
    export CURL_MAX_S=240 IMAGE=$BATS_FILE_TMPDIR/image VM=$BATS_FILE_TMPDIR/memory DISK=$BATS_FILE_TMPDIR/disk
    vm_image "$IMAGE"
    cp --sparse=always "$IMAGE/disk.ext4" "$BATS_FILE_TMPDIR/own.ext4"
    vm_start "$IMAGE" "$DISK" --disk "$BATS_FILE_TMPDIR/own.ext4" --memory 256 3>&- &
    vm_start "$IMAGE" "$VM" --root squashfs --memory 256 --append "hostname=testbox"
    wait $!
}
teardown_file() { vm_end "$VM" "$DISK" "$BATS_FILE_TMPDIR/bad"; }
setup()
{
    vm_need
    vm_use "$VM"
}

@test "vm the first process is the agent, and commands are the box's user's" {
    [ "$(shell 'cat /proc/1/comm; id -un')" = $'bellhopd\nuser' ]
    [ "$(shell 'sudo id -un; hostname')" = $'root\ntestbox' ] # no word of sudo's about the name
    [ "$(shell 'readlink /dev/fd /dev/stdin /dev/stdout /dev/stderr')" = $'/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2' ]
    [ "$(shell 'tty' | head -n 1)" = "not a tty" ]
    rpc Exec/Run '{"argv":["tty"],"pty":{}}' | jq -e '.stdout.text | startswith("/dev/pts/")'
    cmp <(rpc Exec/Run '{"argv":["/usr/local/bin/bellhopd","--version"]}' | jq -r .stdout.text) <("$BELLHOPD" --version && echo)
}

# where | type | an option that it must have
mounts()
{
    cat <<'ROWS'
/|overlay|rw
/proc|proc|nosuid
/sys|sysfs|nosuid
/dev|devtmpfs|nosuid
/dev/pts|devpts|mode=620
/dev/shm|tmpfs|nodev
/run|tmpfs|mode=755
/tmp|tmpfs|nosuid
/sys/fs/cgroup|cgroup2|rw
ROWS
}

@test "vm everything a box needs is mounted, on memory and on a disk" {
    local where type option table

    table=$(shell 'cat /proc/mounts')
    while IFS='|' read -r where type option; do
        awk -v where="$where" -v type="$type" -v option=",$option," \
            '$2 == where && $3 == type && index("," $4 ",", option) { n++ } END { exit n != 1 }' <<<"$table" ||
            fail "no $type at $where with $option in: $table"
    done < <(mounts)
    [ "$(shell 'echo a >/tmp/a; echo b >/dev/shm/b; cat /tmp/a /dev/shm/b; stat -c %a /tmp /dev/shm')" = $'a\nb\n1777\n1777' ]
    vm_use "$DISK"
    [ "$(shell 'grep -c "^/dev/vda / ext4 rw" /proc/mounts; stat -c %a /tmp; grep -c " /tmp " /proc/mounts || true')" = $'1\n1777\n0' ]
}

@test "vm the network of the command line is up, and the host can be reached" {
    local port server

    [ "$(shell "ip -4 -o addr show dev eth0 | awk '{print \$4}'; ip route show default | cut -d ' ' -f 3; cat /etc/resolv.conf; ip -4 -o addr show dev lo | awk '{print \$4}'")" = \
        $'10.0.2.15/24\n10.0.2.2\nnameserver 10.0.2.3\n127.0.0.1/8' ]
    mkdir "$BATS_TEST_TMPDIR/www"
    echo hello >"$BATS_TEST_TMPDIR/www/file"
    port=$(free_port)
    python3 -m http.server --bind 127.0.0.1 --directory "$BATS_TEST_TMPDIR/www" "$port" >/dev/null 2>&1 3>&- &
    server=$!
    wait_until 10 curl -sf "http://127.0.0.1:$port/file"
    run shell "curl -sS -m 120 http://10.0.2.2:$port/file"
    kill "$server"
    [ "$output" = hello ]
}

@test "vm the token is nowhere to be read in the machine" {
    [ "$(curl -s -o /dev/null -w '%{http_code}' -d '{}' -H 'Content-Type: application/json' "$AGENT_URL/bellhop.v1.Exec/List")" = 401 ]
    [ "$(shell 'ls -A /run/bellhop; ls /sys/firmware/qemu_fw_cfg 2>&1 | grep -c "No such"')" = 1 ]
    # The one that looks for it knows it by its halves, and has it in no argument.
    {
        echo "token() { printf %s%s ${AGENT_TOKEN::20} ${AGENT_TOKEN:20}; }"
        cat <<'SCRIPT'
cat /proc/cmdline /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\0' '\n' | grep -cFf <(token)
grep -rlsFf <(token) /run /etc /tmp /dev/shm /sys/firmware
true
SCRIPT
    } >"$BATS_TEST_TMPDIR/script"
    [ "$(shell "$(cat "$BATS_TEST_TMPDIR/script")" root)" = 0 ]
}

@test "vm orphans become the agent's, are reaped, and nobody's exit code is taken" {
    [ "$(shell '(setsid sleep 9876 &); until pgrep -x sleep >/dev/null; do :; done; ps -o ppid= -C sleep | tr -d " "; pkill -x sleep')" = 1 ]
    [ "$(shell 'for i in 1 2 3 4 5 6 7 8 9 10; do (setsid sh -c "sleep 0.05 & sleep 0.1 & exit 3" &); done; sh -c "exit 7"; echo $?')" = 7 ]
    wait_until 20 shell '! pgrep -x sleep && [ "$(ps -eo stat= | grep -c ^Z)" = 0 ]'
}

# Pure cgroup v2, all of it the agent's: its limits, its kills and its counters. A process that is killed for lack of
# memory still gets the pages that its end takes, so the peak may be above the limit.
# How the kernel divides time between user and system is an estimate of its own for a process and for a group.
# name @ request @ what must be true of the reply
ends()
{
    cat <<'ROWS'
memory@{"argv":["tail","/dev/zero"],"limits":{"memory_bytes":33554432}}@.exit.reason == "oom" and .exit.oom == true and .exit.signal == "SIGKILL" and .exit.tree == "gone" and .usage.tree_peak_bytes < 33554432 + 1000000 and .usage.tree_peak_bytes > 30000000
memory of a child@{"shell":"tail /dev/zero; exit 5","limits":{"memory_bytes":33554432}}@.exit.reason == "exited" and .exit.code == 5 and .exit.oom == true
no memory eaten@{"shell":"kill -9 $$","limits":{"memory_bytes":33554432}}@.exit.reason == "signaled" and .exit.oom == false
no limit, no OOM@{"shell":"kill -9 $$"}@.exit.reason == "signaled" and .exit.oom == false and .usage.tree_peak_bytes > 0
pids@{"shell":"b() { b | b & b; }; b 2>/dev/null","limits":{"pids":20},"timeout_ms":1000,"kill_grace_ms":100}@.exit.tree == "gone" and .exit.reason == "timeout"
cpu@{"shell":"while :; do :; done","limits":{"cpu_millis":200},"timeout_ms":2000,"kill_grace_ms":0}@.exit.reason == "timeout" and .usage.wall_ms > 2.5 * (.usage.user_ms + .usage.system_ms)
whole tree@{"shell":"setsid sleep 3001 & (setsid sh -c 'sleep 3002 & exit' &); env -i setsid sleep 3003 & sleep 3004","timeout_ms":700,"kill_grace_ms":100}@.exit.reason == "timeout" and .exit.tree == "gone"
what is left@{"shell":"env -i setsid sleep 3005 >/dev/null 2>&1 & echo on","id":"left"}@.exit.reason == "exited" and .exit.tree == "left" and .stdout.text == "on\n"
processor time of all@{"shell":"mkfifo f; (setsid sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; times >f' &); cat f"}@[.stdout.text | scan("m([0-9.]+)s")[0] | tonumber * 1000] as $child | $child[0] > 0 and .usage.user_ms + .usage.system_ms >= $child[0] + $child[1]
written@{"shell":"head -c 3000000 /dev/zero >written; sync written"}@.usage.write_bytes >= 3000000
ROWS
}

@test "vm limits, ends and counters are exact with the groups of cgroup v2" {
    local name request want

    vm_use "$DISK"
    while IFS='@' read -r name request want; do
        rpc Exec/Run "$request" >"$BATS_TEST_TMPDIR/reply"
        jq -e "$want" "$BATS_TEST_TMPDIR/reply" >/dev/null || fail "$name: $(cat "$BATS_TEST_TMPDIR/reply")"
    done < <(ends)
    [ "$(shell 'pgrep -c -x sleep; cat /proc/1/cgroup; cut -d - -f 1-3 /proc/self/cgroup')" = $'1\n0::/bellhop-agent\n0::/bellhop-box/bellhop-cmd' ]
    rpc Exec/Signal '{"id":"left","signal":"KILL","tree":true}' | jq -e '.id == "left"'
    wait_until 10 shell '! pgrep -x sleep'
    # Groups go with their commands, also the one that could not go at its end.
    rpc Exec/Forget '{"id":"left"}' -o /dev/null
    wait_until 10 shell '[ "$(ls -d /sys/fs/cgroup/bellhop-box/*/ | wc -l)" = 1 ]'
}

@test "vm the agent lives through commands without limits that fork without end, and answers meanwhile" {
    rpc Exec/Start '{"id":"bomb","shell":"b() { b | b & b; }; b 2>/dev/null","timeout_ms":4000,"kill_grace_ms":200}' -o /dev/null 3>&- &
    for _ in 1 2 3 4 5 6; do
        [ "$(agent_status /v1/health)" = 200 ]
        read -r -t 0.5 <> <(:) || true
    done
    rpc Exec/Wait '{"id":"bomb"}' | jq -e '.exit.reason == "timeout" and .exit.tree == "gone"'
    [ "$(shell 'echo well')" = well ]
}

# An agent that is not the first process, in a group of its own: the state of the group decides. Columns: name | the
# preparation of the group $g, by root | the agent's user | is the group divided
groups()
{
    cat <<'ROWS'
alone|:|root|yes
given to a user|chown user $g $g/cgroup.procs $g/cgroup.subtree_control|user|yes
a unit that is delegated|perl -e 'my ($n, $v) = ("trusted.delegate", "1"); syscall(-e "/lib64/ld-linux-x86-64.so.2" ? 188 : 5, $ARGV[0], $n, $v, 1, 0) == 0 or die $!' $g|root|yes
a unit that is not|:|root|no
not given to the user|:|user|no
with somebody else in it|sleep 1000 & echo $! >$g/cgroup.procs|root|no
with somebody else below it|mkdir $g/other|root|no
of another agent's command|g=/sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup)|root|no
ROWS
}

@test "vm an agent that is not the first process divides a group that is its own, and no other" {
    {
        cat <<'SCRIPT'
cd /run && mkfifo ready
try() {
    g=/sys/fs/cgroup/$(echo "$1" | tr ' ' -)
    case $1 in *unit*) g=$g.service ;; esac
    mkdir "$g"
    before=$(ls /sys/fs/cgroup)
    eval "$2"
    (echo 0 >"$g/cgroup.procs"; exec setpriv --reuid "$3" --regid "$3" --clear-groups \
        bellhopd --listen 127.0.0.1:0 --auth=open --ready-fd 3) 3>ready 2>log &
    pid=$!
    read -r line <ready || cat log
    is=no
    [ "$(cut -d : -f 3 "/proc/$pid/cgroup")" != "${g#/sys/fs/cgroup}/bellhop-agent" ] || is=yes
    [ $is = yes ] || [ ! -e "$g/bellhop-agent" ] || is="no, but begun"
    [ "$(ls /sys/fs/cgroup)" = "$before" ] || is="$is, and more"
    kill $pid
    wait $pid
    left=$(find "$g" -mindepth 1 -name 'bellhop-[ab]*')
    again=$(sh -c 'echo 0 >"$1/cgroup.procs" && echo in' sh "$g" 2>&1)
    [ "$is|$left|$again" = "$4||in" ] || echo "$1: divided: $is (wanted: $4); left: $left; then: $again"
}
while IFS='|' read -r name prepare user want; do
    try "$name" "$prepare" "$user" "$want" </dev/null
done <<'ROWS'
SCRIPT
        groups
        printf 'ROWS\necho tried\n'
    } >"$BATS_TEST_TMPDIR/script"
    vm_use "$DISK"
    CURL_MAX_S=300 run shell "$(cat "$BATS_TEST_TMPDIR/script")" root
    [ "$output" = tried ] || fail "$output"
}

@test "vm an agent in a group of its own keeps limits, and lives through hunger and a fork bomb without limits" {
    local first

    vm_use "$DISK"
    rpc Exec/Start '{"id":"inner","user":"root","shell":"cd /sys/fs/cgroup && mkdir own && echo 100M >own/memory.max && echo 400 >own/pids.max && echo 0 >own/cgroup.procs && exec bellhopd --listen 127.0.0.1:9000 --auth=open"}' -o /dev/null 3>&- &
    rpc System/WaitPort '{"port":9000,"timeout_ms":200000}' -o /dev/null
    AGENT_URL=$AGENT_URL/v1/proxy/9000
    first=$(rpc System/Info | jq .pid)
    [ "$(shell 'cut -d - -f 1-3 /proc/self/cgroup; cat /proc/$PPID/cgroup; cd /sys/fs/cgroup/own/bellhop-box; cat memory.max pids.max' root)" = \
        $'0::/own/bellhop-box/bellhop-cmd\n0::/own/bellhop-agent\n79691776\n272' ]
    rpc Exec/Run '{"argv":["tail","/dev/zero"],"limits":{"memory_bytes":33554432}}' |
        jq -e '.exit.reason == "oom" and .exit.oom == true and .exit.tree == "gone" and .usage.tree_peak_bytes <= 33554432'
    rpc Exec/Run '{"argv":["tail","/dev/zero"]}' | jq -e '.exit.reason == "oom" and .exit.oom == true and .exit.tree == "gone"'
    rpc Exec/Run '{"shell":"kill -9 $$"}' | jq -e '.exit.reason == "signaled" and .exit.oom == false'
    rpc Exec/Start '{"id":"bomb","shell":"b() { b | b & b; }; b 2>/dev/null","timeout_ms":3000,"kill_grace_ms":200}' -o /dev/null 3>&- &
    for _ in 1 2 3; do
        [ "$(agent_status /v1/health)" = 200 ]
        read -r -t 0.5 <> <(:) || true
    done
    rpc Exec/Wait '{"id":"bomb"}' | jq -e '.exit.reason == "timeout" and .exit.tree == "gone"'
    # Hidden in a group below its own, a process is still the command's.
    rpc Exec/Run '{"id":"hidden","user":"root","kill_grace_ms":100,"shell":"cd /sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup) && mkdir below && (echo 0 >below/cgroup.procs; exec env -i setsid sleep 3006) >/dev/null 2>&1 & until pgrep -x -f \"sleep 3006\"; do :; done"}' |
        jq -e '.exit.reason == "exited" and .exit.tree == "left"'
    rpc Exec/Signal '{"id":"hidden","signal":"KILL","tree":true}' -o /dev/null
    wait_until 20 shell '! pgrep -x -f "sleep 3006"'
    [ "$(rpc System/Info | jq .pid)" = "$first" ]
    vm_use "$DISK"
    rpc Exec/Signal '{"id":"inner","signal":"KILL","tree":true}' -o /dev/null
    rpc Exec/Wait '{"id":"inner","timeout_ms":200000}' -o /dev/null
}

@test "vm the power button ends everybody, and the disk is clean and keeps what was written" {
    vm_use "$DISK"
    shell 'sync; echo kept >/home/user/kept'
    # The commands' settings of a template.
    shell 'useradd --create-home bob && install -d -o bob /srv/app && mkdir -p /etc/bellhop && cd /etc/bellhop && echo bob >user &&
        echo /srv/app >workdir && echo COLOUR=dark red >env && echo "id -un >started; pwd >>started; echo \$COLOUR >>started; sleep 1000" >start' root
    ask_and_leave Exec/Start '{"shell":"trap \"sleep 0.2; echo told >/home/user/told; exit\" TERM; exec 5>/home/user/open; echo data >&5; while :; do sleep 0.1; done","id":"polite"}' \
        /dev/null shell 'grep -q data /home/user/open'
    "$TOP/image/qemu.sh" stop "$DISK" 180
    dumpe2fs -h "$BATS_FILE_TMPDIR/own.ext4" 2>/dev/null | grep -q '^Filesystem state: *clean'
    e2fsck -fn "$BATS_FILE_TMPDIR/own.ext4"
    ! dumpe2fs -h "$BATS_FILE_TMPDIR/own.ext4" 2>/dev/null | grep -q needs_recovery
}

@test "vm a second boot finds the disk, made larger, and all is as the template says: user, directory, variables, start command" {
    truncate -s +256M "$BATS_FILE_TMPDIR/own.ext4"
    vm_start "$IMAGE" "$DISK" --disk "$BATS_FILE_TMPDIR/own.ext4" --memory 256
    vm_use "$DISK"
    [ "$(shell 'cd; cat kept told open; sudo dmesg | grep -c "EXT4-fs.*recovery" || true')" = $'kept\ntold\ndata\n0' ]
    [ "$(shell 'df --output=size -BM / | tail -n 1 | tr -dc 0-9')" -gt \
        $(($(stat -c %s "$BATS_FILE_TMPDIR/own.ext4") / 1048576 * 8 / 10)) ]
    rpc Exec/Get '{"id":"start"}' | jq -e '.state == "running"'
    wait_until 10 shell '[ "$(cat /srv/app/started)" = "bob
/srv/app
dark red" ]'
    rpc Exec/Run '{"shell":"id -un; pwd; echo $HOME; echo $COLOUR"}' | jq -e '.stdout.text == "bob\n/srv/app\n/home/bob\ndark red\n"'
    # The next boot finds another one. Asked from within:
    shell 'echo gone >/etc/bellhop/user' root
    shell 'sudo kill -TERM 1' || true
    wait_until 180 vm_is_off "$DISK"
    dumpe2fs -h "$BATS_FILE_TMPDIR/own.ext4" 2>/dev/null | grep -q '^Filesystem state: *clean'
}

@test "vm a machine that can't be what it was told says why and turns itself off" {
    run "$TOP/image/qemu.sh" start "$IMAGE" "$BATS_FILE_TMPDIR/bad" --accel tcg --memory 256 --append "ip=dhcp"
    [ "$status" -eq 1 ]
    grep -q "'ip=dhcp' can't be had" "$BATS_FILE_TMPDIR/bad/console"
    vm_is_off "$BATS_FILE_TMPDIR/bad"
    run "$TOP/image/qemu.sh" start "$IMAGE" "$BATS_FILE_TMPDIR/bad" --disk "$BATS_FILE_TMPDIR/own.ext4" --accel tcg --memory 256
    [ "$status" -eq 1 ]
    grep -q "the template's user: .*'gone'" "$BATS_FILE_TMPDIR/bad/console"
    vm_is_off "$BATS_FILE_TMPDIR/bad"
}
