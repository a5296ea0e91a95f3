# cat, edit and watch.
# early

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    box_setup
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
}
teardown()
{
    [ -z "${BREAKER:-}" ] || kill "$BREAKER" 2>/dev/null || true
    box_teardown
}

@test "cat prints files byte for byte, and one that is not there is status 3" {
    head -c 300000 /dev/urandom >"$BOX_TMP/random"
    bellhop put one "$BOX_TMP/random" :random
    bellhop cat one :random :random >"$BOX_TMP/back"
    cat "$BOX_TMP/random" "$BOX_TMP/random" | cmp - "$BOX_TMP/back"
    run -3 bellhop cat one :nosuch
    # A reader that stops early is no error; output that can't be written is.
    { bellhop cat one :random :random :random 2>"$BOX_TMP/err" || echo $? >"$BOX_TMP/status"; } | head -c 1 >/dev/null
    [ "$(cat "$BOX_TMP/status")" = 141 ] # as cat(1) ends
    [ ! -s "$BOX_TMP/err" ]
    to_full() { bellhop "$@" 2>&1 >/dev/full; }
    run -1 to_full cat one :random
    [ "$output" = "bellhop: writing standard output: No space left on device" ]
}

@test "put takes standard input under the name that it is given, and get tells every name" {
    export TMPDIR=$BOX_TMP/tmp
    mkdir "$TMPDIR"
    seq 300000 | bellhop put one - :from/input
    seq 300000 | cmp - <(bellhop cat one :from/input)
    printf '' | bellhop put one - :from/none
    [ "$(bellhop cat one :from/none | wc -c)" = 0 ]
    run -2 bellhop put one - :from <<<x
    [ "$output" = "bellhop: standard input has no name: say it in :PATH
Try 'bellhop help put'." ]
    run -2 bellhop put one - :from/none --if-match x <<<x
    [ -z "$(ls -A "$TMPDIR")" ]
    name=$(printf 'n\n\377')
    echo x >"$BOX_TMP/$name"
    bellhop put one "$BOX_TMP/$name" :.
    run -0 --separate-stderr bellhop get one ":$name" "$BOX_TMP/out" --json
    [ "$(jq -r .path.b64 <<<"$output" | base64 -d | od -An -c)" = "$(printf 'n\n\377' | od -An -c)" ]
    [ "$(cat "$BOX_TMP/out/$name")" = x ]
}

@test "a large file arrives exactly over a connection that is cut again and again, and the old file stays until then" {
    head -c 40000000 /dev/urandom >"$BOX_TMP/large"
    chmod 640 "$BOX_TMP/large"
    touch -d '2001-02-03 04:05:06.789' "$BOX_TMP/large"
    mkdir "$BOX_TMP/there"
    bellhop exec one -c 'echo old >large; echo other >hard; ln hard link; ln -s hard soft'
    there=$(bellhop status one --json | jq -r .workdir)
    # Somebody writes to the old file meanwhile: nothing of it is in the new one.
    while echo more >>"$there/large"; do :; done 3>&- &
    writer=$!
    break_after 0 9000000
    bellhop put one "$BOX_TMP/large" :large
    kill "$writer"
    wait "$writer" || true
    [ "$(cuts)" -ge 3 ]
    head -c 40000000 "$there/large" | cmp - "$BOX_TMP/large"
    [ "$(stat -c %a "$there/large")" = 640 ]
    bellhop put one "$BOX_TMP/large" :new
    cmp "$there/new" "$BOX_TMP/large"
    [ "$(stat -c '%a %y' "$there/new")" = "$(stat -c '%a %y' "$BOX_TMP/large")" ]
    [ -z "$(find "$there" -name '.bellhop-tmp-*')" ]
}

@test "a large file goes where a small one would: a link is replaced, another name of the file keeps its bytes" {
    head -c 17000000 /dev/urandom >"$BOX_TMP/large"
    there=$(bellhop status one --json | jq -r .workdir)
    bellhop exec one -c 'echo other >hard; ln hard name; ln -s hard soft; mkdir dir'
    bellhop put one "$BOX_TMP/large" :name
    bellhop put one "$BOX_TMP/large" :soft
    bellhop put one "$BOX_TMP/large" :dir
    bellhop put one "$BOX_TMP/large" :made/on/the/way
    [ "$(cat "$there/hard")" = other ]
    for file in name soft dir/large made/on/the/way; do
        [ ! -L "$there/$file" ]
        cmp "$there/$file" "$BOX_TMP/large"
    done
    run bellhop put one "$BOX_TMP/large" :name/below
    [ "$status" -ne 0 ]
    head -c 100 "$BOX_TMP/large" >"$BOX_TMP/small"
    small=$(bellhop put one "$BOX_TMP/small" :name/below 2>&1) || true
    [ "$output" = "$small" ]
}

@test "a large file that changes while it is sent is an error, and nothing of it arrives" {
    head -c 60000000 /dev/urandom >"$BOX_TMP/large"
    there=$(bellhop status one --json | jq -r .workdir)
    echo old >"$there/large"
    break_after 0 9000000
    while touch "$BOX_TMP/large"; do :; done 3>&- &
    writer=$!
    run -4 bellhop put one "$BOX_TMP/large" :large
    kill "$writer"
    wait "$writer" || true
    [[ "$output" == *"'large' changed while it was read"* ]]
    [ "$(cat "$there/large")" = old ]
    [ -z "$(find "$there" -name '.bellhop-tmp-*')" ]
}

# put_held BYTES: begins to put the file 'large', and returns when so many bytes of it are on the way; sets PUT.
put_held()
{
    hold_after "$1"
    (exec "$BELLHOP" put one "$BOX_TMP/large" :large) >"$BOX_TMP/out" 2>&1 3>&- & # exec: signals reach bellhop itself
    PUT=$!
    wait_for 10 is_held
}

# As put_held, in a box with an old file; sets THERE.
put_over_held()
{
    THERE=$(bellhop status one --json | jq -r .workdir)
    head -c 40000000 /dev/urandom >"$BOX_TMP/large"
    echo old >"$THERE/large"
    put_held 5000000
}

# put_ends STATUS: waits for the put; its output is in $BOX_TMP/out.
put_ends()
{
    local status=0

    wait "$PUT" || status=$?
    [ "$status" -eq "$1" ] || fail "$status: $(cat "$BOX_TMP/out")"
    [ -z "$(find "$THERE" -name '.bellhop-tmp-*')" ]
}

@test "a large file that grows while it is sent arrives with the length that it had" {
    put_over_held
    cp "$BOX_TMP/large" "$BOX_TMP/before"
    echo more >>"$BOX_TMP/large"
    let_go
    put_ends 0
    cmp "$THERE/large" "$BOX_TMP/before"
}

@test "a large file that becomes shorter while it is sent is an error that names it" {
    put_over_held
    truncate -s 1000 "$BOX_TMP/large"
    let_go
    put_ends 4
    grep -q "'large' became shorter while it was read: it has 1000 of 40000000 bytes" "$BOX_TMP/out"
    [ "$(cat "$THERE/large")" = old ]
}

@test "an interrupted put of a large file leaves nothing in the box" {
    put_over_held
    [ -n "$(find "$THERE" -name '.bellhop-tmp-*')" ]
    kill -INT "$PUT"
    put_ends 130
    [ "$(cat "$THERE/large")" = old ]
}

@test "a put into a box that is stopped meanwhile says so" {
    put_over_held
    bellhop stop one
    wait "$PUT" && fail "no error"
    grep -q "the box 'one' was stopped while the command ran" "$BOX_TMP/out" || fail "$(cat "$BOX_TMP/out")"
}

@test "a replaced file has the same owner and mode whether it is small or large" {
    [ "$(id -u)" = 0 ] || skip "needs root, for a file of another user"
    there=$(bellhop status one --json | jq -r .workdir)
    head -c 17000000 /dev/urandom >"$BOX_TMP/large"
    head -c 100 "$BOX_TMP/large" >"$BOX_TMP/small"
    chmod 640 "$BOX_TMP/large" "$BOX_TMP/small"
    for size in small large; do
        echo old >"$there/$size"
        chown 65534:65534 "$there/$size"
        chmod 4755 "$there/$size"
        python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.old", b"x")' "$there/$size" || true # not every disk has them
        bellhop put one "$BOX_TMP/$size" ":$size"
        cmp "$there/$size" "$BOX_TMP/$size"
    done
    [ "$(stat -c '%u %g %a' "$there/large")" = "$(stat -c '%u %g %a' "$there/small")" ]
    [ "$(python3 -c 'import os, sys; print(os.listxattr(sys.argv[1]))' "$there/large")" = '[]' ]
}

@test "get of a link to a directory makes a directory of the link's name, and any other link stays one" {
    bellhop exec one -c 'mkdir dir; echo in >dir/file; ln -s dir link; ln -s dir/file to-file; ln -s none dangling; mkfifo pipe'
    bellhop get one :link "$BOX_TMP/out"
    [ "$(find "$BOX_TMP/out" -mindepth 1 -printf '%P %y\n' | sort | tr '\n' ' ')" = "link d link/file f " ]
    [ "$(cat "$BOX_TMP/out/link/file")" = in ]
    bellhop get one :link/ "$BOX_TMP/out2"
    [ "$(cat "$BOX_TMP/out2/link/file")" = in ]
    bellhop get one :to-file "$BOX_TMP/out2"
    [ "$(readlink "$BOX_TMP/out2/to-file")" = dir/file ]
    run -3 bellhop get one :dangling "$BOX_TMP/out2"
    run -2 bellhop get one :pipe "$BOX_TMP/out2"
    [[ "$output" == *"neither a file, a directory nor a link"* ]]
    [ ! -e "$BOX_TMP/out2/pipe" ]
}

@test "get replaces a file whole, keeps holes, and takes every name in any locale" {
    bellhop exec one -c 'echo data >holes; truncate -s 8G holes; printf new >f; printf x >"$(printf "n\303\244me")"'
    mkdir "$BOX_TMP/out"
    echo old >"$BOX_TMP/out/f"
    ln "$BOX_TMP/out/f" "$BOX_TMP/out/other"
    bellhop get one :f "$BOX_TMP/out"
    [ "$(cat "$BOX_TMP/out/f" "$BOX_TMP/out/other")" = "newold" ]
    bellhop get one :holes "$BOX_TMP/out"
    [ "$(stat -c %s "$BOX_TMP/out/holes")" = 8589934592 ]
    [ "$(du -k "$BOX_TMP/out/holes" | cut -f 1)" -lt 1024 ]
    LC_ALL=C bellhop get one ":$(printf 'n\303\244me')" "$BOX_TMP/out"
    [ "$(cat "$BOX_TMP/out/$(printf 'n\303\244me')")" = x ]
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

@test "put with a tag replaces that version and no other, and --json tells the next one and the one there is" {
    echo one >"$BOX_TMP/file"
    bellhop put one "$BOX_TMP/file" :file
    run -4 bellhop put one "$BOX_TMP/file" :file --if-match nonsense
    [[ "$output" == "bellhop: "* ]]
    [ "${#lines[@]}" = 1 ]
    run -4 bellhop put --json one "$BOX_TMP/file" :file --if-match nonsense
    tag=$(jq -r '.error.detail | fromjson | .etag' <<<"$output")
    echo two >"$BOX_TMP/file"
    next=$(bellhop put --json one "$BOX_TMP/file" :file --if-match "$tag" | jq -r .etag)
    [ "$(bellhop cat one :file)" = two ]
    echo lost >"$BOX_TMP/file"
    run -4 bellhop put one "$BOX_TMP/file" :file --if-match "$tag"
    [ "$(bellhop cat one :file)" = two ]
    echo three >"$BOX_TMP/file"
    bellhop put one "$BOX_TMP/file" :. --if-match "$next"
    [ "$(bellhop cat one :file)" = three ]
    run -4 bellhop put one "$BOX_TMP/file" :none --if-match '*'
    run bellhop cat one :none
    [ "$status" -eq 3 ]
    run -2 bellhop put one "$BOX_TMP/file" "$BOX_TMP/file" :. --if-match "$next"
    run -2 bellhop put one "$BOX_TMP" :x --if-match "$next"
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
    for time in 200ms 2s 20s; do # a busy machine may need more of it to start
        bellhop watch --json one --timeout "$time" >"$BOX_TMP/json" || [ $? -eq 6 ]
        [ ! -s "$BOX_TMP/json" ] || break
    done
    jq -se ".[0].started" "$BOX_TMP/json"
}
