#!/usr/bin/env bats
# Uploads that continue after their connection was cut (the IETF's resumable uploads).
# early

load ../lib/agent
load ../lib/node

setup()
{
    start_agent --workdir /
    D=$AGENT_DIR/d
    mkdir "$D"
    F=$D/f
    H=$AGENT_DIR/h
}
teardown()
{
    [ -z "${FULL:-}" ] || umount "$FULL" || true
    stop_agents
}

header() { tr -d '\r' | sed -n "s/^$1: //Ip"; }

# begin LENGTH|- TEXT [CURL OPTION...]: sends the first piece; sets UP to the upload's address.
begin()
{
    local length=$1 text=$2

    shift 2
    [ "$length" = - ] || set -- "$@" -H "Upload-Length: $length"
    [ "$(agent_status "/v1/files/$F" -X PUT -H 'Upload-Complete: ?0' --data-binary "$text" -D "$H" "$@")" = 201 ] ||
        fail "did not begin"
    UP=$(header Location <"$H")
    [[ $UP == /v1/uploads/* ]] || fail "no Location"
}

# piece OFFSET COMPLETE TEXT [CURL OPTION...]: prints the status; the reply is in $AGENT_DIR/b, $H.
piece()
{
    local offset=$1 complete=$2 text=$3

    shift 3
    agent_curl "$UP" -X PATCH -H "Upload-Offset: $offset" -H "Upload-Complete: $complete" -D "$H" -o "$AGENT_DIR/b" \
        -H 'Content-Type: application/partial-upload' --data-binary "$text" -w '%{http_code}' "$@"
}

offset_of() { agent_curl "$1" -I | header Upload-Offset; }

@test "an upload in pieces is put in place when it is complete, not before" {
    printf old >"$F"
    chmod 600 "$F"
    begin 9 abc
    [ "$(header Upload-Offset <"$H")" = 3 ]
    [ "$(header Upload-Complete <"$H")" = '?0' ]
    header Upload-Limit <"$H" | grep -q max-age=
    agent_curl "$UP" -I >"$H"
    [ "$(header Upload-Offset <"$H")" = 3 ]
    [ "$(header Upload-Length <"$H")" = 9 ]
    [ "$(header Cache-Control <"$H")" = no-store ]
    [ "$(piece 3 '?0' def)" = 204 ]
    [ "$(header Upload-Complete <"$H")" = '?0' ]
    [ "$(cat "$F")" = old ]
    rpc Fs/List "{\"path\":\"$D\"}" | jq -e '[.entries[].name] == ["f"]'
    [ "$(piece 6 '?1' ghi)" = 200 ]
    [ "$(header Upload-Complete <"$H")" = '?1' ]
    jq -e '.bytes == 9 and .created == false' "$AGENT_DIR/b"
    [ "$(cat "$F")" = abcdefghi ]
    [ "$(stat -c %a "$F")" = 600 ]
    # A client that missed the reply can still learn the result.
    agent_curl "$UP" -I >"$H"
    [ "$(header Upload-Complete <"$H")" = '?1' ]
    [ "$(header Upload-Offset <"$H")" = 9 ]
    [ "$(header Bellhop-File-ETag <"$H")" = "$(agent_curl "/v1/files/$F" -I | header ETag)" ]
}

@test "a cut connection loses nothing that arrived, and the upload goes on" {
    need_mb 80
    head -c 30000000 /dev/urandom >"$AGENT_DIR/in"
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$F" "$AGENT_DIR/in" <<'PY'
import http.client, socket, sys, time
port, token, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
data = open(sys.argv[4], "rb").read()
auth = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
def head_of(s):
    got = b""
    while b"\r\n\r\n" not in got:
        more = s.recv(65536)
        assert more, got
        got += more
    head = got.split(b"\r\n\r\n")[0].decode().split("\r\n")
    return head[0], {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:])}
def ask(method, target, headers=""):
    s = socket.create_connection(("127.0.0.1", port), 60)
    s.sendall(f"{method} {target} HTTP/1.1\r\n{auth}{headers}\r\n".encode())
    status, h = head_of(s)
    s.close()
    return status.split(" ")[1], h
# All in one request; the agent reports at once where it can be resumed.
s = socket.create_connection(("127.0.0.1", port), 60)
s.sendall((f"PUT /v1/files/{path} HTTP/1.1\r\n{auth}Upload-Complete: ?1\r\nUpload-Draft-Interop-Version: 8\r\n"
           f"Content-Length: {len(data)}\r\n\r\n").encode())
status, h = head_of(s)
assert " 104 " in status + " " and h["upload-draft-interop-version"] == "8", status
up = h["location"]
s.sendall(data[:10_000_000])
s.close()
def offset():
    status, h = ask("HEAD", up)
    assert status == "204" and h["upload-complete"] == "?0" and h["upload-length"] == str(len(data)), (status, h)
    return int(h["upload-offset"])
at = offset()
assert 0 < at <= 10_000_000, at
# Any next request ends a connection that hangs.
s = socket.create_connection(("127.0.0.1", port), 60)
s.sendall((f"PATCH {up} HTTP/1.1\r\n{auth}Upload-Complete: ?1\r\nUpload-Offset: {at}\r\n"
           f"Content-Type: application/partial-upload\r\nContent-Length: {len(data) - at}\r\n\r\n").encode())
s.sendall(data[at:at + 5_000_000])
time.sleep(0.05)
now = offset()
assert at <= now <= at + 5_000_000, (at, now)
try:
    assert s.recv(1) == b""
except ConnectionError:
    pass
s.close()
# A reported offset is accepted.
s = socket.create_connection(("127.0.0.1", port), 60)
s.sendall((f"PATCH {up} HTTP/1.1\r\n{auth}Upload-Complete: ?1\r\nUpload-Offset: {now}\r\n"
           f"Content-Type: application/partial-upload\r\nContent-Length: {len(data) - now}\r\n\r\n").encode())
s.sendall(data[now:])
status, h = head_of(s)
assert " 201 " in status and h["upload-complete"] == "?1", status
PY
    cmp "$AGENT_DIR/in" "$F"
    [ -z "$(find "$D" -name '.bellhop*')" ]
}

@test "uploads refuse what does not fit, with the problem's type" {
    begin 6 abc
    [ "$(piece 2 '?0' x)" = 409 ]
    [ "$(header Upload-Offset <"$H")" = 3 ]
    header Content-Type <"$H" | grep -q application/problem+json
    jq -e '(.type | endswith("#mismatching-upload-offset")) and .["expected-offset"] == 3 and .["provided-offset"] == 2' "$AGENT_DIR/b"
    [ "$(piece 3 '?1' x)" = 400 ]
    jq -e '.type | endswith("#inconsistent-upload-length")' "$AGENT_DIR/b"
    [ "$(piece 3 '?0' x -H 'Upload-Length: 7')" = 400 ]
    [ "$(piece 3 '?0' defg)" = 400 ]
    [ "$(offset_of "$UP")" = 3 ]
    [ "$(agent_status "$UP" -X PATCH -d x)" = 415 ]
    [ "$(agent_status "$UP" -X PATCH -H 'Content-Type: application/partial-upload' -d x)" = 400 ]
    [ "$(piece x '?0' d)" = 400 ]
    [ "$(piece 3 yes d)" = 400 ]
    [ "$(piece 3 '?1' def)" = 201 ]
    [ "$(piece 6 '?1' '')" = 400 ]
    jq -e '.type | endswith("#completed-upload")' "$AGENT_DIR/b"
    [ "$(cat "$F")" = abcdef ]
    [ "$(agent_status /v1/uploads/0000 -I)" = 404 ]
    [ "$(agent_status "/v1/files/$F" -X PUT -d abc -H 'Upload-Complete: ?1' -H 'Upload-Length: 4')" = 400 ]
    [ "$(agent_status "/v1/files/$F" -X POST -d abc)" = 400 ]
    # More bytes than announced, in a body without a declared length: the upload fails.
    begin 4 abc
    [ "$(printf defg | agent_status "$UP" -X PATCH -T - -H 'Upload-Offset: 3' -H 'Upload-Complete: ?0' -H 'Content-Type: application/partial-upload')" = 400 ]
    [ "$(agent_status "$UP" -I)" = 410 ]
    [ "$(cat "$F")" = abcdef ]
}

@test "an upload's conditions hold when it begins and when it is complete" {
    local tag

    printf old >"$F"
    [ "$(agent_status "/v1/files/$F" -X PUT -d x -H 'Upload-Complete: ?0' -H 'If-None-Match: *')" = 412 ]
    tag=$(agent_curl "/v1/files/$F" -I | header ETag)
    begin - abc -H "If-Match: $tag"
    printf theirs >"$F"
    [ "$(piece 3 '?1' def)" = 412 ]
    [ "$(header Upload-Complete <"$H")" = '?1' ]
    [ "$(header ETag <"$H")" = "$(agent_curl "/v1/files/$F" -I | header ETag)" ]
    [ "$(cat "$F")" = theirs ]
    [ "$(agent_status "$UP" -I)" = 410 ]
    [ -z "$(find "$D" -name '.bellhop*')" ]
}

@test "an upload's digests are checked, of each piece and of the whole" {
    local whole piece

    whole=$(printf abcdef | openssl dgst -sha256 -binary | base64)
    piece=$(printf def | openssl dgst -sha256 -binary | base64)
    begin - abc -H "Repr-Digest: sha-256=:$whole:"
    [ "$(piece 3 '?0' dEf -H "Content-Digest: sha-256=:$piece:")" = 400 ]
    [ "$(offset_of "$UP")" = 3 ]
    [ "$(piece 3 '?1' def -H "Content-Digest: sha-256=:$piece:")" = 201 ]
    [ "$(cat "$F")" = abcdef ]
    begin - abc -H "Repr-Digest: sha-256=:$whole:"
    [ "$(piece 3 '?1' xyz)" = 400 ]
    [ "$(header Upload-Complete <"$H")" = '?1' ]
    [ "$(cat "$F")" = abcdef ]
    # Reported with the last piece only.
    begin - abc
    [ "$(piece 3 '?1' xyz -H "Repr-Digest: sha-256=:$whole:")" = 400 ]
    [ "$(cat "$F")" = abcdef ]
}

@test "an upload that is canceled, or that nobody can go on with, leaves nothing" {
    local before

    before=$(n_fds)
    begin - abc
    [ "$(agent_status "$UP" -X DELETE)" = 204 ]
    [ "$(agent_status "$UP" -I)" = 404 ]
    [ "$(piece 3 '?1' def)" = 404 ]
    # Cut before the client could learn where to continue.
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$F" <<'PY'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s.sendall((f"PUT /v1/files/{sys.argv[3]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {sys.argv[2]}\r\n"
           f"Upload-Complete: ?0\r\nContent-Length: 1000\r\n\r\n").encode() + b"y" * 500)
s.close()
PY
    is_clean() { [ "$(n_fds)" -le "$((before + 1))" ] && [ -z "$(ls -A "$D")" ]; }
    wait_until 10 is_clean
}

# restart SIGNAL: replaces the agent by another one.
restart()
{
    kill "-$1" "$AGENT_PID"
    wait_gone "$AGENT_PID" 20
    run_agent --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token" --workdir /
}

@test "an upload in pieces goes on after the agent was stopped, or killed, and started again" {
    local signal

    export HOME=$AGENT_DIR
    restart TERM # with this home
    for signal in TERM KILL; do
        F=$D/made/$signal/f
        [ "$(agent_status "/v1/files/$F?mode=0640" -X PUT -H 'Upload-Complete: ?0' -H 'Upload-Length: 6' -d abc -D "$H")" = 201 ]
        UP=$(header Location <"$H")
        restart "$signal"
        [ ! -e "$F" ]
        rpc Fs/List "{\"path\":\"$D/made/$signal\"}" | jq -e '.entries == []'
        [ "$(agent_status /v1/uploads/00000000000000000000000000000000 -I)" = 404 ]
        agent_curl "$UP" -I -D "$H" -o /dev/null
        [ "$(header Upload-Offset <"$H") $(header Upload-Length <"$H") $(header Upload-Complete <"$H")" = '3 6 ?0' ]
        [ "$(piece 3 '?0' defg)" = 400 ]
        [ "$(piece 3 '?1' def)" = 201 ]
        jq -e --arg path "$F" '.path == $path and .bytes == 6 and .created' "$AGENT_DIR/b"
        [ "$(cat "$F") $(stat -c %a "$F") $(ls -A "${F%/*}")" = 'abcdef 640 f' ]
    done
    # It can be canceled, too, which removes the directories that it made.
    F=$D/other/f
    begin - abc
    restart KILL
    [ "$(agent_status "$UP" -X DELETE)" = 204 ]
    [ ! -e "$D/other" ]
    # The parameters of its first request stay valid.
    F=$D/f
    printf old >"$F"
    begin - abc -H "If-Match: $(agent_curl "/v1/files/$F" -I | header ETag)" -H "Repr-Digest: sha-256=:$(printf abcd | openssl dgst -sha256 -binary | base64):"
    restart KILL
    [ "$(piece 3 '?1' x)" = 400 ]
    [ "$(cat "$F")" = old ]
    begin - abc -H "If-Match: $(agent_curl "/v1/files/$F" -I | header ETag)"
    restart KILL
    printf theirs >"$F"
    [ "$(piece 3 '?1' x)" = 412 ]
    [ "$(cat "$F")" = theirs ]
    [ "$(ls -A "$D")" = "$(printf 'f\nmade')" ]
}

@test "of a piece that a killed agent had not got whole, what can't be checked does not count" {
    local with way client

    export HOME=$AGENT_DIR
    restart TERM
    for with in "Content-Digest: sha-256=:$(printf %0200000d 1 | openssl dgst -sha256 -binary | base64):" "X-None: 1"; do
        begin - abc
        # When the bytes are in the file beside the target, the agent has received half of the piece.
        half() { find "$D" -name '.bellhop-tmp-*' -size +97k | grep -q .; }
        python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$UP" "$with" <<'PY' &
import socket, sys
port, token, up, header = sys.argv[1:]
s = socket.create_connection(("127.0.0.1", int(port)), 60)
s.sendall((f"PATCH {up} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nUpload-Offset: 3\r\nUpload-Complete: ?0\r\n{header}\r\n"
           "Content-Type: application/partial-upload\r\nContent-Length: 200000\r\n\r\n").encode() + b"0" * 100000)
try:
    s.recv(1)
except ConnectionError:
    pass
PY
        client=$!
        wait_until 20 half
        restart KILL
        wait "$client" || true
        way=$(offset_of "$UP")
        case $with in
        Content*) [ "$way" = 3 ] ;;
        *) [ "$way" -gt 97000 ] && [ "$way" -le 100003 ] ;;
        esac
        [ "$(agent_status "$UP" -X DELETE)" = 204 ]
    done
}

@test "an unfinished upload is removed when its client asked for, also by the next agent, and nothing else is" {
    local age before

    export HOME=$AGENT_DIR
    restart TERM
    begin - abc
    [ "$(header Upload-Limit <"$H")" = max-age=3600 ]
    [ "$(agent_status "$UP" -X DELETE)" = 204 ]
    for age in 0 -1 3601 x; do
        [ "$(agent_status "/v1/files/$F" -X PUT -d x -H 'Upload-Complete: ?0' -H "Bellhop-Upload-Max-Age: $age")" = 400 ]
    done
    touch "$D/.bellhop-tmp-0123456789abcdef" # somebody else's
    is_removed() { [ "$(ls -A "$D")" = .bellhop-tmp-0123456789abcdef ]; }
    before=$(n_fds)
    begin - abc -H 'Bellhop-Upload-Max-Age: 1'
    [ "$(header Upload-Limit <"$H")" = max-age=1 ]
    within 30 is_removed
    [ "$(agent_status "$UP" -I)" = 404 ]
    [ "$(n_fds)" -le "$before" ]
    F=$D/made/f
    begin 6 abc -H 'Bellhop-Upload-Max-Age: 1'
    restart KILL
    within 30 is_removed
    [ "$(agent_status "$UP" -I)" = 404 ]
    # It is in the note: the next agent tells the same.
    F=$D/f
    begin 6 abc -H 'Bellhop-Upload-Max-Age: 600'
    restart KILL
    [ "$(agent_curl "$UP" -I | header Upload-Limit)" = max-age=600 ]
    [ "$(piece 3 '?1' def)" = 201 ]
}

@test "unfinished uploads have a bound" {
    for i in $(seq 64); do
        F=$D/f$i
        begin - x
    done
    [ "$(agent_status "/v1/files/$D/more" -X PUT -d x -H 'Upload-Complete: ?0')" = 429 ]
    [ "$(agent_status "/v1/files/$D/more" -X PUT -d x)" = 201 ]
    [ "$(agent_status "$UP" -X DELETE)" = 204 ]
    [ "$(agent_status "/v1/files/$D/other" -X PUT -d x -H 'Upload-Complete: ?0')" = 201 ]
}

@test "an upload that meets a full disk keeps what is there" {
    need_mb 16
    [ "$(id -u)" = 0 ] || skip "needs root"
    FULL=$AGENT_DIR/full
    mkdir "$FULL"
    mount -t tmpfs -o size=4m none "$FULL" || { FULL=; skip "can't mount a tmpfs"; }
    F=$FULL/f
    head -c 3000000 /dev/urandom >"$AGENT_DIR/in"
    begin - "@$AGENT_DIR/in"
    [ "$(piece 3000000 '?0' "@$AGENT_DIR/in")" = 507 ]
    at=$(offset_of "$UP")
    [ "$at" -ge 3000000 ]
    [ "$(piece "$at" '?1' "")" = 201 ]
    cmp -n 3000000 "$AGENT_DIR/in" "$F"
    cmp <(tail -c +3000001 "$F") <(head -c $((at - 3000000)) "$AGENT_DIR/in")
    [ "$(agent_status "/v1/files/$FULL/g" -X PUT -d x -H 'Upload-Complete: ?0' -H 'Upload-Length: 99000000')" = 507 ]
}

@test "a POST begins an upload too, and acts for the user that it names" {
    [ "$(agent_status "/v1/files/$F?mode=0640" -X POST -H 'Upload-Complete: ?0' -d abc -D "$H")" = 201 ]
    UP=$(header Location <"$H")
    [ "$(piece 3 '?1' def)" = 201 ]
    [ "$(cat "$F")" = abcdef ]
    [ "$(stat -c %a "$F")" = 640 ]
    [ "$(agent_status "/v1/files/$F?fresh=true" -X POST -H 'Upload-Complete: ?0' -d new -D "$H")" = 201 ]
    UP=$(header Location <"$H")
    piece 3 '?1' er
    [ "$(cat "$F")" = newer ]
    [ "$(stat -c %a "$F")" = 644 ] # not the old file's
    [ "$(id -u)" = 0 ] || skip "the rest needs root"
    chmod 755 "$AGENT_DIR"
    chmod 777 "$D"
    [ "$(agent_status "/v1/files/$D/his?user=nobody" -X POST -H 'Upload-Complete: ?0' -d abc -D "$H")" = 201 ]
    UP=$(header Location <"$H")
    [ "$(piece 3 '?1' def)" = 201 ]
    [ "$(stat -c %U "$D/his")" = nobody ]
}

@test "somebody else's client of the draft uploads, and goes on after it was stopped" {
    need_mb 64
    [ -z "${BELLHOP_IN_BOX:-}" ] || skip "needs the network"
    npm_package tus-js-client 4.3.1
    head -c 9000000 /dev/urandom >"$AGENT_DIR/in"
    cat >"$AGENT_DIR/tus.mjs" <<'JS'
import fs from 'node:fs'
import * as tus from 'tus-js-client'
const [url, token, file] = process.argv.slice(2)
function upload(path, options, stopAt) {
  return new Promise((resolve, reject) => {
    let stopped = false
    const u = new tus.Upload(fs.readFileSync(file), {
      endpoint: `${url}/v1/files/${path}`, protocol: 'ietf-draft-05',
      headers: { Authorization: `Bearer ${token}` }, retryDelays: null, chunkSize: 2000000,
      onError: reject, onSuccess: () => resolve(stopped),
      onChunkComplete: (size, offset) => {
        if (!stopAt || stopped || offset < stopAt) return
        stopped = true
        u.abort().then(() => upload(path, { uploadUrl: u.url }).then(() => resolve(true), reject), reject)
      },
      ...options,
    })
    u.start()
  })
}
await upload(`${file}.1`, { chunkSize: Infinity })
await upload(`${file}.2`, {})
if (!await upload(`${file}.3`, {}, 4000000)) throw new Error('was not stopped')
JS
    run_node "$AGENT_DIR/tus.mjs" "$AGENT_URL" "$AGENT_TOKEN" "$AGENT_DIR/in"
    for i in 1 2 3; do
        cmp "$AGENT_DIR/in" "$AGENT_DIR/in.$i"
    done
}
