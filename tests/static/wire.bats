#!/usr/bin/env bats
# The record of what clients get: an answer that is not as the document has it is found, whichever
# client got it and however it came.

load ../lib/agent

setup()
{
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    cd "$BATS_TEST_TMPDIR"
    mkdir bin
    gcc -O1 -shared -fPIC -o bin/record.so "$TOP/tests/lib/wire/record.c"
    gcc -O1 -static -o bin/launch "$TOP/tests/lib/wire/launch.c"
    # A server that answers what it is asked for: STATUS and BODY in the query.
    env -u WIRE_DIR python3 - port 3>&- <<'PY' &
import http.server, os, sys, urllib.parse
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        q = urllib.parse.parse_qs(self.path.partition("?")[2])
        body = q["body"][0].encode()
        self.send_response(int(q["status"][0]))
        self.send_header("Content-Type", "application/json")
        if "chunked" in q:
            self.send_header("Transfer-Encoding", "chunked")
            body = b"".join(b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
    def log_message(self, *args):
        pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
with open("port.new", "w") as f:
    f.write(str(s.server_port))
os.rename("port.new", sys.argv[1])
s.serve_forever()
PY
    SERVER=$!
    wait_until 20 test -s port
    URL=http://127.0.0.1:$(cat port)/bellhop.v1.System/Info
}
teardown() { kill "$SERVER"; }

# by CLIENT URL...: asks for each URL, over one connection.
by()
{
    local client=$1

    shift
    mkdir -p "wire-$client"
    export WIRE_DIR=$PWD/wire-$client
    case $client in
    curl) bin/launch curl -s -o /dev/null -d '{}' "$1" --next -s -o /dev/null -d '{}' "$2" ;;
    python3)
        bin/launch python3 - "$@" <<'PY'
import http.client, sys, urllib.parse
url = urllib.parse.urlparse(sys.argv[1])
c = http.client.HTTPConnection(url.netloc)
for u in sys.argv[1:]:
    c.request("POST", u[u.index("/", 8):], b"{}")
    c.getresponse().read()
PY
        ;;
    node)
        cat >client.mjs <<'JS'
for (const url of process.argv.slice(2)) await (await fetch(url, { method: "POST", body: "{}" })).text();
JS
        bin/launch node client.mjs "$@"
        ;;
    esac
    unset WIRE_DIR
    python3 "$TOP/tests/lib/check-answers.py" "$PWD/wire-$client" no
}

@test "a wrong answer is found, whichever client got it" {
    good='status=404&body=%7B%22code%22%3A%22not_found%22%2C%22message%22%3A%22x%22%7D'
    for client in curl python3 node; do
        command -v "$client" >/dev/null || continue
        by "$client" "$URL?$good" "$URL?$good&chunked=1" | grep -q "(2)	ok$" || fail "$client: good ones"
        rm -r "wire-$client"
        for bad in 'status=200&body=%7B%7D' 'status=404&body=%7B%22code%22%3A%22nonsense%22%2C%22message%22%3A%22x%22%7D' \
            'status=404&body=no' 'status=200&body=%7B%7D&chunked=1'; do
            by "$client" "$URL?$good" "$URL?$bad" 2>/dev/null | grep -q "(2)	fail$" || fail "$client: $bad"
            rm -r "wire-$client"
        done
    done
}
