# Arguments that no program can be given. tests/providers/ has those that arrive byte for byte, with every provider.
# needs: image

load ../lib/box

setup() { box_setup; }
teardown() { box_teardown; }

@test "an argument that no program can be given is an error that names it" {
    bellhop up --name one --provider process --agent none --empty 2>/dev/null >/dev/null
    # This machine's own exec takes at most 128 KiB with the NUL; the API has no such bound.
    socket=$(bellhop status one --json | jq -r .guest.socket)
    jq -n '{argv: ["true", ("x" * 131072)]}' >"$BOX_TMP/request"
    curl -s --unix-socket "$socket" -H "Authorization: Bearer $(cat "$(dirname "$socket")/../token")" \
        -H 'Content-Type: application/json' --data-binary "@$BOX_TMP/request" http://box/bellhop.v1.Exec/Run \
        >"$BOX_TMP/answer"
    [ "$(jq -r .field "$BOX_TMP/answer")" = 'argv[1]' ]
}
