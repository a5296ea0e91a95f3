# The debug log: what it has, that it has no secret, and how its file is kept.
# needs: image

load ../lib/box

setup()
{
    bats_require_minimum_version 1.5.0
    box_setup
    LOG=$BOX_TMP/debug.log
}
teardown() { box_teardown; }

@test "the debug log of an up has providers, states, requests and programs with times, and none of the secrets" {
    mkdir "$BOX_TMP/p"
    git -C "$BOX_TMP/p" init -q
    git -C "$BOX_TMP/p" remote add origin https://someone:URLSECRET1@host/x.git
    echo a >"$BOX_TMP/p/a"
    export BELLHOP_DEBUG=$LOG OF_MINE=ENVSECRET2 KEPT=FILESECRET3
    bellhop up --name one --agent none -e OF_MINE -e GIVEN=ENVSECRET4 --secret KEPT "$BOX_TMP/p" >/dev/null 2>"$BOX_TMP/err" || fail "$(cat "$BOX_TMP/err" "$LOG")"
    remember_box one
    token=$(cat "$BELLHOP_STATE_DIR"/boxes/*/token)
    [ "$(bellhop exec one -e MORE=ENVSECRET5 -- sh -c 'echo OUTSECRET6 $OF_MINE')" = "OUTSECRET6 ENVSECRET2" ]
    echo INSECRET7 | bellhop exec one -i -- cat >/dev/null
    bellhop status one >/dev/null
    bellhop rm one >/dev/null
    # A line is a time, a process, a part and a text.
    [ -z "$(grep -vE '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z \[[0-9]+\] (provider|state|http|host): ' "$LOG")" ]
    for call in check prepare find inspect destroy; do
        grep -qE "provider: [a-z]+ $call( one)?: ok [0-9]+ ms\$" "$LOG" || fail "no $call: $(cat "$LOG")"
    done
    for to in requested provisioning running destroyed; do
        grep -qE "state: [0-9a-f]+ state [a-z]+ to $to\$" "$LOG" || fail "no state $to: $(cat "$LOG")"
    done
    grep -qE 'http: (GET|POST) http://box/[A-Za-z0-9/._-]+ 200 [0-9]+ bytes [0-9]+ ms$' "$LOG"
    grep -qE 'host: git .*: ok [0-9]+ ms$' "$LOG"
    for secret in URLSECRET1 ENVSECRET2 FILESECRET3 ENVSECRET4 ENVSECRET5 OUTSECRET6 INSECRET7 "$token"; do
        [ -n "$secret" ]
        if grep -qF -- "$secret" "$LOG" "$BOX_TMP/err"; then fail "the log has $secret: $(grep -F -- "$secret" "$LOG")"; fi
    done
    [ "$(stat -c %a "$LOG")" = 600 ]
}

@test "the option --debug, BELLHOP_DEBUG=1 and a file's debug write to standard error, and parts can be chosen" {
    mkdir -p "$HOME/.config/bellhop"
    [ -z "$(bellhop providers 2>&1 >/dev/null)" ]
    bellhop providers --debug 2>&1 >/dev/null | grep -q ' provider: process probe: '
    bellhop --debug providers 2>&1 >/dev/null | grep -q ' provider: process probe: '
    BELLHOP_DEBUG=1 "$BELLHOP" providers 2>&1 >/dev/null | grep -q ' provider: process probe: '
    echo 'debug = true' >"$HOME/.config/bellhop/config.toml"
    "$BELLHOP" providers 2>&1 >/dev/null | grep -q ' provider: process probe: '
    [ -z "$("$BELLHOP" providers --debug=false 2>&1 >/dev/null)" ]
    [ -z "$(BELLHOP_DEBUG=http,host "$BELLHOP" providers 2>&1 >/dev/null)" ]
    BELLHOP_DEBUG=state,provider "$BELLHOP" providers 2>&1 >/dev/null | grep -q ' provider: process probe: '
    export BELLHOP_DEBUG=http,nothing
    run -2 bellhop ls
    [[ "$output" == *"BELLHOP_DEBUG: 'http,nothing' is neither 1, an absolute path nor a list of "* ]]
}

@test "the log's file is private, no link, and rotates at 10 MiB" {
    export BELLHOP_DEBUG=$LOG
    echo mine >"$LOG"
    chmod 644 "$LOG"
    run -7 bellhop providers
    [ "$(cat "$LOG")" = mine ]
    rm "$LOG"
    ln -s "$BOX_TMP/other" "$LOG"
    run bellhop providers
    [ "$status" -ne 0 ]
    [ ! -e "$BOX_TMP/other" ]
    rm "$LOG"
    mkfifo -m 600 "$LOG"
    run bellhop providers
    [ "$status" -ne 0 ]
    rm "$LOG"
    truncate -s 10485760 "$LOG"
    chmod 600 "$LOG"
    bellhop providers >/dev/null
    [ "$(stat -c %s "$LOG.1")" -ge 10485760 ]
    [ "$(stat -c %s "$LOG")" -lt 10000 ]
    grep -q 'provider: process probe: ' "$LOG"
    [ "$(stat -c %a "$LOG")" = 600 ]
}
