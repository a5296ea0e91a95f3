# The state of a box: its activity, holds, ports, readiness.

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    box_setup
}
teardown()
{
    box_teardown
}

up() # [OPTION...]
{
    bellhop up --name one --provider process --agent none --empty "$@" >/dev/null 2>&1
}

now()
{
    date +%s%3N
}

@test "a hold keeps a box beyond its time, and no longer than it says" {
    up --timeout 2s
    start=$(now)
    bellhop hold one --for 5s --reason 'waiting' >"$BOX_TMP/id"
    wait_for 30 bash -c "'$BELLHOP' status one --json | jq -e '.state == \"stopped\"'"
    took=$(($(now) - start))
    [ "$took" -ge 4000 ] || fail "stopped after $took ms"
}

@test "activity says by what a box is used, and a hold is released" {
    up
    id=$(bellhop hold one --reason 'a review')
    bellhop activity one | grep -q "^hold $id .*: a review$"
    # Without isolation other things of this machine count too.
    bellhop activity --json one | jq -e '.busy and (.reasons | index("holds"))'
    [ "$(bellhop hold one --id "$id")" = "$id" ]
    bellhop release one "$id"
    [ "$(bellhop activity --json one | jq '.holds | length')" -eq 0 ]
    run -3 bellhop release one "$id"
    bellhop exec -d --id busy one -- sleep 60
    bellhop activity --json one | jq -e '.reasons | index("commands")'
    bellhop stop one
    run -4 bellhop activity one
    [[ "$output" == *"'one' is stopped"* ]]
}

@test "a port is waited for, listed, and given up when its command ends" {
    up
    port=$(free_port)
    bellhop exec -d --id web one -- python3 -m http.server -b 127.0.0.1 "$port"
    [ "$(bellhop wait-port --json one "$port" --path / --id web | jq .status)" -eq 200 ]
    # Until the server has closed its side of the connection that has asked, that counts.
    is_listed() { bellhop ports one | grep -q "^$port	tcp	127.0.0.1	yes	0	python3 ([0-9]*)	web$"; }
    wait_for 10 is_listed
    bellhop ports --json one | jq -e ".ports | map(.port) | index($port)"
    bellhop kill one web
    bellhop wait one web || true
    run -6 bellhop wait-port one "$port" --timeout 100ms
    bellhop exec -d --id broken one -c 'exit 3'
    run -4 bellhop wait-port one "$port" --id broken
    [[ "$output" == *"exited with 3"* ]]
}

@test "ready runs the tools and says which do not work" {
    up
    run --separate-stderr bellhop ready --json one
    jq -e '.tools | map(.name) | index("git")' <<<"$output"
    [ "$(jq .ready <<<"$output")" = "$([ "$status" -eq 0 ] && echo true || echo false)" ]
    run bellhop ready one
    [[ "$output" == *"bash"*"ok"*"GNU bash"* ]]
}
