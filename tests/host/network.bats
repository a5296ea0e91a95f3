# The three kinds of network. Only the one request to apt's package mirror leaves this machine.
# needs: image

load ../lib/oci

setup_file() { oci_setup_file; }
setup()
{
    oci_setup
    PIDS=()
}
teardown()
{
    local pid

    for pid in "${PIDS[@]}"; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    oci_teardown
}

A=00000000000000aa
B=00000000000000bb

# serve ADDRESS: an HTTP server on a free port of this machine; sets PORT.
serve()
{
    rm -f "$OCI_TMP/port"
    python3 - "$1" "$OCI_TMP/port" 3>&- >/dev/null 2>&1 <<'P' &
import http.server, os, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the host's")
    def log_message(self, *a):
        pass
s = http.server.ThreadingHTTPServer((sys.argv[1], 0), H)
with open(sys.argv[2] + ".new", "w") as f:
    f.write(str(s.server_port))
os.rename(sys.argv[2] + ".new", sys.argv[2])
s.serve_forever()
P
    PIDS+=($!)
    wait_until 10 test -e "$OCI_TMP/port"
    PORT=$(cat "$OCI_TMP/port")
}

# The box's curl on a URL, without any proxy: its exit status is run's. A good answer gets more than 5 seconds.
reach() # ID URL [SECONDS]
{
    in_box "$1" "curl -sS --noproxy '*' --max-time ${3:-5} '$2'"
}

@test "network_none_has_only_its_own_loopback" {
    serve 0.0.0.0
    box_make "$A" network=none
    [ "$(drive inspect "$A" | jq -c .network.devices)" = '["lo"]' ]
    refused reach "$A" "http://127.0.0.1:$PORT/"
    for address in $(hostname -I); do
        case $address in *:*) continue ;; esac
        refused reach "$A" "http://$address:$PORT/"
    done
    [ "$(in_box "$A" 'cd /tmp; python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &
        for i in $(seq 800); do curl -sf http://127.0.0.1:8123/ -o /dev/null && echo up && break; sleep 0.05; done; kill $!')" = up ]
}

@test "network_user_reaches_nothing_of_the_hosts_loopback" {
    serve 127.0.0.1
    box_make "$A" network=user
    for address in 127.0.0.1 10.0.2.2 localhost; do
        refused reach "$A" "http://$address:$PORT/"
        [[ "$output" != *"the host's"* ]]
    done
}

@test "network_user_reaches_no_service_on_the_hosts_own_addresses" {
    serve 0.0.0.0
    box_make "$A" network=user
    [ "$(drive inspect "$A" network=user | jq .network.filtered)" = true ]
    n=0
    for address in $(hostname -I); do
        case $address in *:*) continue ;; esac
        # An address may vanish meanwhile: that of another test's bridge.
        curl -sf --noproxy '*' --max-time 60 "http://$address:$PORT/" -o /dev/null || { ! hostname -I | grep -qwF "$address" && continue; }
        n=$((n + 1))
        refused reach "$A" "http://$address:$PORT/"
        [[ "$output" != *"the host's"* ]]
    done
    [ "$n" -gt 0 ] || skip "this machine has no address but its loopback"
}

@test "network_user_rules_cannot_be_changed_from_within" {
    box_make "$A" network=user
    refused in_box "$A" 'ip link set tap0 down'
    refused in_box "$A" 'ip route add 169.254.0.0/16 dev lo'
}

@test "network_user_drops_link_local_addresses" {
    box_make "$A" network=user
    refused reach "$A" http://169.254.169.254/latest/meta-data/
}

@test "network_user_goes_out" {
    url=$(mirror)
    [ -n "$url" ] || skip "apt has no mirror over http"
    curl -sf --max-time 20 "$url" -o /dev/null || skip "this machine does not reach its own mirror"
    box_make "$A" network=user
    in_box "$A" "curl -sSf --max-time 15 --retry 2 --retry-all-errors '$url' -o /dev/null"
}

# The first http mirror that apt is told to use.
mirror()
{
    sed -n 's/^URIs: *\(http:[^ ]*\).*/\1/p; s/^deb .*\(http:[^ ]*\).*/\1/p' \
        /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 | sed 's,/*$,/,'
}

@test "network_user_boxes_do_not_reach_each_other" {
    box_make "$A" network=user
    box_make "$B" network=user
    in_box "$A" 'cd /tmp; setsid python3 -m http.server 8123 --bind 0.0.0.0 >/dev/null 2>&1 &
        for i in $(seq 800); do curl -sf http://127.0.0.1:8123/ -o /dev/null && break; sleep 0.05; done'
    in_box "$A" 'curl -sf http://10.0.2.100:8123/ -o /dev/null'
    refused reach "$B" http://10.0.2.100:8123/
}

@test "network_user_forwards_just_the_port_of_a_proxy_on_the_hosts_loopback" {
    serve 127.0.0.1
    proxy=$PORT
    serve 127.0.0.1
    box_make "$A" network=user env="http_proxy=http://127.0.0.1:$proxy"
    [ "$(reach "$A" "http://127.0.0.1:$proxy/" 45)" = "the host's" ]
    refused reach "$A" "http://127.0.0.1:$PORT/"
    # many at once, and a large body through it
    [ "$(in_box "$A" "for i in \$(seq 20); do curl -s --noproxy '*' http://127.0.0.1:$proxy/ -o /dev/null -w '%{http_code}\n' & done; wait" | sort | uniq -c | tr -s ' ')" = " 20 200" ]
}

@test "network_user_uses_pasta_where_slirp4netns_is_missing" {
    slirp=$(command -v slirp4netns) && command -v pasta >/dev/null || skip "needs slirp4netns and pasta"
    serve 0.0.0.0
    BOXES+=("$A")
    drive prepare "$A" network=user
    # hidden in a mount namespace of the test's own
    unshare -m sh -c 'mount --bind /dev/null "$1" && shift && exec "$@"' sh "$slirp" \
        "$DRIVE" "$STATE" "$AGENT" start "id=$A" image_dir="$IMAGE_DIR" network=user 3>&- >/dev/null
    wait_until 10 box_answers "$A"
    [ "$(drive inspect "$A" network=user | jq -r .network.program)" = pasta ]
    for address in 127.0.0.1 $(hostname -I); do
        case $address in *:*) continue ;; esac
        refused reach "$A" "http://$address:$PORT/"
        [[ "$output" != *"the host's"* ]]
    done
}

@test "network_host_is_the_hosts_own" {
    serve 127.0.0.1
    box_make "$A" network=host
    [ "$(reach "$A" "http://127.0.0.1:$PORT/" 45)" = "the host's" ]
    drive inspect "$A" network=host | jq -e '.isolation.network_namespace == false and .missing == []'
}

@test "network_user_works_again_after_stop_and_start" {
    box_make "$A" network=user
    drive stop "$A"
    box_start "$A" network=user
    [ "$(drive inspect "$A" network=user | jq -c .network.devices)" = '["lo","tap0"]' ]
}

@test "network_hosts_file_names_the_box" {
    box_make "$A" network=user
    [ "$(in_box "$A" 'getent hosts testbox | tr -s " "')" = "127.0.1.1 testbox" ]
    [ "$(in_box "$A" 'getent ahostsv4 localhost | head -n 1 | cut -d " " -f 1')" = 127.0.0.1 ]
}
