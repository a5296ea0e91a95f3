# early
# Snapshots of boxes: what is in them, boxes made from them, restore, fork, damage, commands that die.
# needs: image

load ../lib/box
load ../lib/runsc

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
}
teardown()
{
    remove_with_snapshots
    "$BELLHOP" gc >/dev/null 2>&1 || true
    # Nothing of a snapshot is left once its row is gone.
    [ -z "$(find "$BELLHOP_STATE_DIR/snapshots" -mindepth 1 ! -name lock ! -name layers ! -name making 2>/dev/null)" ] || {
        find "$BELLHOP_STATE_DIR/snapshots" -mindepth 1 | head >&2
        box_teardown
        return 1
    }
    box_teardown
}

up() # NAME [OPTION...]
{
    bellhop up -n "$1" --agent none --empty "${@:2}" >/dev/null 2>&1
}

info() # NAME FILTER
{
    bellhop status "$1" --json | jq -r "$2"
}

layers() { find "$BELLHOP_STATE_DIR/snapshots/layers" -mindepth 1 -maxdepth 1 | wc -l; }

kinds() # NAME: the events that change no state
{
    bellhop events "$1" --json | jq -r '[.events[] | select(.kind != "state").kind] | join(" ")'
}

# The first path of the box's group's freezer that exists.
is_running_freely() # NAME
{
    local file

    for file in /sys/fs/cgroup/freezer/bellhop-*-"$(info "$1" .id)"/freezer.state \
        /sys/fs/cgroup/bellhop-*-"$(info "$1" .id)"/cgroup.events; do
        [ ! -e "$file" ] || grep -Eqx 'THAWED|frozen 0' "$file"
    done
}

