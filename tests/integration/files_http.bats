#!/usr/bin/env bats
# /v1/files as HTTP has it: conditions, several ranges, digests, parts, removal.
# early

load ../lib/agent

setup()
{
    start_agent --workdir /
    D=$AGENT_DIR/d
    mkdir "$D"
    F=$D/f
    U=/v1/files/$F
}
teardown() { stop_agents; }

etag_of() { agent_curl "/v1/files/$1" -I | tr -d '\r' | sed -n 's/^ETag: //Ip'; }
sha256_of() { openssl dgst -sha256 -binary "$1" | base64; }
# header NAME <HEADERS
header() { tr -d '\r' | sed -n "s/^$1: //Ip"; }

# Each method under each condition: the status, and whether the file is unchanged.
@test "conditions hold as RFC 9110 says, for every method" {
    local tag row method if_match if_none_match want got before

    while IFS='|' read -r method if_match if_none_match want; do
        [ -n "$method" ] || continue
        printf one >"$F"
        tag=$(etag_of "$F")
        before=$(cat "$F")
        row=("-X" "$method")
        [ "$method" != HEAD ] || row=(-I)
        [ "$method" != PATCH ] || row+=(-H 'Content-Range: bytes 0-2/*')
        case $method in PUT | PATCH) row+=(--data-binary two) ;; esac
        [ -z "$if_match" ] || row+=(-H "If-Match: ${if_match//TAG/$tag}")
        [ -z "$if_none_match" ] || row+=(-H "If-None-Match: ${if_none_match//TAG/$tag}")
        got=$(agent_status "$U" "${row[@]}")
        [ "$got" = "$want" ] || fail "$method $if_match $if_none_match: $got, not $want"
        [ "$want" != 412 ] || [ "$(cat "$F")" = "$before" ] || fail "$method changed the file"
    done <<'END'
GET|TAG||200
GET|*||200
GET|"x", TAG||200
GET|W/TAG||412
GET|"x"||412
GET||TAG|304
GET||W/TAG|304
GET||*|304
GET||"x"|200
GET||"x", W/TAG|304
HEAD|"x"||412
HEAD||TAG|304
PUT|TAG||200
PUT|"x", TAG||200
PUT|W/TAG||412
PUT|"x"||412
PUT||*|412
PUT||W/TAG|412
PUT||"x"|200
PUT||"x", y|200
PUT||"x|400
PUT||"x" y|400
PATCH||"x|400
DELETE||"x|400
PATCH|TAG||200
PATCH|"x"||412
PATCH||TAG|412
DELETE|TAG||204
DELETE|W/TAG||412
DELETE|"x"||412
DELETE||*|412
DELETE|*||204
END
    # A 304 has no body, and the file's length if any.
    printf one >"$F"
    agent_curl "$U" -D - -o /dev/null -H 'If-None-Match: *' | header Content-Length | grep -qx 3
    rm -f "$F"
    [ "$(agent_status "$U" -X PUT -d x -H 'If-Match: *')" = 412 ]
    [ "$(agent_status "$U" -X PUT -d x -H 'If-Match: "x"')" = 412 ]
    [ "$(agent_status "$U" -X DELETE -H 'If-Match: *')" = 412 ]
    [ ! -e "$F" ]
    [ "$(agent_status "$U" -X PUT -d x -H 'If-None-Match: *')" = 201 ]
}

@test "a failed condition tells the tag there is, in the header and the body" {
    need_mb 40
    local tag method

    printf one >"$F"
    tag=$(etag_of "$F")
    for method in GET PUT DELETE; do
        agent_curl "$U" -X "$method" -H 'If-Match: "x"' -D "$AGENT_DIR/h" -o "$AGENT_DIR/b"
        [ "$(header ETag <"$AGENT_DIR/h")" = "$tag" ]
        jq -e --arg tag "${tag//\"/}" '.code == "aborted" and .field == "if_match" and .detail.etag == $tag' "$AGENT_DIR/b"
    done
    # Also if the body is too large to be drained first.
    head -c 30000000 /dev/zero >"$AGENT_DIR/large"
    agent_curl "$U" -T "$AGENT_DIR/large" -H 'Expect:' -H 'If-Match: "x"' -D "$AGENT_DIR/h" -o "$AGENT_DIR/b" || true
    [ "$(header ETag <"$AGENT_DIR/h")" = "$tag" ]
    [ "$(cat "$F")" = one ]
}

