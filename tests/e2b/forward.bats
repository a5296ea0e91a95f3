#!/usr/bin/env bats
# --forward-localhost: ports on localhost in the box, as E2B's edge dials them, over a network of two namespaces.
# early

load ../lib/agent

forward()
{
    [ "$(id -u)" = 0 ] || skip "needs root: network namespaces"
    unshare --net sh -c 'ip link add v0 type veth peer name v1' 2>/dev/null || skip "no veth here"
    timeout 600 unshare --net sh -c 'ip link set lo up && exec "$@"' sh \
        python3 "$BATS_TEST_DIRNAME/forward.py" "$(realpath "$BELLHOPD")" "$BATS_TEST_TMPDIR" "$@" 3>&- 4>&-
}

@test "e2b forward: what listens on localhost is reached at the address, byte for byte, with half-closes" {
    forward bytes
}

@test "e2b forward: nothing else is: no other loopback, no other address, never the agent" {
    forward only
}

@test "e2b forward: ports come and go with their listeners, connections stay" {
    forward come_and_go
}

@test "e2b forward: an address that comes later is used when it is there" {
    forward late_address
}

@test "e2b forward: the agent ends in the middle of connections" {
    forward end
}

@test "e2b forward: ports, connections and buffers are bounded, and all is given back" {
    forward bounds
}

@test "e2b forward: only an address of a machine can be one" {
    local address

    for address in '' 0.0.0.0 127.0.0.1 127.1.2.3 localhost ::1 :: ::ffff:169.254.0.21 fe80::1 224.0.0.1 255.255.255.255 ff02::1 \
        169.254.0.21:80 1.2.3; do
        run "$BELLHOPD" --listen 127.0.0.1:0 --auth=open --forward-localhost "$address"
        [ "$status" = 2 ]
        [[ $output = *"option '--forward-localhost': '$address' must be an IP address of this machine"* ]]
    done
}
