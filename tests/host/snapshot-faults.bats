# early
# Snapshots under faults: commands that are killed, a full disk, several at once, a hostile box.
# needs: image

load ../lib/box

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    box_setup
}
teardown()
{
    remove_with_snapshots
    ! mountpoint -q "$BELLHOP_STATE_DIR" || umount "$BELLHOP_STATE_DIR"
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

# The state of the box's freezer is WORD (v1), or its number (v2).
freezer_is() # frozen|thawed
{
    local file

    for file in /sys/fs/cgroup/freezer/bellhop-*-"$ID"/freezer.state /sys/fs/cgroup/bellhop-*-"$ID"/cgroup.events; do
        [ -e "$file" ] || continue
        case $1 in
            frozen) grep -Eqx 'FROZEN|frozen 1' "$file" ;;
            thawed) grep -Eqx 'THAWED|frozen 0' "$file" ;;
        esac
        return
    done
    return 1
}

freeze()
{
    local file

    for file in /sys/fs/cgroup/freezer/bellhop-*-"$ID"/freezer.state; do
        [ ! -e "$file" ] || echo FROZEN >"$file"
    done
    for file in /sys/fs/cgroup/bellhop-*-"$ID"/cgroup.freeze; do
        [ ! -e "$file" ] || echo 1 >"$file"
    done
}

# Nothing of an unfinished snapshot or restore is left after gc, and the box works.
check_clean() # NAME
{
    bellhop gc >/dev/null
    [ -z "$(ls "$BELLHOP_STATE_DIR/snapshots/making")" ]
    [ -z "$(find "$BELLHOP_STATE_DIR/snapshots" -maxdepth 1 -name 'gone-*')" ]
    [ -z "$(find "$BELLHOP_STATE_DIR/boxes" -maxdepth 3 -name disk.next)" ]
    bellhop exec "$1" -- true
}

# killed_at CALL:N COMMAND...: kills the command where it makes that system call for the Nth time. Fails if it never does.
killed_at()
{
    local status=0

    strace -qq -o /dev/null -e "trace=${1%:*}" -e "inject=${1%:*}:signal=KILL:when=${1#*:}" "$BELLHOP" "${@:2}" \
        >/dev/null 2>&1 || status=$?
    [ "$status" -eq 137 ]
}