@test "the rpc methods have the same conditions" {
    local tag call method params

    # The effect of each on the file, with the present tag, another one, and none.
    for call in 'Move {"from":"F","to":"F2"' 'Copy {"from":"F","to":"F2"' 'Remove {"path":"F"' \
        'SetAttr {"path":"F","mode":"0600"' 'Edit {"path":"F","edits":[{"old":{"text":"one"},"new":{"text":"two"}}]'; do
        rm -f "$F" "${F}2"
        printf one >"$F"
        tag=$(etag_of "$F" | tr -d '"')
        call=${call//F/$F}
        method=${call%% *}
        params=${call#* }
        rpc "Fs/$method" "$params,\"if_match\":\"other\"}" |
            jq -e --arg tag "$tag" '.code == "aborted" and .field == "if_match" and .detail.etag == $tag' || fail "$method"
        rpc "Fs/$method" "$params,\"if_none_match\":\"*\"}" | jq -e '.code == "aborted" and .field == "if_none_match"' || fail "$method"
        rpc "Fs/$method" "$params,\"if_match\":\"W/\\\"$tag\\\"\"}" | jq -e '.code == "aborted"' || fail "$method"
        [ "$(cat "$F")" = one ]
        [ "$(stat -c %a "$F")" = 644 ]
        [ ! -e "${F}2" ]
        rpc "Fs/$method" "$params,\"if_match\":\"other, $tag\"}" | jq -e '.code == null' || fail "$method"
    done
    printf one >"$F"
    printf two >"$D/to"
    tag=$(etag_of "$D/to" | tr -d '"')
    for method in Copy Move; do
        rpc "Fs/$method" "{\"from\":\"$F\",\"to\":\"$D/to\",\"overwrite\":true,\"to_if_match\":\"x\"}" |
            jq -e --arg tag "$tag" '.field == "to_if_match" and .detail.etag == $tag'
        rpc "Fs/$method" "{\"from\":\"$F\",\"to\":\"$D/to\",\"overwrite\":true,\"to_if_none_match\":\"*\"}" |
            jq -e '.field == "to_if_none_match"'
    done
    [ "$(cat "$D/to")" = two ]
    rpc Fs/Move "{\"from\":\"$F\",\"to\":\"$D/to\",\"overwrite\":true,\"to_if_match\":\"$tag\"}" | jq -e '. == {}'
    [ "$(cat "$D/to")" = one ]
}

@test "a condition on a link is on what it leads to" {
    local tag

    printf one >"$F"
    ln -s f "$D/l"
    tag=$(etag_of "$D/l")
    [ "$tag" = "$(etag_of "$F")" ]
    [ "$(agent_status "/v1/files/$D/l" -X PUT -d two -H "If-Match: $tag")" = 200 ]
    [ -L "$D/l" ]
    [ "$(cat "$F")" = two ]
    [ "$(agent_status "/v1/files/$D/l" -X DELETE -H "If-Match: $tag")" = 412 ]
    [ "$(agent_status "/v1/files/$D/l" -X DELETE -H "If-Match: $(etag_of "$F")")" = 204 ]
    [ ! -L "$D/l" ]
    [ -e "$F" ]
}

@test "list tells the tags that files has" {
    printf one >"$F"
    mkdir "$D/sub"
    rpc Fs/List "{\"path\":\"$D\",\"etag\":true}" |
        jq -e --arg tag "$(etag_of "$F" | tr -d '"')" '.entries | map(.etag) == [$tag, null]'
}

@test "several ranges come as multipart, each byte exact" {
    seq 20000 >"$F"
    python3 - "$AGENT_PORT" "$AGENT_TOKEN" "$F" <<'PY'
import email.parser, email.policy, http.client, sys
port, token, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
data = open(path, "rb").read()
size = len(data)
c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
def get(ranges, **more):
    c.request("GET", f"/v1/files/{path}", headers={"Authorization": f"Bearer {token}", "Range": ranges, **more})
    r = c.getresponse()
    return r, r.read()
def parts(r, body):
    assert int(r.headers["Content-Length"]) == len(body)
    head = b"Content-Type: " + r.headers["Content-Type"].encode() + b"\r\n\r\n"
    m = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    for p in m.iter_parts():
        unit, place = p["Content-Range"].split(" ")
        span, total = place.split("/")
        first, last = map(int, span.split("-"))
        assert unit == "bytes" and int(total) == size
        assert p.get_payload(decode=True) == data[first:last + 1], (first, last)
        yield first, last
for ranges, want in [
    ("bytes=0-9,1000-1009", [(0, 9), (1000, 1009)]),
    ("bytes=5000-5999,0-0,-5", [(5000, 5999), (0, 0), (size - 5, size - 1)]),
    (f"bytes=0-0,{size + 5}-,90000-", [(0, 0), (90000, size - 1)]),
    ("bytes=0-0,20000-69999,80000-80000", [(0, 0), (20000, 69999), (80000, 80000)]),
]:
    r, body = get(ranges)
    assert r.status == 206 and r.headers["Content-Range"] is None, ranges
    assert list(parts(r, body)) == want, ranges
# Overlapping ranges become one, and one range is no multipart.
r, body = get("bytes=0-99,50-149,150-199")
assert r.status == 206 and r.headers["Content-Range"] == f"bytes 0-199/{size}" and body == data[:200]
# More ranges than the maximum: the whole file.
many = "bytes=" + ",".join(f"{i * 1000}-{i * 1000}" for i in range(17))
assert get(many)[0].status == 200
assert get("bytes=" + ",".join(["0-"] * 65))[0].status == 200
r, body = get(f"bytes={size}-,{size + 7}-")
assert r.status == 416 and r.headers["Content-Range"] == f"bytes */{size}"
# If-Range: only a strong tag that matches.
tag = get("bytes=0-0")[0].headers["ETag"]
for value, status in [(tag, 206), ('W/' + tag, 200), ('"x"', 200), ("*", 200), (tag.strip('"'), 200),
                      ("Sun, 06 Nov 1994 08:49:37 GMT", 200)]:
    assert get("bytes=0-0,1000-1001", **{"If-Range": value})[0].status == status, value
assert get("bytes=0-0", **{"If-Match": '"x"'})[0].status == 412
PY
}

@test "digests are checked and told as RFC 9530 has them" {
    need_mb 16
    local good name

    printf abc >"$AGENT_DIR/abc"
    good=$(sha256_of "$AGENT_DIR/abc")
    for name in Content-Digest Repr-Digest; do
        [ "$(agent_status "$U" -X PUT -d abc -H "$name: sha-256=:$good:")" = 201 ]
        [ "$(agent_status "$U" -X PUT -d abc -H "$name: sha-512=:AAAA:, sha-256=:$good:;p=1")" = 200 ]
        [ "$(agent_status "$U" -X PUT -d abc -H "$name: sha-512=:AAAA:")" = 200 ]
        agent_curl "$U" -X PUT -d abd -H "$name: sha-256=:$good:" -w '%{http_code}' |
            grep -q '"code":"data_loss".*400$'
        agent_curl "$U" -X PUT -d abc -H "$name: sha-256=$good" -w '%{http_code}' |
            grep -q "\"field\":\"$name\".*400\$"
        [ "$(agent_status "$U" -X PUT -d abc -H "$name: sha-256=:AAAA:")" = 400 ]
        [ "$(cat "$F")" = abc ]
        rm "$F"
    done
    [ "$(agent_status "$U" -X PUT -d abc -H "Digest: SHA-256=$good")" = 201 ]
    # A body of many pieces, with a wrong digest.
    head -c 3000000 /dev/zero >"$AGENT_DIR/in"
    [ "$(agent_status "$U" -T "$AGENT_DIR/in" -H "Content-Digest: sha-256=:$good:")" = 400 ]
    [ "$(cat "$F")" = abc ]
    # On request.
    agent_curl "$U" -D - -o /dev/null -H 'Want-Repr-Digest: sha-256=3, sha-512=10' | header Repr-Digest | grep -qxF "sha-256=:$good:"
    agent_curl "$U" -I -H 'Want-Repr-Digest: sha-256=1' | header Repr-Digest | grep -qxF "sha-256=:$good:"
    [ -z "$(agent_curl "$U" -D - -o /dev/null -H 'Want-Repr-Digest: sha-256=0' | header Repr-Digest)" ]
    printf b >"$AGENT_DIR/b"
    agent_curl "$U" -r 1-1 -D "$AGENT_DIR/h" -o /dev/null -H 'Want-Repr-Digest: sha-256=1' -H 'Want-Content-Digest: sha-256=1'
    header Repr-Digest <"$AGENT_DIR/h" | grep -qxF "sha-256=:$good:"
    header Content-Digest <"$AGENT_DIR/h" | grep -qxF "sha-256=:$(sha256_of "$AGENT_DIR/b"):"
    [ "$(agent_status "$U" -X PUT -d abc -H 'Content-Encoding: gzip')" = 415 ]
}

@test "a part of a file is replaced, all of the part or nothing" {
    local how place want

    for how in PATCH PUT; do
        while IFS='|' read -r place body want status; do
            printf 0123456789 >"$F"
            chmod 640 "$F"
            [ "$(agent_status "$U" -X "$how" --data-binary "$body" -H "Content-Range: bytes $place")" = "$status" ] ||
                fail "$how $place"
            [ "$(cat "$F")" = "$want" ] || fail "$how $place: $(cat "$F")"
            [ "$(stat -c %a "$F")" = 640 ]
        done <<'END'
0-2/*|abc|abc3456789|200
3-4/10|ab|012ab56789|200
3-4/5|ab|012ab|200
10-12/*|abc|0123456789abc|200
8-12/13|abcde|01234567abcde|200
11-12/*|ab|0123456789|416
0-2/*|ab|0123456789|400
0-1/20|ab|0123456789|416
0-1/1|ab|0123456789|400
x|ab|0123456789|400
END
    done
    agent_curl "$U" -X PATCH -d abc -H 'Content-Range: bytes 20-22/*' -D "$AGENT_DIR/h" | jq -e '.code == "out_of_range" and .detail.size == 10'
    [ "$(header Content-Range <"$AGENT_DIR/h")" = 'bytes */10' ]
    agent_curl "$U?append=true" -X PATCH -d end | jq -e '.offset == 10 and .bytes == 3 and .size == 13'
    agent_curl "/v1/files/$D/new?append=1" -X PATCH -d first | jq -e '.created and .offset == 0'
    [ "$(agent_status "$U" -X PATCH -d x)" = 400 ]
    # The length of a chunked body is known only at its end.
    printf 0123456789 >"$F"
    [ "$(printf ab | agent_status "$U" -T - -X PATCH -H 'Content-Range: bytes 0-2/*')" = 400 ]
    [ "$(printf abcd | agent_status "$U" -T - -X PATCH -H 'Content-Range: bytes 0-2/*')" = 413 ]
    [ "$(printf abc | agent_status "$U" -T - -X PATCH -H 'Content-Range: bytes 0-2/*')" = 200 ]
    [ "$(cat "$F")" = abc3456789 ]
    # In place if the file has several links, as with a whole PUT.
    ln "$F" "$D/g"
    agent_curl "$U" -X PATCH -d XY -H 'Content-Range: bytes 1-2/*' -D "$AGENT_DIR/h" | jq -e .in_place
    [ "$(header Bellhop-In-Place <"$AGENT_DIR/h")" = true ]
    [ "$(cat "$D/g")" = aXY3456789 ]
    [ -z "$(find "$D" -name '.bellhop*')" ]
}

@test "what is removed is gone, and only that" {
    mkdir -p "$D/empty" "$D/full"
    touch "$D/full/f" "$F"
    [ "$(agent_status "$U" -X DELETE)" = 204 ]
    [ ! -e "$F" ]
    [ "$(agent_status "$U" -X DELETE)" = 404 ]
    [ "$(agent_status "/v1/files/$D/empty" -X DELETE)" = 204 ]
    [ ! -e "$D/empty" ]
    agent_curl "/v1/files/$D/full" -X DELETE | jq -e '.code == "failed_precondition" and .field == "path"'
    [ -e "$D/full/f" ]
    [ "$(agent_status /v1/files// -X DELETE)" = 400 ]
    [ "$(agent_status /v1/files/ -X DELETE)" = 400 ]
    [ "$(agent_status "/v1/files/$D/full/f?force=true" -X DELETE)" = 400 ]
    [ "$(agent_status "/v1/files/$D/full/f" -X DELETE -d body)" = 400 ]
    [ -e "$D/full/f" ]
    [ "$(agent_status "/v1/files/$D/full?recursive=true" -X DELETE)" = 204 ]
    [ ! -e "$D/full" ]
    agent_curl "$U" -X OPTIONS -D - | header Accept-Patch | grep -q application/partial-upload
}

@test "a fresh file takes nothing from the one that it replaces" {
    printf old >"$F"
    ln "$F" "$D/g"
    chmod 600 "$F"
    agent_curl "$U?fresh=true" -X PUT -d new | jq -e '.in_place == false and .created == false'
    [ "$(cat "$F") $(cat "$D/g") $(stat -c %a "$F" "$D/g" | tr '\n' ' ')" = "new old 644 600 " ]
    agent_curl "$U?fresh=true&mode=0640" -X PUT -d newer | jq -e '.in_place == false'
    [ "$(cat "$F") $(stat -c %a "$F")" = "newer 640" ]
    agent_curl "$U?fresh=true&in_place=true" -X PUT -d x | jq -e '.code == "invalid_argument" and .field == "fresh"'
    for verb in PUT PATCH; do
        agent_curl "$U?fresh=true&append=true" -X "$verb" -d x | jq -e '.code == "invalid_argument" and .field == "fresh"'
    done
    [ "$(cat "$F")" = newer ]
    [ "$(id -u)" = 0 ] || skip "the rest needs root"
    chown 65534:65534 "$F"
    chmod 755 "$AGENT_DIR"
    agent_curl "$U?fresh=true" -X PUT -d mine -o /dev/null
    [ "$(stat -c '%u %g %a' "$F")" = "0 0 644" ]
}

@test "what can't be replaced is written in place, and the reply says so" {
    local id

    # Several links.
    printf old >"$F"
    ln "$F" "$D/g"
    agent_curl "$U" -X PUT -d new -D - | header Bellhop-In-Place | grep -qx true
    [ "$(cat "$D/g")" = new ]
    rm "$D/g"
    agent_curl "$U" -X PUT -d newer -D - -o /dev/null | header Bellhop-In-Place | { ! grep -q .; }
    [ "$(id -u)" = 0 ] || skip "the rest needs root"
    # A directory that the user can't write to.
    chmod 755 "$AGENT_DIR"
    chown nobody "$F"
    chmod 755 "$D"
    agent_curl "$U?user=nobody" -X PUT -d his | jq -e '.in_place'
    [ "$(cat "$F")" = his ]
    # A file that is a mount point.
    printf other >"$D/other"
    if mount --bind "$D/other" "$F" 2>/dev/null; then
        id=$(stat -c %i "$D/other")
        agent_curl "$U" -X PUT -d mounted | jq -e '.in_place' || { umount "$F"; false; }
        agent_curl "$U?append=true" -X PATCH -d +more | jq -e '.in_place' || { umount "$F"; false; }
        umount "$F"
        [ "$(cat "$D/other")" = mounted+more ]
        [ "$(stat -c %i "$D/other")" = "$id" ]
    fi
    [ "$(cat "$F")" = his ]
}

@test "a replacement keeps mode, owner and attributes" {
    printf old >"$F"
    chmod 751 "$F"
    [ "$(id -u)" != 0 ] || chown 12345:23456 "$F"
    python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.note", b"kept\0\xff")' "$F" 2>/dev/null || no_xattr=yes
    before=$(stat -c '%a %u %g' "$F")
    agent_curl "$U" -X PUT -d new | jq -e '.in_place == false'
    agent_curl "$U" -X PATCH -H 'Content-Range: bytes 0-0/*' -d N | jq -e '.in_place == false'
    [ "$(cat "$F")" = New ]
    [ "$(stat -c '%a %u %g' "$F")" = "$before" ]
    [ -z "${no_xattr:-}" ] || skip "this disk has no user attributes"
    python3 -c 'import os, sys; assert os.getxattr(sys.argv[1], "user.note") == b"kept\0\xff"' "$F"
}

@test "files of proc that can't be read, or that wait, hold nobody up" {
    local path

    agent_curl "/v1/files//proc/$AGENT_PID/mem" | jq -e '.code == "failed_precondition" and .field == "path"'
    # More of them than there are workers.
    if [ -r /proc/kmsg ] && [ "$(id -u)" = 0 ]; then
        seq 120 | xargs -P 20 -I{} curl -sS --max-time 60 -o /dev/null -H "Authorization: Bearer $AGENT_TOKEN" \
            "$AGENT_URL/v1/files//proc/kmsg"
    fi
    [ "$(agent_curl "/v1/files//proc/$AGENT_PID/comm")" = bellhopd ]
    [ "$(agent_curl "/v1/files//proc/$AGENT_PID/comm" -I | header Content-Length)" = 9 ]
    # Larger than the part that is checked before the reply.
    if [ -f /proc/kallsyms ]; then # it is hidden in a box
        cmp <(agent_curl /v1/files//proc/kallsyms | head -c 300000) <(head -c 300000 /proc/kallsyms)
    fi
    for path in /proc/self/maps /proc/cpuinfo /proc/mounts /sys/kernel/mm/transparent_hugepage/enabled; do
        [ ! -r "$path" ] || [ "$(agent_status "/v1/files/$path")" = 200 ] || fail "$path"
    done
}

@test "no update is lost by many writers of every kind" {
    python3 "$BATS_TEST_DIRNAME/../lib/files_race.py" "$AGENT_PORT" "$AGENT_TOKEN" "$D"
    [ -z "$(find "$D" -name '.bellhop*')" ]
}

@test "a download of a file that becomes shorter breaks off" {
    local file=$AGENT_DIR/shrinks

    python3 "$BATS_TEST_DIRNAME/../lib/shrink.py" "$AGENT_PORT" "$AGENT_TOKEN" "$file" "/v1/files/$file"
    python3 "$BATS_TEST_DIRNAME/../lib/shrink.py" "$AGENT_PORT" "$AGENT_TOKEN" "$file" "/v1/files/$file" "Range: bytes=5-"
    python3 "$BATS_TEST_DIRNAME/../lib/shrink.py" "$AGENT_PORT" "$AGENT_TOKEN" "$file" "/files?path=$file"
}
