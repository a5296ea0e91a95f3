# The arguments of a command arrive byte for byte, with every provider.
# needs: image

load ../lib/box

setup()
{
    box_setup
    # Up to the maximum of a single argument, 128 KiB with its NUL.
    ARGS=("with space" "it's" '"quoted"' '$HOME $(id) `id`' $'two\nlines' '' $'tab\t' '*' '\' '\\n' '%s' '--help' -n --
        ';' '|' '&&' '#' '~' '!' '{a,b}' $'\x01\x7f' 'é' $'\xff\xfe' "$(head -c 131071 /dev/zero | tr '\0' x)")
    # A NUL ends each: nothing else separates all of them.
    printf '%s\0' "${ARGS[@]}" >"$BOX_TMP/expected"
}
teardown() { box_teardown; }

# By exec, attached and detached, and in a shell's script.
check_arguments()
{
    bellhop exec -n one -- sh -c 'for a; do printf "%s\0" "$a"; done' sh "${ARGS[@]}" >"$BOX_TMP/got"
    cmp "$BOX_TMP/expected" "$BOX_TMP/got"
    id=$(bellhop exec -d one -- sh -c 'for a; do printf "%s\0" "$a"; done' sh "${ARGS[@]}")
    bellhop wait one "$id"
    bellhop logs one --id "$id" >"$BOX_TMP/got"
    cmp "$BOX_TMP/expected" "$BOX_TMP/got"
    [ "$(bellhop exec -n one -c 'printf "%s|" '"'a b' \"\$((1 + 1))\" '\$(id)'")" = 'a b|2|$(id)|' ]
}

@test "arguments arrive byte for byte in a process box" {
    bellhop up --name one --provider process --agent none --empty 2>/dev/null >/dev/null
    check_arguments
}

@test "arguments arrive byte for byte in an oci box" {
    bellhop up --name one --agent none --empty 2>/dev/null >/dev/null
    check_arguments
}

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
