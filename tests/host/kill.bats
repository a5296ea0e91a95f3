# early
# `bellhop up`, killed with -9 before each of its system calls that change something: between two of them no
# difference is visible. The remains must be complete, or gone after gc.

load ../lib/box

setup() { box_setup; }
teardown() { box_teardown; }

UP=(up --name one --provider process --agent none --empty)
# Calls that change something. Calls that read, map, wait or ask are left out; fcntl takes locks.
CHANGES=openat,mkdir,mkdirat,pwrite64,write,writev,fdatasync,fsync,ftruncate,rename,renameat,renameat2,unlink,unlinkat
CHANGES+=,rmdir,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,fchown,fchownat,clone,clone3,vfork,fork,execve,kill
CHANGES+=,connect,sendto,sendmsg,socketpair,flock,fcntl,wait4,waitid,pidfd_send_signal

# The calls of an up that nobody kills: "openat 1", "openat 2", ... one a line.
list_calls()
{
    strace -e "trace=?${CHANGES//,/,?}" -o "$BOX_TMP/calls" "$BELLHOP_BUILD/bellhop" "${UP[@]}" >/dev/null 2>&1
    sed -n 's/^\([a-z0-9_]*\)(.*/\1/p' "$BOX_TMP/calls" | awk '{ print $1, ++n[$1] }'
}

# up_killed CALL N: ends with 137 when it got there.
up_killed()
{
    local status=0

    # The shell would report each killed process.
    {
        strace -o /dev/null -e "trace=$1" -e "inject=$1:signal=KILL:when=$2" "$BELLHOP_BUILD/bellhop" "${UP[@]}" \
            >/dev/null 3>&- || status=$?
    } 2>/dev/null
    [ "$status" -eq 0 ] || [ "$status" -eq 137 ] || fail "up ended with $status before $1 number $2"
    [ "$status" -eq 137 ]
}

@test "up killed before each call that changes something is finished or undone by gc" {
    local n_killed=0

    list_calls >"$BOX_TMP/list"
    "$BELLHOP" rm one >/dev/null
    rm -rf "$BELLHOP_STATE_DIR" # so that each makes everything
    [ "$(wc -l <"$BOX_TMP/list")" -gt 100 ]
    while read -r call n <&9; do
        ! up_killed "$call" "$n" || n_killed=$((n_killed + 1))
        "$BELLHOP" gc >/dev/null || fail "gc after $call number $n"
        if [ -n "$("$BELLHOP" ls -q)" ]; then
            [ "$("$BELLHOP" ls --json | jq -r '.boxes[].state')" = running ] || fail "not whole after $call number $n"
            [ "$("$BELLHOP" exec one -- echo whole)" = whole ]
            "$BELLHOP" rm one >/dev/null
        fi
        [ -z "$(ls "$BELLHOP_STATE_DIR/boxes" 2>/dev/null)" ] || fail "a directory is left after $call number $n"
        no_traces || wait_for 10 no_traces || fail "after $call number $n: $(traces)"
        rm -rf "$BELLHOP_STATE_DIR"
    done 9<"$BOX_TMP/list"
    # Nearly all: how often a lock is tried depends on who else has it.
    [ "$n_killed" -ge $(($(wc -l <"$BOX_TMP/list") * 9 / 10)) ]
}
