#!/usr/bin/env bats
# Rare uses of the byte routes: each query parameter does what /v1/openapi.json says, with each verb that has it,
# and each verb of the small routes answers.

load ../lib/agent

setup()
{
    start_agent --workdir /
    D=$AGENT_DIR/d
    mkdir "$D"
    F=/v1/files/$D/f
}
teardown() { stop_agents; }

# header NAME <HEADERS
header() { tr -d '\r' | sed -n "s/^$1: //Ip"; }

@test "HEAD has the status and the type of GET, and no body" {
    local path

    for path in /v1/health /v1/ready /v1/metrics /v1/openapi.json; do
        [ "$(agent_status "$path" -I)" = "$(agent_status "$path")" ] || fail "$path: $(agent_status "$path" -I)"
        [ "$(agent_curl "$path" -I | header Content-Type)" = "$(agent_curl "$path" -D - -o /dev/null | header Content-Type)" ]
    done
    echo x >"$D/f"
    agent_curl "/v1/archive?path=d&format=tar.gz&exclude=x&ignore=1&reproducible=1&pad=1&cwd=$AGENT_DIR&user=$(id -un)" -I >"$AGENT_DIR/h"
    [ "$(header Content-Type <"$AGENT_DIR/h")" = "$(agent_curl "/v1/archive?path=$D&format=tar.gz" -D - -o /dev/null | header Content-Type)" ]
    [ -n "$(header Content-Type <"$AGENT_DIR/h")" ]
}

@test "cwd is where a relative path begins, on every verb" {
    [ "$(agent_status "/v1/files/f?cwd=$D" -X PUT -d one)" = 201 ]
    [ "$(agent_curl "/v1/files/f?cwd=$D")" = one ]
    [ "$(agent_curl "/v1/files/f?cwd=$D" -I | header Content-Length)" = 3 ]
    [ "$(agent_status "/v1/files/f?cwd=$D" -X PATCH -H 'Content-Range: bytes 0-0/*' -d O)" = 200 ]
    [ "$(cat "$D/f")" = One ]
    [ "$(agent_status "/v1/files/g?cwd=$D" -X POST -H 'Upload-Complete: ?1' -d two)" = 201 ]
    [ "$(cat "$D/g")" = two ]
    [ "$(agent_status "/v1/files/g?cwd=$D" -X OPTIONS)" = 204 ]
    [ "$(agent_status "/v1/files/g?cwd=$D" -X DELETE)" = 204 ]
    [ ! -e "$D/g" ]
    [ "$(agent_status "/v1/files/f?cwd=$D/none")" = 404 ]
    agent_curl "/v1/archive?path=d&cwd=$AGENT_DIR" >"$AGENT_DIR/x.tar"
    tar tf "$AGENT_DIR/x.tar" | grep -qx f
    printf 'f\0' | agent_curl "/v1/archive?path=d&cwd=$AGENT_DIR" -X POST --data-binary @- | tar t | grep -qx f
    agent_curl "/v1/archive?path=e&cwd=$AGENT_DIR" -T "$AGENT_DIR/x.tar" -o /dev/null -f
    cmp "$D/f" "$AGENT_DIR/e/f"
}

@test "parents=0 makes no directory, and the default makes them all" {
    local verb

    for verb in PUT POST PATCH; do
        how=()
        [ "$verb" != POST ] || how=(-H 'Upload-Complete: ?1')
        [ "$verb" != PATCH ] || how=(-H 'Content-Range: bytes 0-0/*')
        [ "$(agent_status "/v1/files/$D/$verb/a/f?parents=0" -X "$verb" "${how[@]}" -d x)" = 404 ]
        [ ! -e "$D/$verb" ]
        [ "$(agent_status "/v1/files/$D/$verb/a/f?parents=1" -X "$verb" "${how[@]}" -d x)" = 201 ]
        [ "$(cat "$D/$verb/a/f")" = x ]
    done
    tar -C "$D/PUT" -cf "$AGENT_DIR/x.tar" a
    [ "$(agent_status "/v1/archive?path=$D/new/tree&parents=0" -T "$AGENT_DIR/x.tar")" = 404 ]
    [ ! -e "$D/new" ]
    [ "$(agent_status "/v1/archive?path=$D/new/tree&parents=true&sync=1" -T "$AGENT_DIR/x.tar")" = 200 ]
    [ "$(cat "$D/new/tree/a/f")" = x ]
}

@test "in_place keeps the file itself, sync changes nothing that is seen, mode is set, append appends" {
    local verb inode

    for verb in PUT POST PATCH; do
        how=()
        [ "$verb" != POST ] || how=(-H 'Upload-Complete: ?1')
        [ "$verb" != PATCH ] || how=(-H 'Content-Range: bytes 0-2/*')
        printf old >"$D/f"
        chmod 644 "$D/f"
        inode=$(stat -c %i "$D/f")
        agent_curl "$F?in_place=1&sync=1" -X "$verb" "${how[@]}" -d new | jq -e .in_place
        [ "$(stat -c %i "$D/f")" = "$inode" ]
        [ "$(cat "$D/f")" = new ]
        agent_curl "$F?mode=0600&in_place=0&sync=0" -X "$verb" "${how[@]}" -d two | jq -e '.in_place | not'
        [ "$(stat -c %i "$D/f")" != "$inode" ]
        [ "$(stat -c %a "$D/f")" = 600 ]
    done
    agent_curl "$F?append=1" -X PUT -d +more | jq -e '.offset == 3'
    [ "$(cat "$D/f")" = two+more ]
    [ "$(agent_status "$F?append=1" -X POST -H 'Upload-Complete: ?1' -d x)" = 400 ]
}

