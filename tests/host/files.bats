# cat, edit and watch.

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    box_setup
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
}
teardown() { box_teardown; }

@test "cat prints files byte for byte, and one that is not there is status 3" {
    head -c 300000 /dev/urandom >"$BOX_TMP/random"
    bellhop put one "$BOX_TMP/random" :random
    bellhop cat one :random :random >"$BOX_TMP/back"
    cat "$BOX_TMP/random" "$BOX_TMP/random" | cmp - "$BOX_TMP/back"
    run -3 bellhop cat one :nosuch
}

@test "edit replaces text, shows the change, and changes nothing when the text is not there" {
    bellhop exec one -c 'printf "one\ntwo\nthree\none\n" >file'
    run -0 bellhop edit -n one :file --old two --new zwei
    [[ "$output" == *"-two"*"+zwei"* ]]
    [ "$(bellhop cat one :file | sed -n 2p)" = two ]
    bellhop edit one :file --old two --new zwei | grep -q '^+zwei$'
    [ "$(bellhop cat one :file | sed -n 2p)" = zwei ]
    run bellhop edit one :file --old one --new eins
    [ "$status" -ne 0 ]
    run -0 --separate-stderr bellhop edit --json --all one :file --old one --new eins
    [ "$(jq .replaced <<<"$output")" -eq 2 ]
    tag=$(jq -r .etag <<<"$output")
    bellhop exec one -c 'echo changed >>file'
    run -4 bellhop edit one :file --old zwei --new two --if-match "$tag"
    [ "$(bellhop cat one :file)" = "$(printf 'eins\nzwei\nthree\neins\nchanged')" ]
}

@test "watch tells what happens, one line for each event" {
    bellhop watch one -c 3 >"$BOX_TMP/events" 2>"$BOX_TMP/err" 3>&- &
    pid=$!
    wait_for 10 grep -q watching "$BOX_TMP/err"
    bellhop exec one -c 'mkdir dir; mv dir other; rmdir other'
    wait "$pid"
    sed 's/  */ /; s# /.*/# #; s# -> .*/# -> #' "$BOX_TMP/events" >&2
    grep -q '^created .*/dir/$' "$BOX_TMP/events"
    grep -q '^renamed .*/dir -> .*/other$' "$BOX_TMP/events"
    grep -q '^removed .*/other/*$' "$BOX_TMP/events"
    bellhop watch --json one --timeout 200ms >"$BOX_TMP/json" || [ $? -eq 6 ]
    jq -se ".[0].started" "$BOX_TMP/json"
}
