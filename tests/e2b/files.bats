#!/usr/bin/env bats
# E2B's /files and filesystem.Filesystem: by its SDKs, and on the wire.
# needs: network

load ../lib/e2b

setup()
{
    export E2B_API_KEY=e2b_0000000000000000000000000000000000000000
}
teardown() { stop_e2b; }

js() { run_e2b_js "$BATS_TEST_DIRNAME/files.mjs" "$@"; }
python() { run_e2b_python "$BATS_TEST_DIRNAME/files.py" "$@"; }
wire() { timeout 800 python3 "$BATS_TEST_DIRNAME/files_wire.py" "$@" 3>&-; }

# A disk of 1 MB in the box, at /home/small.
add_small_disk()
{
    nsenter -t "$AGENT_PID" -m sh -c 'mkdir /home/small && mount -t tmpfs -o size=1m small /home/small'
}

peak_mb() { awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$AGENT_PID/status"; }

@test "e2b files: the JavaScript SDK writes, reads, lists, moves, removes and watches" {
    start_e2b
    js write gzip metadata tree watch
}

@test "e2b files: the Python SDK does the same, and is told of exactly what it did" {
    start_e2b
    python files links watch stream
}

@test "e2b files: URLs are signed for one operation, path and time" {
    start_e2b_secured
    start_control
    wire signed
    E2B_DEBUG='' TOKEN=$AGENT_TOKEN js signed
    E2B_DEBUG='' python signed
}

@test "e2b files: ranges, conditions, and codings of both directions" {
    start_e2b
    wire ranges coding
}

@test "e2b files: errors have the words and codes that clients know" {
    start_e2b
    wire words
}

@test "e2b files: the first Python SDKs are told three fields of a file, everybody else all" {
    start_e2b
    wire legacy
}

@test "e2b files: bodies in parts are taken as they are, broken and cut ones refused by name" {
    start_e2b
    wire parts gone
}

@test "e2b files: an upload that is no gzip changes nothing, and one that is cut leaves all that had arrived" {
    start_e2b
    wire kept
}

@test "e2b files: '..' behind what is not there leads nowhere, and nothing is made" {
    start_e2b
    wire dotdot
}

@test "e2b files: an error about a long path says its reason" {
    start_e2b
    wire long
}

@test "e2b files: blanks behind headers, absolute targets, and a GET with a body" {
    start_e2b
    wire http
}

@test "e2b files: what is told of a directory, or of an upload, is bounded" {
    start_e2b
    wire list_bounds reply_bounds
}

@test "e2b files: several files are composed to one, or none of it happens" {
    start_e2b
    wire compose
}

@test "e2b files: a full disk is 507, and the SDK's own error" {
    start_e2b
    add_small_disk
    wire full
    js full
}

@test "e2b files: watches tell the kernel's events in order, through moves and new trees, are bounded and leave nothing" {
    start_e2b
    wire watch tree bounds vanish
}

@test "e2b files: more watches at once than the kernel has instances for, each told its own" {
    start_e2b
    wire many
}

@test "e2b files: nothing outside --root is read, written, made, moved or watched" {
    require_root
    cat >"$BATS_TEST_TMPDIR/agent" <<END
#!/bin/sh
cd /home/user && echo hidden >secret && mkdir root
ln -s ../secret root/link && ln -s ../secret root/link2 && ln -s .. root/dirlink
exec $(realpath "$BELLHOPD") "\$@"
END
    chmod 755 "$BATS_TEST_TMPDIR/agent"
    E2B_AGENT=$BATS_TEST_TMPDIR/agent start_e2b --root /home/user/root
    wire root
}

@test "e2b files: a read-only agent changes nothing" {
    start_e2b --read-only
    wire readonly
}

@test "e2b files: a gigabyte goes up and down through less than 16 MB, and 64 MB by the SDK" {
    start_e2b
    truncate -s 1G "$AGENT_DIR/in"
    curl -sS -m 600 -F "file=@$AGENT_DIR/in" "$AGENT_URL/files?path=big" | jq -e '.[0].name == "big"'
    [ "$(curl -sS -m 600 "$AGENT_URL/files?path=big" | wc -c)" = 1073741824 ]
    curl -sS "$AGENT_URL/filesystem.Filesystem/Remove" -H 'Content-Type: application/json' -d '{"path":"big"}'
    js large
    echo "at most $(peak_mb) MB"
    [ "$(peak_mb)" -lt 16 ]
}