@test "user is on whose behalf, on every verb" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    chmod 755 "$AGENT_DIR"
    printf ours >"$D/f"
    chmod 600 "$D/f"
    for how in -G -I '-X DELETE' '-X PATCH -d x -H Content-Range:bytes\ 0-0/*'; do
        eval "how=($how)"
        [ "$(agent_status "$F?user=nobody" "${how[@]}")" = 403 ] || fail "${how[*]}"
    done
    [ "$(cat "$D/f")" = ours ]
    chmod 777 "$D"
    [ "$(agent_status "/v1/files/$D/his?user=nobody" -X PUT -d x)" = 201 ]
    [ "$(stat -c %U "$D/his")" = nobody ]
    [ "$(agent_curl "/v1/files/$D/his?user=nobody")" = x ]
    [ "$(agent_curl "/v1/files/$D/his?user=nobody" -I | header Content-Length)" = 1 ]
    agent_curl "/v1/files/$D/his?user=nobody&append=1" -X PATCH -d y | jq -e '.size == 2'
    [ "$(agent_status "/v1/files/$D/his?user=nobody" -X OPTIONS)" = 204 ]
    [ "$(agent_status "/v1/files/$D/his?user=nobody" -X DELETE)" = 204 ]
    mkdir -m 700 "$D/ours"
    [ "$(agent_status "/v1/archive?path=$D/ours&user=nobody")" = 403 ]
    mkdir -m 755 "$D/all"
    echo x >"$D/all/f"
    agent_curl "/v1/archive?path=$D/all&user=nobody" | tar t | grep -qx f
    printf 'f\0' | agent_curl "/v1/archive?path=$D/all&user=nobody" -X POST --data-binary @- | tar t | grep -qx f
}

@test "an archive is the same bytes when it is asked to be reproducible, as a whole or by names" {
    local how

    echo x >"$D/f"
    for how in '' -X; do
        printf 'f\0' >"$AGENT_DIR/names"
        agent_curl "/v1/archive?path=$D&reproducible=1&pad=1" ${how:+-X POST --data-binary "@$AGENT_DIR/names"} >"$AGENT_DIR/one$how"
        touch -d '2001-01-01' "$D/f"
        agent_curl "/v1/archive?path=$D&reproducible=1&pad=0" ${how:+-X POST --data-binary "@$AGENT_DIR/names"} | cmp - "$AGENT_DIR/one$how"
        touch "$D/f"
        ! agent_curl "/v1/archive?path=$D" ${how:+-X POST --data-binary "@$AGENT_DIR/names"} | cmp -s - "$AGENT_DIR/one$how" || false
    done
    [ "$(agent_status "/v1/archive?path=$D&exclude=f" -X POST --data-binary "@$AGENT_DIR/names")" = 400 ]
}

@test "an upload is looked at by GET as by HEAD" {
    agent_curl "$F" -X PUT -H 'Upload-Complete: ?0' -d abc -D "$AGENT_DIR/h" -o /dev/null
    up=$(header Location <"$AGENT_DIR/h")
    [ "$(agent_curl "$up" -D - | header Upload-Offset)" = 3 ]
    [ "$(agent_status "$up")" = 204 ]
}

@test "the proxy passes every verb on" {
    python3 - "$AGENT_DIR/port" 3>&- <<'PY' &
import http.server, os, sys
class H(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("X-Verb", self.command)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer
    def log_message(self, *args):
        pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(s.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
s.serve_forever()
PY
    web=$!
    wait_until 10 test -s "$AGENT_DIR/port"
    for verb in GET HEAD POST PUT PATCH DELETE OPTIONS; do
        how=(-X "$verb")
        [ "$verb" != HEAD ] || how=(-I)
        got=$(agent_curl "/v1/proxy/$(cat "$AGENT_DIR/port")/x" "${how[@]}" -D - -o /dev/null | header X-Verb)
        [ "$got" = "$verb" ] || { kill "$web"; fail "$verb: $got"; }
    done
    kill "$web"
}

@test "a file by ?path= takes the parameters of one by its address, on every verb" {
    local by="/v1/files?path=f&user=$(id -un)&cwd=$D"

    [ "$(agent_status "$by&mode=0640&sync=1&parents=1&fresh=1" -X PUT -d one)" = 201 ]
    [ "$(stat -c %a "$D/f")" = 640 ]
    [ "$(agent_status "$by&in_place=1" -X PUT -d One)" = 200 ]
    [ "$(agent_status "$by&append=1" -X PUT -d two)" = 200 ]
    [ "$(agent_status "$by&append=1&mode=0600&sync=0&parents=0&in_place=1" -X PATCH -d 3)" = 200 ]
    [ "$(agent_curl "$by")" = Onetwo3 ]
    [ "$(agent_curl "$by" -I | header Content-Length)" = 7 ]
    [ "$(agent_status "$by&mode=0644&sync=0&parents=0&fresh=1" -X POST -H 'Upload-Complete: ?1' -d new)" = 200 ]
    [ "$(agent_status "$by&in_place=1" -X POST -H 'Upload-Complete: ?1' -d new)" = 200 ]
    [ "$(agent_curl "$by")" = new ]
    [ "$(agent_status "$by" -X OPTIONS)" = 204 ]
    [ "$(agent_status "$by" -X DELETE)" = 204 ]
    mkdir -p "$D/tree/sub"
    [ "$(agent_status "/v1/files?path=$D/tree" -X DELETE)" = 400 ]
    [ "$(agent_status "/v1/files?path=$D/tree&recursive=1" -X DELETE)" = 204 ]
    [ ! -e "$D/tree" ]
}
