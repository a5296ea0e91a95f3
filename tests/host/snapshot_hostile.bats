# early
# Snapshots of boxes whose content is made to mislead: what the guest does to its own disk.
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
    if mountpoint -q "$BELLHOP_STATE_DIR"; then
        "$BELLHOP" gc >/dev/null 2>&1 || true
        wait_for 10 umount "$BELLHOP_STATE_DIR"
    fi
    box_teardown
}

up() # NAME [OPTION...]
{
    bellhop up -n "$1" --agent none --empty "${@:2}" >/dev/null 2>&1
}

@test "a file that is written through a mapping is in each snapshot as it was then, in a memory file system too" {
    mkdir -p "$BELLHOP_STATE_DIR"
    mount -t tmpfs -o mode=700,size=512m none "$BELLHOP_STATE_DIR"
    up one
    # there a write through a mapping changes no time of the file
    bellhop exec one -- sh -c 'echo 0 >mapped; mkfifo go done'
    bellhop exec one --detach -- python3 -c 'import mmap
f = open("mapped", "r+b")
m = mmap.mmap(f.fileno(), 2)
m[0:1] = b"1"
open("done", "w").write("1\n")
open("go").read()
m[0:1] = b"2"
open("done", "w").write("2\n")
open("go").read()' >/dev/null
    [ "$(bellhop exec one -- cat done)" = 1 ]
    wait_for 10 bellhop exec one -- sh -c '[ $(($(date +%s) - $(stat -c %Z mapped))) -ge 2 ]' # old: it may be shared
    bellhop snapshot one --name s1
    bellhop exec one -- sh -c 'echo >go'
    [ "$(bellhop exec one -- cat done)" = 2 ]
    bellhop snapshot one --name s2
    bellhop exec one -- sh -c 'echo >go'
    bellhop snapshots verify s1 s2
    bellhop up --from s1 -n a >/dev/null
    bellhop up --from s2 -n b >/dev/null
    [ "$(bellhop exec a -- cat mapped)" = 1 ]
    [ "$(bellhop exec b -- cat mapped)" = 2 ]
}

@test "a guest that swaps files, links, directories and sockets while it is copied gets whole snapshots" {
    up one
    bellhop exec one --detach --id swapper -- python3 -c 'import os, socket
os.mkdir("out"); open("out/f", "w").write("x" * 1000)
os.chdir("/workspace")
n = 0
while True:
    n += 1
    for i in range(40):
        name = "e%d" % i
        k = (n + i) % 5
        tmp = "t%d" % k
        if k == 0: open(tmp, "w").write("file")
        elif k == 1: os.symlink("/etc", tmp)
        elif k == 2: os.mkdir(tmp); open(tmp + "/in", "w").write("in")
        elif k == 3:
            s = socket.socket(socket.AF_UNIX); s.bind(tmp); s.close()
        else: os.link("out/f", tmp)
        try: os.unlink(name)
        except IsADirectoryError: os.unlink(name + "/in"); os.rmdir(name)
        except FileNotFoundError: pass
        os.rename(tmp, name)' >/dev/null
    wait_for 10 bellhop exec one -- test -e e39
    for i in 1 2 3 4 5 6; do bellhop snapshot one --name "s$i"; done
    bellhop kill one swapper
    bellhop snapshots verify s1 s2 s3 s4 s5 s6
    bellhop up --from s6 -n two >/dev/null
    [ "$(bellhop exec two -- sh -c 'ls -d e* | wc -l')" -ge 39 ]
}

@test "a box that is said to be paused and runs stands still while it is copied" {
    local id file

    up one
    bellhop exec one --detach --id writer -- python3 -c '
n = 0
while True:
    n += 1
    for i in range(300): open("f%03d" % i, "w").write("%09d" % n)' >/dev/null
    wait_for 10 bellhop exec one -- test -e f299
    bellhop pause one
    id=$(bellhop status one --json | jq -r .id)
    for file in /sys/fs/cgroup/freezer/bellhop-*-"$id"/freezer.state; do [ ! -e "$file" ] || echo THAWED >"$file"; done
    for file in /sys/fs/cgroup/bellhop-*-"$id"/cgroup.freeze /sys/fs/cgroup/unified/bellhop-*-"$id"/cgroup.freeze; do
        [ ! -e "$file" ] || echo 0 >"$file"
    done
    bellhop snapshot one --name s
    bellhop resume one
    bellhop kill one writer
    bellhop up --from s -n two >/dev/null
    # in one moment: a number, then the one before, and the file at hand may be empty
    [ "$(bellhop exec two -- sh -c 'cat f* | fold -w 9 | sort -u | wc -l')" -le 2 ]
    [ "$(bellhop exec two -- sh -c 'cat f* | fold -w 9 | sort -rc && echo sorted')" = sorted ]
}

@test "fork refuses a name that is taken or is none before anything is copied" {
    up one
    run bellhop fork one one
    [ "$status" -eq 4 ]
    [[ $output == *"there is a box 'one' already"* ]]
    run bellhop fork one 'X/../y'
    [ "$status" -eq 2 ]
    [ -z "$(bellhop events one --json | jq -r '.events[] | select(.kind == "snapshot").kind')" ]
    [ ! -e "$BELLHOP_STATE_DIR/snapshots" ]
}
