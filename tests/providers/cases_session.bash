# cases_session.bash: the cases of a session with a box: arguments, bytes, ports, and the way to them. cases.bash loads
# it, and has the rest.

load ../providers/faulty

# broken LINE...: "FUNCTION MODE" (faulty.c), for boxes of $FAULTY_DIR/bellhop. mend: all works again.
broken() { printf '%s\n' "$@" >"$BELLHOP_STATE_DIR/fault"; }
mend() { rm -f "$BELLHOP_STATE_DIR/fault"; }

forget_asked() { : >"$BELLHOP_STATE_DIR/asked"; }

# n_asked PROGRAM FUNCTION: how often the provider was asked, since forget_asked.
n_asked() { grep -cx "$1 $2" "$BELLHOP_STATE_DIR/asked" || true; }

# first_asked FUNCTION: which of the calls was the first of it.
first_asked() { grep -n " $1\$" "$BELLHOP_STATE_DIR/asked" | head -n 1 | cut -d : -f 1; }

# is_unasked FUNCTION...
is_unasked()
{
    local function

    for function in "$@"; do
        [ -z "$(first_asked "$function")" ] || fail "$PROVIDER: asked: $(cat "$BELLHOP_STATE_DIR/asked")"
    done
}

case_files()
{
    up
    head -c 3000001 /dev/urandom >"$BOX_TMP/file"
    : >"$BOX_TMP/empty"
    for name in file empty; do
        bellhop put one "$BOX_TMP/$name" ":$name"
        rm -rf "$BOX_TMP/back"
        bellhop get one ":$name" "$BOX_TMP/back"
        cmp "$BOX_TMP/$name" "$BOX_TMP/back/$name"
        bellhop exec -n one -- cat "$name" >"$BOX_TMP/out" # by its status: nothing printed is equal to the empty file
        cmp "$BOX_TMP/out" "$BOX_TMP/$name"
        bellhop exec one -- sh -c 'cat >copy && cat copy && echo copied >&2' <"$BOX_TMP/$name" >"$BOX_TMP/out" 2>"$BOX_TMP/err"
        cmp "$BOX_TMP/out" "$BOX_TMP/$name"
        [ "$(cat "$BOX_TMP/err")" = copied ]
    done
}

# Up to the maximum of a single argument, 128 KiB with its NUL. A NUL ends each in the output.
case_arguments()
{
    local id script='for a; do printf "%s\0" "$a"; done' args

    args=("with space" "it's" '"quoted"' '$HOME $(id) `id`' $'two\nlines' '' $'tab\t' '*' '\' '\\n' '%s' '--help' -n --
        ';' '|' '&&' '#' '~' '!' '{a,b}' $'\x01\x7f' 'é' $'\xff\xfe' "$(head -c 131071 /dev/zero | tr '\0' x)")
    printf '%s\0' "${args[@]}" >"$BOX_TMP/expected"
    up
    bellhop exec -n one -- sh -c "$script" sh "${args[@]}" | cmp "$BOX_TMP/expected" -
    id=$(bellhop exec -d one -- sh -c "$script" sh "${args[@]}")
    bellhop wait one "$id"
    bellhop logs one --id "$id" | cmp "$BOX_TMP/expected" -
    [ "$(bellhop exec -n one -c 'printf "%s|" '"'a b' \"\$((1 + 1))\" '\$(id)'")" = 'a b|2|$(id)|' ]
    printf '%s\0' / "${args[3]}" "${args[4]}" >"$BOX_TMP/expected"
    bellhop exec -n -C / -e "A=${args[3]}" -e "B=${args[4]}" one -- sh -c 'printf "%s\0" "$PWD" "$A" "$B"' |
        cmp "$BOX_TMP/expected" -
}

# peak_kb COMMAND...: the most memory that it has had.
peak_kb()
{
    python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$@"
}

# The box's monitor may be on the way of each byte: its memory counts, too. Most of the file is a hole.
case_upload()
{
    local monitor peak

    up
    monitor=$(cut -d ' ' -f 1 "$BELLHOP_STATE_DIR/boxes/$ID/monitor.lock")
    echo begin >"$BOX_TMP/big"
    truncate -s 1G "$BOX_TMP/big"
    echo end >>"$BOX_TMP/big"
    peak=$(peak_kb "$BELLHOP" put one "$BOX_TMP/big" :big)
    [ "$peak" -lt 32768 ] || fail "$PROVIDER: put: $peak kB"
    [ "$(bellhop exec -n one -- sha256sum big | cut -d ' ' -f 1)" = "$(sha256sum "$BOX_TMP/big" | cut -d ' ' -f 1)" ]
    peak=$(peak_kb "$BELLHOP" cat one :big)
    [ "$peak" -lt 32768 ] || fail "$PROVIDER: cat: $peak kB"
    peak=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$monitor/status")
    [ "$peak" -lt 32768 ] || fail "$PROVIDER: monitor: $peak kB"
    rm "$BOX_TMP/big"
}

# Answers what it was sent, turned round, once the client has ended its half.
SERVER='
import socket, sys
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    c, _ = s.accept()
    got = b""
    while piece := c.recv(65536):
        got += piece
    c.sendall(got[::-1])
    c.close()
'