@test "a snapshot has files, links, empty directories, whiteouts, times and owners, and a box made from it has them again" {
    up one
    bellhop exec one -- sh -c 'mkdir -p d/empty; echo hello >a; ln a b; ln -s a l; mkfifo f; chmod 4750 a
        sudo touch -d 2001-02-03T04:05:06.5 root; sudo chown 0:1000 root; sudo rm /etc/debian_version
        sudo rm -rf /etc/apt; sudo mkdir /etc/apt; echo new | sudo tee /etc/apt/new
        truncate -s 1T sparse; touch -d 2002-01-01 d/empty; echo me >~/mine'
    # user::rwx, user:1000:rwx, group::r-x, mask::rwx, other::r-x
    acl=0200000001000700ffffffff02000700e803000004000500ffffffff10000700ffffffff20000500ffffffff
    bellhop exec one -- sudo python3 -c "import os
for path in '/', 'f': os.setxattr(path, 'system.posix_acl_access', bytes.fromhex('$acl'))"
    bellhop snapshot one --name s
    [ "$(kinds one)" = snapshot ]
    [ "$(info one .state)" = running ]
    is_running_freely one
    [ "$(du -s --block-size=1M "$BELLHOP_STATE_DIR/snapshots" | cut -f 1)" -lt 10 ]
    bellhop rm one
    bellhop up --from s -n two >/dev/null
    run bellhop exec two -- sh -c 'exec 2>&1; stat -c "%n %F %a %u:%g %h" a b l f d/empty root; cat a; stat -c %i a b | uniq | wc -l
        stat -c "%y" root d/empty; ls /etc/apt /etc/debian_version; cat /etc/apt/new; stat -c %s sparse; cat ~/mine'
    [ "$output" = "a regular file 4750 1000:1000 2
b regular file 4750 1000:1000 2
l symbolic link 777 1000:1000 1
f fifo 775 1000:1000 1
d/empty directory 755 1000:1000 2
root regular empty file 644 0:1000 1
hello
1
2001-02-03 04:05:06.500000000 +0000
2002-01-01 00:00:00.000000000 +0000
ls: cannot access '/etc/debian_version': No such file or directory
/etc/apt:
new
new
1099511627776
me" ]
    [ "$(bellhop exec two -- python3 -c "import os
for path in '/', 'f': print(os.getxattr(path, 'system.posix_acl_access').hex())")" = "$acl
$acl" ]
    bellhop snapshots verify s
}

@test "a second snapshot costs what changed since, and two boxes of one snapshot share it and do not see each other" {
    local before

    up one
    bellhop exec one -- sh -c 'head -c 20000000 /dev/urandom >big; for i in $(seq 200); do echo $i >f$i; done'
    # A file that changed a moment before a copy is copied again by the next one.
    wait_for 10 bellhop exec one -- sh -c '[ "$(($(date +%s%N) - $(date -r f200 +%s%N)))" -gt 200000000 ]'
    bellhop snapshot one --name s1
    bellhop exec one -- sh -c 'echo changed >f7; rm f8'
    before=$(du -s --block-size=1K "$BELLHOP_STATE_DIR/snapshots" | cut -f 1)
    [ "$(bellhop snapshot one --name s2 --json | jq .copied_bytes)" -lt 1000000 ]
    [ $(($(du -s --block-size=1K "$BELLHOP_STATE_DIR/snapshots" | cut -f 1) - before)) -lt 1000 ]
    bellhop up --from s1 -n a >/dev/null
    bellhop up --from s1 -n b >/dev/null
    bellhop up --from s2 -n c >/dev/null
    bellhop exec a -- sh -c 'echo a >f7; echo a >big'
    [ "$(bellhop exec b -- cat f7 f8)" = "7
8" ]
    [ "$(bellhop exec b -- stat -c %s big)" = 20000000 ]
    [ "$(bellhop exec c -- sh -c 'cat f7; ls f8 2>&1')" = "changed
ls: cannot access 'f8': No such file or directory" ]
    bellhop snapshots verify s1 s2
}

@test "a snapshot of a box made from one is a layer on top, and one without a change is no layer" {
    up one
    bellhop exec one -- sh -c 'echo 1 >a; echo 1 >b; mkdir d; echo 1 >d/x'
    bellhop snapshot one --name s1
    bellhop up --from s1 -n two >/dev/null
    bellhop exec two -- sh -c 'echo 2 >a; rm b; rm -r d; mkdir d; echo 2 >d/y'
    bellhop snapshot two --name s2
    [ "$(bellhop snapshots ls --json | jq -c '.snapshots | map(.layers | length)')" = "[1,2]" ]
    [ "$(bellhop snapshots)" = "$(bellhop snapshots ls)" ]
    bellhop up --from s2 -n three >/dev/null
    [ "$(bellhop exec three -- sh -c 'cat a; ls; ls d')" = "2
a
d
y" ]
    [ "$(bellhop snapshots ls --json | jq -r '.snapshots[1].layers[0] == .snapshots[0].layers[0]')" = true ]
    bellhop stop three # a box that starts makes places for its mounts
    bellhop restore three s2
    bellhop snapshot three --name s3
    [ "$(bellhop snapshots ls --json | jq -r '.snapshots[2].layers == .snapshots[1].layers')" = true ]
}

@test "restore gives a box its content back; it keeps its name, id and key; it runs if it ran or was paused, and stays stopped" {
    local id

    bellhop up -n one --key k --agent none --empty >/dev/null 2>&1
    id=$(info one .id)
    bellhop exec one -- sh -c 'echo before >a'
    bellhop snapshot one --name s
    bellhop exec one -- sh -c 'echo after >a; echo more >b; sudo rm -rf /etc/apt'
    bellhop restore one s
    [ "$(info one .id)" = "$id" ]
    [ "$(info one '.keys[0]')" = k ]
    [ "$(info one .state)" = running ]
    [ "$(bellhop exec one -- sh -c 'cat a; ls; ls -d /etc/apt')" = "before
a
/etc/apt" ]
    [ "$(kinds one)" = "snapshot restoring restored" ]
    bellhop exec one -- sh -c 'echo again >a'
    bellhop stop one
    [ "$(bellhop restore one s --json | jq -r .state)" = stopped ]
    bellhop start one
    [ "$(bellhop exec one -- cat a)" = before ]
    [ ! -e "$BELLHOP_STATE_DIR/boxes/$id/oci/disk.next" ]
    bellhop exec one -- sh -c 'echo once more >a'
    bellhop pause one
    [ "$(bellhop restore one s --json | jq -r .state)" = running ]
    [ "$(bellhop exec one -- cat a)" = before ]
}

@test "a command whose box is restored or ends meanwhile says so, also if it hears of it when the box runs again" {
    local end pid status

    up one
    bellhop snapshot one --name s
    for end in restore kill; do
        (exec "$BELLHOP" exec one -- sleep 60 >"$BOX_TMP/out" 2>"$BOX_TMP/err" 3>&-) &
        pid=$!
        wait_for 10 sh -c '[ "$("$0" ps -q one | wc -l)" -eq 1 ]' "$BELLHOP"
        kill -STOP "$pid"
        case $end in
        restore) bellhop restore one s ;;
        kill) # the guest agent has no time to tell how the command ended
            kill -9 "$(jq .init.pid "$BELLHOP_STATE_DIR/boxes/$(info one .id)/run.json")"
            wait_for 10 sh -c '[ "$("$0" status one --json | jq -r .state)" = stopped ]' "$BELLHOP"
            bellhop start one
            ;;
        esac
        kill -CONT "$pid"
        status=0
        wait "$pid" || status=$?
        if [ "$end" = kill ] || [ "$status" -lt 128 ]; then
            [ "$status" -eq 125 ] || fail "$end: $status"
            grep -Eqx "bellhop: the box 'one' was stopped while the command ran: (a snapshot is restored|the box's first process .*)" \
                "$BOX_TMP/err" || fail "$end: $(cat "$BOX_TMP/err")"
        fi
    done
}

@test "fork makes a box with the content, the options, variables and secrets, and a token of its own" {
    SECRET=geheim bellhop up -n one --agent none --empty -e COLOUR=red --secret SECRET -l team=a --memory 300M >/dev/null 2>&1
    bellhop exec one -- sh -c 'echo mine >a'
    [ "$(bellhop -q fork one)" = one-2 ]
    [ "$(bellhop exec one-2 -- sh -c 'cat a; echo $COLOUR; cat /run/secrets/SECRET')" = "mine
red
geheim" ]
    [ "$(info one-2 '.labels.team, .options.memory_bytes')" = "a
314572800" ]
    [ "$(info one-2 .id)" != "$(info one .id)" ]
    run cmp "$(info one .guest.token_file)" "$(info one-2 .guest.token_file)"
    [ "$status" -eq 1 ]
    bellhop exec one -- sh -c 'echo other >a'
    [ "$(bellhop exec one-2 -- cat a)" = mine ]
    [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" -eq 0 ]
    bellhop fork one named
    [ "$(bellhop exec named -- cat a)" = other ]
}

@test "a snapshot's record has no values of variables and no secret, and says which variables there were" {
    SECRET=g3heim bellhop up -n one --agent none --empty -e TOKEN=s3hr-geheim --secret SECRET >/dev/null 2>&1
    bellhop snapshot one --name s
    [ "$(bellhop snapshots ls --json | jq -c '.snapshots[0].variables')" = '["TOKEN"]' ]
    bellhop rm one
    bellhop gc
    run grep -r -e s3hr-geheim -e g3heim "$BELLHOP_STATE_DIR"
    [ "$status" -eq 1 ]
    bellhop up --from s >/dev/null
    [ "$(bellhop exec one -- sh -c 'echo "<$TOKEN>"')" = "<>" ]
}

@test "up --from takes the options of the snapshot's box, refuses those that it decides, and finds its box again" {
    up one --network none --memory 300M -l k=v --on-gone recreate
    bellhop snapshot one --name s
    run bellhop up --from s
    [ "$status" -eq 4 ]
    [[ $output == *"another name, or use 'bellhop restore'"* ]]
    bellhop up --from s -n two --memory 400M >/dev/null
    [ "$(info two '.options.network, .options.memory_bytes, .labels.k, .options.on_gone')" = "none
419430400
v
recreate" ]
    [ "$(bellhop up --from s -n two --json | jq -r .id)" = "$(info two .id)" ]
    [ "$(kinds two)" = from ]
    run bellhop up --from s -n three --image host
    [ "$status" -eq 4 ]
    run bellhop up --from s -n three --dest /elsewhere
    [ "$status" -eq 4 ]
    run bellhop up --from s .
    [ "$status" -eq 2 ]
    run bellhop up --from missing -n three
    [ "$status" -eq 3 ]
    [ "$(bellhop ls -q | sort | tr '\n' ' ')" = "one two " ]
}

@test "the process provider cannot make snapshots and says why" {
    bellhop up -n one --provider process --agent none --empty >/dev/null 2>&1
    run bellhop snapshot one
    [ "$status" -eq 9 ]
    [[ $output == *"its boxes have this machine's files"* ]]
    run bellhop fork one
    [ "$status" -eq 9 ]
    [ "$(kinds one)" = "" ]
}

@test "a snapshot while files change has no half file, and the box runs on" {
    up one
    # each file is written whole or not at all by a rename, and each line of the log in one write
    bellhop exec one --detach --id writer -- bash -c 'i=0; while :; do i=$((i + 1)); n=$((i % 50))
        head -c 100000 /dev/zero | tr "\0" "$((i % 10))" >.tmp; mv .tmp "f$n"; echo "$i" >>log; done' >/dev/null
    wait_for 10 bellhop exec one -- test -e f20
    for i in 1 2 3; do bellhop snapshot one --name "s$i"; done
    is_running_freely one
    bellhop exec one -- sh -c 'n=$(wc -l <log); while [ "$(wc -l <log)" = "$n" ]; do :; done'
    bellhop kill one writer
    for i in 1 2 3; do
        bellhop up --from "s$i" -n "b$i" >/dev/null
        bellhop exec "b$i" -- bash -c 'for f in f*; do [ "$(wc -c <"$f")" = 100000 ] || exit 1
            [ "$(tr -d "$(head -c 1 "$f")" <"$f" | wc -c)" = 0 ] || exit 2; done; diff log <(seq "$(wc -l <log)")'
    done
    bellhop snapshots verify s1 s2 s3
}

@test "stopped and paused boxes can be snapshotted and stay as they are" {
    up one
    bellhop exec one -- sh -c 'echo 1 >a'
    bellhop pause one
    bellhop snapshot one --name s1
    [ "$(info one .state)" = paused ]
    bellhop resume one
    bellhop exec one -- sh -c 'echo 2 >a'
    bellhop stop one
    bellhop snapshot one --name s2
    [ "$(info one .state)" = stopped ]
    bellhop up --from s1 -n b1 >/dev/null
    bellhop up --from s2 -n b2 >/dev/null
    [ "$(bellhop exec b1 -- cat a; bellhop exec b2 -- cat a)" = "1
2" ]
}

@test "a damaged snapshot is refused by name, verify names the path, and nothing has changed" {
    local tree manifest

    up one
    bellhop exec one -- sh -c 'echo right >a'
    bellhop snapshot one --name s
    tree=$(echo "$BELLHOP_STATE_DIR"/snapshots/layers/*/tree)
    manifest=${tree%/tree}/manifest
    cp -p "$tree/workspace/a" "$BOX_TMP/a"
    printf wrong >"$tree/workspace/a"
    run bellhop snapshots verify s
    [ "$status" -eq 11 ]
    [[ $output == *"'s'"*"damaged: 'workspace/a'"* ]]
    cat "$BOX_TMP/a" >"$tree/workspace/a"
    touch -r "$BOX_TMP/a" "$tree/workspace/a"
    bellhop snapshots verify s
    cp "$manifest" "$BOX_TMP/manifest"
    sed -i 's/\tworkspace\/a\t/\tworkspace\/b\t/' "$manifest"
    for command in "up --from s -n two" "restore one s"; do
        run bellhop $command
        [ "$status" -eq 11 ]
        [[ $output == *"the snapshot 's'"*"damaged"* ]]
    done
    [ "$(bellhop ls -q)" = one ]
    [ "$(info one .state)" = running ]
    [ "$(bellhop exec one -- cat a)" = right ]
    cat "$BOX_TMP/manifest" >"$manifest"
    bellhop restore one s
}

@test "rm refuses a snapshot that a box has as its disk, and gc keeps what is used" {
    up one
    bellhop exec one -- sh -c 'echo 1 >a'
    bellhop snapshot one --name s1
    bellhop snapshot one --name s2
    bellhop up --from s1 -n two >/dev/null
    run bellhop snapshots rm s1
    [ "$status" -eq 4 ]
    [[ $output == *"the box 'two'"* ]]
    bellhop gc
    bellhop stop two
    bellhop start two
    [ "$(bellhop exec two -- cat a)" = 1 ]
    bellhop rm two
    bellhop snapshots rm s1
    bellhop up --from s2 -n three >/dev/null # it shares the content
    [ "$(bellhop exec three -- cat a)" = 1 ]
    bellhop rm one three
    bellhop snapshots rm s2
    [ "$(layers)" -eq 0 ]
}

@test "snapshots have names of their own, and every command speaks json" {
    up one
    [ "$(bellhop snapshot one --json | jq -r .name)" = one-1 ]
    [ "$(bellhop snapshot one --json | jq -r .name)" = one-2 ]
    [ "$(bellhop snapshots ls --json | jq -r '.snapshots | map(.name) | join(" ")')" = "one-1 one-2" ]
    [ "$(bellhop snapshots verify one-1 one-2 --json | jq -c .verified)" = '["one-1","one-2"]' ]
    run bellhop snapshot one --name one-1
    [ "$status" -eq 4 ]
    run bellhop snapshot one --name 'A/b'
    [ "$status" -eq 2 ]
    [ "$(bellhop fork one --json | jq -r .state)" = running ]
    [ "$(bellhop up --from one-1 -n three --json | jq -r .state)" = running ]
    [ "$(bellhop restore one one-2 --json | jq -r .state)" = running ]
    bellhop rm one one-2 three
    [ "$(bellhop snapshots rm one-1 one-2 --json | jq -c .removed)" = '["one-1","one-2"]' ]
    run bellhop snapshots verify one-1
    [ "$status" -eq 3 ]
}

@test "a box that is gone is typed, and its last snapshot is named; the snapshot makes its box again" {
    up one --key k
    bellhop exec one -- sh -c 'echo kept >a'
    bellhop snapshot one --name first
    bellhop snapshot one --name last
    bellhop rm one
    for command in "exec one -- true" "start one" "status one"; do
        run bellhop --json $command
        [ "$status" -eq 3 ] || [ "$status" -eq 125 ]
        [ "$(jq -r '.error.code, (.error.detail | fromjson.gone.snapshot)' <<<"$output")" = "not_found
last" ]
    done
    run bellhop start one
    [[ $output == *"'bellhop up --from last' makes a box of its last snapshot"* ]]
    [ "$(bellhop up --from last --json | jq -r .name)" = one ]
    [ "$(bellhop exec one -- cat a)" = kept ]
    # a box whose disk is lost: its end is typed the same way, and says where its content is
    bellhop snapshot one --name third
    bellhop stop one
    rm -rf "$BELLHOP_STATE_DIR/boxes/$(info one .id)"
    run bellhop --json start one
    [ "$status" -eq 3 ]
    [ "$(jq -r '.error.detail | fromjson.gone | .cause, .snapshot' <<<"$output")" = "its disk is gone
third" ]
    bellhop up --from third >/dev/null
    [ "$(bellhop exec one -- cat a)" = kept ]
}

@test "an image that a snapshot is over is not removed, and a snapshot whose image was replaced is refused" {
    export BELLHOP_IMAGES=$BOX_TMP/images
    cp -al "$BATS_TEST_DIRNAME/../../build/image" "$BELLHOP_IMAGES"
    up one
    bellhop snapshot one --name s
    bellhop rm one
    run bellhop image rm tests
    [ "$status" -eq 4 ]
    [[ $output == *"'snapshot s'"* ]]
    dir=$(readlink -f "$BELLHOP_IMAGES/tests")
    cp "$dir/manifest.json" "$BOX_TMP/manifest"
    rm "$dir/manifest.json"
    jq '.hash = "0000000000000000"' "$BOX_TMP/manifest" >"$dir/manifest.json"
    run bellhop up --from s
    [ "$status" -eq 4 ]
    [[ $output == *"was replaced"* ]]
    mv "$dir" "$dir.away"
    run bellhop up --from s
    [ "$status" -eq 4 ]
    [[ $output == *"is gone"* ]]
    mv "$dir.away" "$dir"
    bellhop snapshots rm s
}

@test "a disk has up to 32 layers, all of them are seen, and one more is refused" {
    local i upper

    up one
    bellhop stop one
    upper=$BELLHOP_STATE_DIR/boxes/$(info one .id)/oci/disk/upper
    for i in $(seq 32); do
        mkdir -p "$upper/workspace"
        chown --reference="$upper" "$upper/workspace"
        echo "$i" >"$upper/workspace/f$i"
        echo "$i" >"$upper/workspace/last"
        bellhop -q snapshot one --name "s$i" >/dev/null
        bellhop -q restore one "s$i"
    done
    [ "$(bellhop snapshots ls --json | jq -c '.snapshots | map(.layers | length)')" = "[$(seq -s , 32)]" ]
    bellhop gc
    [ "$(layers)" -eq 32 ]
    bellhop start one
    [ "$(bellhop exec one -- sh -c 'cat f* last' | sort -n | tr '\n' ' ')" = "$(seq 32 | tr '\n' ' ')32 " ]
    run bellhop snapshot one
    [ "$status" -eq 8 ]
    [[ $output == *"32 layers"* ]]
    run bellhop fork one
    [ "$status" -eq 8 ]
    [ "$(info one .state)" = running ]
}

# In a mount namespace of its own, runsc is where the system's programs are.
life_of_gvisor_box()
{
    mount -t tmpfs none /usr/local/sbin && cp "$1/runsc" /usr/local/sbin || return 1
    up one --runtime runsc --allow-missing pids_limit || return 1
    bellhop exec one -- sh -c 'echo kept >file; mkdir dir; ln -s file link'
    if bellhop snapshot one --name s 2>"$BOX_TMP/refused"; then return 1; fi
    bellhop stop one
    bellhop snapshot one --name s
    [ "$(bellhop exec one -- cat link)" = kept ] && echo started again
    bellhop -q up -n two --agent none --runtime runsc --allow-missing pids_limit --from s >/dev/null || return 1
    [ "$(bellhop exec two -- cat link)" = kept ] && echo from the snapshot
    bellhop rm one
    bellhop rm two
}

@test "what a gVisor box wrote is there after a stop, and in the snapshot of a stopped one" {
    local dir

    dir=$(runsc_dir) || skip "runsc can't be had from the backports here"
    export -f life_of_gvisor_box up bellhop
    export BELLHOP BOX_TMP
    run unshare -m bash -c "life_of_gvisor_box $dir"
    [[ "$output" == *"started again"*"from the snapshot"* ]] || { echo "$output"; false; }
    grep -q 'stop the box first' "$BOX_TMP/refused"
    bellhop snapshots rm s
}