@test "a snapshot that is killed in the frozen moment lets the box run on, and nothing of it is left" {
    up one
    ID=$(info one .id)
    bellhop exec one --detach --id count -- bash -c 'for ((i = 1;; i++)); do echo "$i" >>counts; sleep 0.02; done' >/dev/null
    # The mark of a directory that hides the image's is written again when the box stands still, and only then.
    bellhop exec one -- sh -c 'sudo rm -rf /etc/apt; sudo mkdir /etc/apt'
    killed_at fremovexattr:1 snapshot one --name s
    wait_for 5 freezer_is thawed
    [ "$(info one .state)" = running ]
    n=$(bellhop exec one -- tail -n 1 counts)
    wait_for 10 sh -c '[ "$("$0" exec one -- tail -n 1 counts)" -gt "$1" ]' "$BELLHOP" "$n"
    check_clean one
    [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" -eq 0 ]
    bellhop snapshot one --name s # the name is free
    bellhop snapshots verify s
    # its child was killed with it
    python3 - "$BELLHOP_STATE_DIR/store.db" "$ID" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("INSERT INTO snapshots(id, name, state, temporary, box_id, box_name, created_ms, remote)"
           " VALUES('00000000000000aa', 'died', 'making', 0, ?, 'one', 1, '')", sys.argv[2:])
db.commit()
P
    freeze
    freezer_is frozen || wait_for 5 freezer_is frozen
    bellhop gc >"$BOX_TMP/gc"
    freezer_is thawed
    grep -q "the snapshot 'died' was not finished" "$BOX_TMP/gc"
    check_clean one
}

@test "a snapshot that is killed at any change of the disk leaves nothing, and the next one works" {
    local at

    up one
    ID=$(info one .id)
    bellhop exec one -- sh -c 'mkdir d; echo 1 >d/a; ln d/a b; ln -s b c'
    for at in mkdirat:1 syncfs:1 mkdirat:3 linkat:1 syncfs:2 fork:1 rename:1 fsync:1; do
        if [ "$at" = fork:1 ]; then
            killed_at clone:1 snapshot one --name s || killed_at clone3:1 snapshot one --name s
        else
            killed_at "$at" snapshot one --name s || fail "not killed at $at"
        fi
        freezer_is thawed || wait_for 5 freezer_is thawed
        check_clean one
        [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" -eq 0 ] || fail "a snapshot after $at"
        [ -z "$(ls "$BELLHOP_STATE_DIR/snapshots/layers")" ] || fail "a layer after $at"
    done
    bellhop snapshot one --name s
    bellhop snapshots verify s
}

@test "an interrupted snapshot ends with 130, the box runs on, and nothing is left" {
    local at status

    up one
    ID=$(info one .id)
    bellhop exec one -- sh -c 'sudo rm -rf /etc/apt; sudo mkdir /etc/apt; mkdir d; cd d; seq 3000 | xargs touch'
    for at in mkdirat:1 fremovexattr:1; do
        status=0
        strace -qq -o /dev/null -e "trace=${at%:*}" -e "inject=${at%:*}:signal=INT:when=1" \
            "$BELLHOP" snapshot one --name s >/dev/null 2>&1 || status=$?
        [ "$status" -eq 130 ]
        freezer_is thawed
        [ -z "$(ls "$BELLHOP_STATE_DIR/snapshots/making")" ]
        [ "$(bellhop snapshots ls --json | jq '.snapshots | length')" -eq 0 ]
    done
    bellhop snapshot one --name s
}

@test "a restore that is killed at any point has left the old content or the new one" {
    local at content

    up one
    bellhop exec one -- sh -c 'echo 1 >a; echo 1 >b; mkdir d; echo 1 >d/x'
    bellhop snapshot one --name s
    for at in renameat2:1 unlinkat:1 unlinkat:4 mkdir:1; do
        bellhop exec one -- sh -c 'echo 2 >a; echo 2 >b; echo 2 >d/x; echo 2 >new'
        killed_at "$at" restore one s || fail "not killed at $at"
        bellhop start one
        check_clean one
        content=$(bellhop exec one -- sh -c 'cat a b d/x; ls')
        [ "$content" = "1
1
1
a
b
d" ] || [ "$content" = "2
2
2
a
b
d
new" ] || fail "after $at: $content"
        bellhop snapshots verify s
    done
    bellhop restore one s
    [ "$(bellhop exec one -- cat a)" = 1 ]
}

# A box with the content, session and snapshot `first`, then `second`; it has the layer of `second`.
two_contents()
{
    local word

    up one
    DIR=$BELLHOP_STATE_DIR/boxes/$(info one .id)
    for word in first second; do
        bellhop exec one -- sh -c "echo $word >a"
        echo "{\"session\": \"$word\"}" >"$DIR/agent.json"
        bellhop snapshot one --name "$word"
    done
    bellhop restore one second
}

# The box has the content WORD, and all that is stored about it fits; the other snapshot has no user.
check_fits() # first|second EVENT
{
    local other=first

    [ "$1" = second ] || other=second
    [ ! -e "$DIR/restore.json" ]
    [ ! -e "$DIR/oci/disk.next" ]
    [ "$(bellhop events one --json | jq -r '[.events[] | select(.kind | test("restore"))][-1].kind')" = "$2" ]
    [ "$(bellhop exec one -- cat a)" = "$1" ] || fail "$2: $(bellhop exec one -- cat a)"
    [ "$(jq -r .session "$DIR/agent.json")" = "$1" ] || fail "$1: $(cat "$DIR/agent.json")"
    run bellhop snapshots rm "$1"
    [ "$status" -eq 4 ]
    bellhop snapshots rm "$other"
    bellhop gc >/dev/null
    [ "$(find "$BELLHOP_STATE_DIR/snapshots/layers" -mindepth 1 -maxdepth 1 | wc -l)" -eq 1 ]
}

@test "after a restore that was killed, the next command makes layers, session and history fit the content" {
    local at want word event

    # before the exchange, after it, and before the intent is forgotten
    for at in renameat2:1:second unlinkat:1:first unlink:1:first; do
        two_contents
        word=${at##*:}
        event=restored
        [ "$word" = first ] || event='restore failed'
        [[ $at != unlink:* ]] || bellhop stop one # else the stop has the first unlink
        killed_at "${at%:*}" restore one first || fail "not killed at $at"
        [ -e "$DIR/restore.json" ]
        for want in first second; do # it is not known yet which one it has
            [[ $at == unlink:* ]] || { run bellhop snapshots rm "$want" && [ "$status" -eq 4 ]; }
        done
        bellhop gc --dry-run >"$BOX_TMP/gc"
        grep -qx 'one: a restore was interrupted, would be settled' "$BOX_TMP/gc"
        [ -e "$DIR/restore.json" ]
        if [[ $at == renameat2:* ]]; then
            bellhop start one
        else
            bellhop gc >"$BOX_TMP/gc"
            grep -qx 'one: a restore was interrupted' "$BOX_TMP/gc"
        fi
        check_fits "$word" "$event"
        bellhop rm one
        bellhop snapshots rm "$word"
    done
}

@test "a restore that fails leaves the box running with its content, and the snapshot without a user" {
    two_contents
    run strace -qq -o /dev/null -e trace=renameat2 -e inject=renameat2:error=EIO:when=1 "$BELLHOP" restore one first
    [ "$status" -ne 0 ]
    [[ $output == *"input/output error"* ]]
    [ "$(info one .state)" = running ]
    check_fits second 'restore failed'
    bellhop events one --json | jq -e '[.events[] | select(.kind == "restore failed")][0].cause | contains("input/output error")'
}

@test "an up --from and a fork that are killed leave nothing that gc does not end" {
    up one
    bellhop exec one -- sh -c 'echo 1 >a'
    bellhop snapshot one --name s
    for at in mkdir:2 rename:1 fdatasync:6; do
        killed_at "$at" up --from s -n two || true
        bellhop gc >/dev/null
        bellhop rm -f two
        killed_at "$at" fork one two || true
        bellhop gc >/dev/null
        bellhop rm -f two
        check_clean one
        [ "$(bellhop ls -q)" = one ]
    done
    bellhop snapshots rm s # no box has it any more
}

# WORD is the number of snapshots of forks that are ready.
fork_snapshots_are() # WORD
{
    [ "$(python3 -c '
import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT count(*) FROM snapshots WHERE temporary AND state = \"ready\"").fetchone()[0])
' "$BELLHOP_STATE_DIR/store.db")" -eq "$1" ]
}

@test "gc removes the snapshot of a fork that is dead, and leaves that of one at work alone" {
    local pid

    up one
    bellhop exec one -- sh -c 'echo 1 >a'
    # It has its snapshot, and waits for the name of the new box.
    exec 9>"$BELLHOP_STATE_DIR/locks/two"
    flock 9
    (exec "$BELLHOP" fork one two >/dev/null 2>&1 3>&- 9>&-) &
    pid=$!
    wait_for 20 fork_snapshots_are 1
    bellhop gc >/dev/null 9>&-
    fork_snapshots_are 1
    end_now "$pid"
    bellhop gc >"$BOX_TMP/gc" 9>&-
    exec 9>&-
    fork_snapshots_are 0
    grep -Eqx "the snapshot 'fork-[0-9a-f]{16}' of a fork was removed" "$BOX_TMP/gc"
    [ -z "$(ls "$BELLHOP_STATE_DIR/snapshots/layers")" ]
    [ -z "$(find "$BELLHOP_STATE_DIR/locks" -name 'fork-*')" ]
}

@test "a full disk fails a snapshot with its own status, leaves nothing and room for the others" {
    mkdir -m 0700 "$BELLHOP_STATE_DIR"
    mount -t tmpfs -o size=200m,mode=700 tmpfs "$BELLHOP_STATE_DIR"
    up one
    bellhop exec one -- sh -c 'echo small >a; head -c 100000000 /dev/urandom >big'
    run bellhop snapshot one --name s
    [ "$status" -eq 8 ]
    [[ $output == *"64 MiB are free"* ]]
    [ "$(bellhop events one --json | jq -r '[.events[].kind] | index("snapshot failed") != null')" = true ]
    [ "$(du -s "$BELLHOP_STATE_DIR/snapshots" | cut -f 1)" -lt 100 ]
    [ "$(info one .state)" = running ]
    bellhop exec one -- rm big
    bellhop snapshot one --name s
    bellhop up --from s -n two >/dev/null
    [ "$(bellhop exec two -- cat a)" = small ]
    bellhop rm one two
    bellhop snapshots rm s
}

@test "snapshots, restores and gcs at once: each is whole or refused, and each layer is removed once" {
    local pids=() i n=0

    up one
    bellhop exec one -- sh -c 'for i in $(seq 300); do echo $i >f$i; done'
    for i in 1 2 3 4; do
        "$BELLHOP" snapshot one --name "s$i" >"$BOX_TMP/out.$i" 2>&1 3>&- &
        pids+=($!)
        "$BELLHOP" snapshot one --name same >"$BOX_TMP/same.$i" 2>&1 3>&- &
        pids+=($!)
        "$BELLHOP" gc >/dev/null 2>&1 3>&- &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || n=$((n + 1)); done
    [ "$n" -eq 3 ] # three of the four that wanted one name
    bellhop snapshots verify s1 s2 s3 s4 same
    bellhop rm one
    # Their rows are gone, and their layers are left: as if each rm had been killed in between.
    python3 - "$BELLHOP_STATE_DIR/store.db" <<'P'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("DELETE FROM snapshots")
db.commit()
P
    n=$(ls "$BELLHOP_STATE_DIR/snapshots/layers" | wc -l)
    [ "$n" -ge 1 ]
    [ "$(bellhop gc --dry-run | grep -c 'would be removed')" -eq "$n" ]
    for i in 1 2 3 4; do "$BELLHOP" gc >"$BOX_TMP/gc.$i" 2>&1 3>&- & done
    wait
    [ "$(cat "$BOX_TMP"/gc.? | grep -c 'a layer that')" -eq "$n" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR/snapshots/layers")" ]
}

@test "a hostile box: names, deep trees, attributes of overlayfs, holes; nothing outside of its disk is read or made" {
    up one
    bellhop exec one -- python3 - <<'P'
import os
os.makedirs("/workspace/h"); os.chdir("/workspace/h")
for name in [b"a\nb", b"\\x2e", b"-rf", b"\xff\xfe", b" ", b"..."]:
    open(name, "w").write("x")
os.symlink("/etc/shadow", "shadow"); os.symlink("../../../../../../etc", "etc")
os.symlink("x" * 4000, "long")
for name, value in [("user.overlay.opaque", b"y"), ("user.overlay.redirect", b"/etc"), ("user.x", b"\0\n")]:
    os.setxattr("...", name, value)
for name in ["trusted.overlay.opaque", "trusted.overlay.whiteout", "security.capability"]:
    try:
        os.setxattr(".", name, b"y")
    except OSError:
        continue
    raise SystemExit("the box could set " + name)
os.chmod("...", 0o7777)
with open("holes", "wb") as f:
    f.truncate(1 << 42)
    f.seek(1 << 41)
    f.write(b"in the middle")
P
    bellhop snapshot one --name s
    [ "$(du -s --block-size=1M "$BELLHOP_STATE_DIR/snapshots" | cut -f 1)" -lt 10 ]
    [ "$(stat -c %a "$BELLHOP_STATE_DIR/snapshots")" = 700 ]
    bellhop up --from s -n two >/dev/null
    bellhop exec two -- python3 - <<'P'
import os
os.chdir("/workspace/h")
want = {b"a\nb", b"\\x2e", b"-rf", b"\xff\xfe", b" ", b"...", b"shadow", b"etc", b"long", b"holes"}
assert set(os.listdir(b".")) == want, os.listdir(b".")
assert os.getxattr("...", "user.x") == b"\0\n" and os.getxattr("...", "user.overlay.opaque") == b"y"
assert os.stat("...").st_mode & 0o7777 == 0o7777
assert os.readlink("shadow") == "/etc/shadow" and len(os.readlink("long")) == 4000
f = open("holes", "rb"); f.seek(1 << 41)
assert f.read(13) == b"in the middle" and os.stat("holes").st_size == 1 << 42
P
    bellhop snapshots verify s
    # deeper than a path can be
    bellhop exec one -- python3 -c '
import os
for i in range(60):
    os.mkdir("d" * 100); os.chdir("d" * 100)'
    run bellhop snapshot one --name deep
    [ "$status" -eq 8 ]
    [ "$(info one .state)" = running ]
    check_clean one
}