# half_close URL: sends a megabyte, ends its half and wants all of the answer.
half_close()
{
    python3 - "$1" <<'P'
import os, socket, sys, urllib.parse
u = urllib.parse.urlsplit(sys.argv[1])
sent = os.urandom(1 << 20)
with socket.create_connection((u.hostname, u.port), 60) as s:
    s.sendall(sent)
    s.shutdown(socket.SHUT_WR)
    got = b""
    while piece := s.recv(65536):
        got += piece
assert got == sent[::-1], len(got)
P
}

case_ports()
{
    local port url

    up
    port=$(free_port)
    bellhop exec -d one -- python3 -c "$SERVER" "$port"
    bellhop wait-port one "$port"
    url=$(bellhop url one --port "$port")
    [[ "$url" =~ ^http://127\.0\.0\.1:[0-9]+$ ]] || fail "$PROVIDER: $url"
    [ "$(bellhop url one --port "$port" --json | jq -r .needs)" = nothing ]
    half_close "$url"
    half_close "$url"
    bellhop stop one
    ! half_close "$url" 2>/dev/null || fail "a stopped box answered"
}

# guest ROUTE [CURL OPTION...]: a call of the guest agent by the box's URL.
guest() { curl -sf -H "Authorization: Bearer $(cat "$BELLHOP_STATE_DIR/boxes/$ID/token")" "${@:2}" "$GUEST$1"; }

# After up, the way to the guest agent is all that a session needs: the provider's other functions are broken. The
# monitor asks whether the box runs.
case_url_alone()
{
    local BELLHOP=$FAULTY_DIR/bellhop port url work

    up
    port=$(free_port)
    bellhop exec -d one -- python3 -c "$SERVER" "$port"
    bellhop wait-port one "$port"
    url=$(bellhop url one --port "$port")
    work=$(bellhop exec -n one -- pwd)
    GUEST=$(bellhop status one --json | jq -r .guest.url)
    broken "check error" "prepare error" "start error" "stop error" "destroy error" "check_pause error" "pause error" \
        "resume error" "inspect error" "sweep error" "probe error" "check_capture error" "capture error"
    forget_asked
    guest "/v1/files/$work/note" -o /dev/null -T - <<<"hello"
    [ "$(guest "/v1/files/$work/note")" = hello ]
    guest /bellhop.v1.Exec/Run -H 'Content-Type: application/json' -d "$(jq -n --arg work "$work" \
        '{argv: ["sh", "-c", "cat note; echo $((6 * 7))"], cwd: $work}')" >"$BOX_TMP/ran"
    json_is '.exit.code == 0 and .stdout.text == "hello\n42\n"' <"$BOX_TMP/ran" || fail "$PROVIDER: $(cat "$BOX_TMP/ran")"
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$GUEST/v1/files/$work/note")" = 401 ]
    half_close "$url"
    run ! grep -vxE 'bellhop-monitor (find|dial)' "$BELLHOP_STATE_DIR/asked"
    mend
}

# The provider is asked in order: a new box is checked, prepared, started; one that runs is found and used; a stopped one
# is found and started once. A box that was made and cannot be used is removed.
case_order()
{
    local BELLHOP=$FAULTY_DIR/bellhop fault timeout

    mkdir -p -m 0700 "$BELLHOP_STATE_DIR"
    for fault in 'prepare late' 'start late' 'start killed' 'dial error'; do
        timeout=5m
        if [ "$fault" = 'dial error' ]; then
            claims dial || continue
            timeout=10s # it is dialed again until then; the time to make the box is within it
        fi
        broken "$fault"
        run bellhop up --name one --agent none --empty --start-timeout "$timeout" "${UP[@]}" --json
        [ "$status" -ne 0 ] || fail "$PROVIDER: $fault did not fail"
        mend
        left_nothing
    done
    forget_asked
    up
    [ "$(first_asked check)" -lt "$(first_asked prepare)" ]
    [ "$(first_asked prepare)" -lt "$(first_asked start)" ]
    ! claims dial || [ "$(first_asked start)" -lt "$(first_asked dial)" ]
    is_unasked destroy
    forget_asked
    bellhop exec one -- sh -c 'echo kept >file'
    is_unasked check prepare start stop destroy
    bellhop stop one
    forget_asked
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ "$(n_asked bellhop-monitor start)" -eq 1 ]
    [ "$(first_asked find)" -lt "$(first_asked start)" ]
    ! claims dial || [ "$(first_asked start)" -lt "$(first_asked dial)" ]
    is_unasked prepare destroy
}

# A box that takes a minute until it is there again: its deadline counts, no number of attempts.
case_wake()
{
    local BELLHOP=$FAULTY_DIR/bellhop begin function=start

    up
    bellhop exec one -- sh -c 'echo kept >file'
    pause_or_refused
    if [ "$PAUSED" = yes ]; then function=resume; else bellhop stop one; fi
    forget_asked
    broken "$function slow:60"
    begin=$SECONDS
    [ "$(bellhop exec one -- cat file)" = kept ]
    [ $((SECONDS - begin)) -ge 59 ] || fail "$PROVIDER: $function was not slow"
    [ "$(n_asked bellhop-monitor "$function")" -eq 1 ]
    is_state running
    mend
}
