# layer.bash: recipes whose npm package is in the cache already, without a registry. Used by bats files, after
# box.bash:
#
#   layer_setup          a cache of the test's own; call it after box_setup
#   make_package NAME    NAME 1.0 in the npm cache, a server in Python; sets INTEGRITY
#   layer_recipe NAME    $BOX_TMP/NAME.json, which starts that server; JQ CHANGES after it
#   layer_up NAME BOX [OPTION...]

layer_setup()
{
    local shared=$BELLHOP_CACHE_DIR

    export BELLHOP_CACHE_DIR=$BOX_TMP/cache
    mkdir -p "$BELLHOP_CACHE_DIR/npm"
    [ ! -e "$shared/image" ] || ln -s "$(readlink -f "$shared/image")" "$BELLHOP_CACHE_DIR/image"
    # Nobody listens there: what is not in the cache cannot be fetched.
    export npm_config_registry=http://127.0.0.1:9
    AGENTS=$BELLHOP_CACHE_DIR/agents
}

make_package()
{
    local dir=$BOX_TMP/packing tgz=$BELLHOP_CACHE_DIR/npm/$1-1.0.tgz

    mkdir -p "$dir/package/lib/deep"
    cat >"$dir/package/lib/deep/server.py" <<'SERVER'
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"ok": True, "file": __file__}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
SERVER
    # shellcheck disable=SC2016 # for the other shell
    printf '#!/bin/sh\nexec python3 -B "$(dirname "$0")/../lib/deep/server.py" "$@"\n' >"$dir/package/serve"
    mkdir -p "$dir/package/bin"
    mv "$dir/package/serve" "$dir/package/bin/serve"
    chmod 755 "$dir/package/bin/serve"
    tar -czf "$tgz" -C "$dir" package
    INTEGRITY=sha512-$(openssl dgst -sha512 -binary "$tgz" | base64 -w0)
}

layer_recipe() # NAME [JQ CHANGE]
{
    jq -n --arg name "$1" --arg integrity "$INTEGRITY" '{
        name: $name, description: "a test", version: "1.0", port: 7777,
        install: {npm: [{package: $name, integrity: $integrity}]},
        start: {argv: ["${install}/package/bin/serve", "${port}"], mode: "server"},
        health: {http: {path: "/h", expect: {ok: true}}, attempt_ms: 2000, total_ms: 120000}
    }' | jq "${2:-.}" >"$BOX_TMP/$1.json"
}

layer_up() # NAME BOX [OPTION...]
{
    local name=$1 box=$2

    shift 2
    bellhop up --name "$box" --agent "$BOX_TMP/$name.json" --empty --json "$@" >"$BOX_TMP/up.$box"
}

# Where the box's agent lies, as it says itself.
agent_file() { curl -sS --max-time 60 "$(jq -r .agent.url "$BOX_TMP/up.$1")/h" | jq -r .file; }

# The directories of the layers, one a line.
layers() { find "$AGENTS" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sort; }
