#!/usr/bin/env bats
# PUT and GET /v1/archive through HTTP: trees up and down, all or nothing.
# early

load ../lib/agent

setup()
{
    start_agent
    D=$AGENT_DIR/d
    mkdir "$D"
}
teardown() { stop_agents; }

# Prints everything below a directory: names, kinds, modes, links, times, contents.
tree_of()
{
    (cd "$1" && find . ! -path . -printf '%p %y %m %l %n %T@\n' | sed 's/^\(.* d .*\) [0-9]* \([0-9.]*\)$/\1/' | sort
        find . -type f -print0 | sort -z | xargs -0 -r sha256sum)
}

# put FILE DIR [CURL OPTION...]
put() { agent_curl "/v1/archive?path=$2" -T "$1" "${@:3}"; }

make_tree()
{
    mkdir -p "$1/dir/sub" "$1/empty"
    seq 100000 >"$1/dir/numbers"
    printf 'x' >"$1/dir/sub/one"
    : >"$1/dir/none"
    ln -s dir/numbers "$1/link"
    ln -s /nowhere "$1/dangling"
    ln "$1/dir/numbers" "$1/hard"
    truncate -s 5M "$1/sparse"
    chmod 700 "$1/dir/sub"
    chmod 755 "$1/dir/sub/one"
    printf 'l' >"$1/$(printf 'caf\351')"
    touch -d 2001-02-03T04:05:06.789Z "$1/dir/numbers"
}

@test "trees go up and come down the same in every format" {
    local format

    make_tree "$D/t"
    for format in tar tar.gz tar.zst; do
        agent_curl "/v1/archive?path=$D/t&format=$format" -o "$AGENT_DIR/a"
        put "$AGENT_DIR/a" "$D/u.$format" | jq -e ".format == \"$format\" and .entries == 12"
        diff <(tree_of "$D/t") <(tree_of "$D/u.$format")
        rm -r "$D/u.$format"
    done
    tar -C "$D/t" -cf "$AGENT_DIR/a.tar" .
    for format in gzip bzip2 xz; do
        $format -k "$AGENT_DIR/a.tar"
        put "$AGENT_DIR"/a.tar.?z* "$D/v" | jq -e '.entries == 12'
        diff <(tree_of "$D/t" | sed 's/ [0-9]*\.[0-9]*$//') <(tree_of "$D/v" | sed 's/ [0-9]*\.[0-9]*$//')
        rm -r "$D/v" "$AGENT_DIR"/a.tar.?z*
    done
}

@test "what the agent sends is what tar reads" {
    make_tree "$D/t"
    mkdir "$D/u"
    agent_curl "/v1/archive?path=$D/t&format=tar.gz" | tar -C "$D/u" -xpzf - 2>/dev/null
    diff <(tree_of "$D/t" | sed 's/\(\.[0-9]*\)$//') <(tree_of "$D/u" | sed 's/\(\.[0-9]*\)$//')
    agent_curl "/v1/archive?path=$D/t&exclude=sub&exclude=*.none&exclude=dir/none" | tar -tf - >"$AGENT_DIR/list"
    [ "$(grep -c 'sub\|none' "$AGENT_DIR/list")" = 0 ]
    grep -q '^dir/numbers$' "$AGENT_DIR/list"
    agent_curl "/v1/archive?path=$D/none" | jq -e '.code == "not_found" and .field == "path"'
    agent_curl "/v1/archive?path=$D/t&format=rar" | jq -e '.code == "invalid_argument" and .field == "format"'
}

# Through the whole upload: one pool job reads and writes, a second one unpacks ahead while there is enough to unpack.
@test "a compressed upload that is held half-way occupies the connection's thread and one more" {
    local upload format

    pool_busy_is() { agent_curl /v1/metrics | grep -qx "bellhop_pool_busy $1"; }
    staged() { find "$D" -path '*/.bellhop-tmp-*/big' -size +2600k | grep -q .; }
    mkdir "$D/src"
    head -c 6000000 /dev/urandom >"$D/src/big"
    tar -C "$D/src" -cf "$AGENT_DIR/a.tar" big
    for format in gzip xz zstd; do
        $format -kc "$AGENT_DIR/a.tar" >"$AGENT_DIR/a.packed"
        rm -f "$AGENT_DIR/rest"
        mkfifo "$AGENT_DIR/rest"
        {
            head -c 3000000 "$AGENT_DIR/a.packed"
            cat "$AGENT_DIR/rest"
        } | put - "$D/t.$format" >"$AGENT_DIR/reply.$format" &
        upload=$!
        exec 8>"$AGENT_DIR/rest"
        wait_until 20 staged
        wait_until 5 pool_busy_is 1
        tail -c +3000001 "$AGENT_DIR/a.packed" >&8
        exec 8>&-
        wait "$upload"
        jq -e '.entries == 1 and .bytes == 6000000' "$AGENT_DIR/reply.$format"
        cmp "$D/src/big" "$D/t.$format/big"
    done
    wait_until 5 pool_busy_is 0
}

@test "a truncated, corrupt or slipping archive leaves the target as it was" {
    local before name

    make_tree "$D/src"
    make_tree "$D/t"
    echo own >"$D/t/own"
    tar -C "$D/src" -cf "$AGENT_DIR/good.tar" .
    gzip -k "$AGENT_DIR/good.tar"
    mkdir "$AGENT_DIR/bad"
    head -c 100000 "$AGENT_DIR/good.tar" >"$AGENT_DIR/bad/cut.tar"
    head -c -20 "$AGENT_DIR/good.tar.gz" >"$AGENT_DIR/bad/cut.tar.gz"
    head -c 1000 /dev/urandom >"$AGENT_DIR/bad/random"
    : >"$AGENT_DIR/bad/empty"
    (cd "$D/src" && tar --transform 's,^dir,../evil,' -Pcf "$AGENT_DIR/bad/slip.tar" dir)
    (cd "$D/src" && tar --transform "s,^dir,$D/evil," -Pcf "$AGENT_DIR/bad/absolute.tar" dir)
    (cd "$AGENT_DIR" && ln -s "$D" out && tar -cf bad/link.tar out && rm out && mkdir out && touch out/evil &&
        tar -rf bad/link.tar out/evil)
    before=$(tree_of "$D/t")
    for name in "$AGENT_DIR"/bad/*; do
        for mode in merge replace; do
            [ "$(agent_status "/v1/archive?path=$D/t&mode=$mode" -T "$name")" = 400 ] || fail "$name $mode"
            [ "$(tree_of "$D/t")" = "$before" ] || fail "$name $mode changed the target"
            [ "$(find "$D" -mindepth 1 -maxdepth 1 | wc -l)" = 2 ] || fail "$name $mode left something"
        done
    done
}

@test "an upload that is cut leaves the target as it was" {
    local before

    make_tree "$D/t"
    head -c 30000000 /dev/urandom >"$AGENT_DIR/big"
    tar -C "$AGENT_DIR" -cf "$AGENT_DIR/a.tar" big
    before=$(tree_of "$D/t")
    put "$AGENT_DIR/a.tar" "$D/t" --limit-rate 4M --max-time 1 && fail "was not cut"
    is_clean() { [ -z "$(find "$D" -name '.bellhop*')" ]; }
    wait_until 10 is_clean
    [ "$(tree_of "$D/t")" = "$before" ]
}

@test "merge keeps what the archive does not have, replace does not" {
    mkdir -p "$D/t/d" "$D/s/d"
    echo own >"$D/t/own"
    echo old >"$D/t/d/f"
    echo new >"$D/s/d/f"
    tar -C "$D/s" -cf "$AGENT_DIR/a.tar" d
    put "$AGENT_DIR/a.tar" "$D/t" | jq -e '.entries == 2'
    [ "$(cat "$D/t/d/f" "$D/t/own")" = "new
own" ]
    agent_curl "/v1/archive?path=$D/t&mode=replace" -T "$AGENT_DIR/a.tar" | jq -e '.entries == 2'
    [ "$(cd "$D/t" && find . | sort | tr '\n' ' ')" = ". ./d ./d/f " ]
    put "$AGENT_DIR/a.tar" "$D/new/deep" | jq -e '.entries == 2'
    [ "$(cat "$D/new/deep/d/f")" = new ]
    # An empty archive changes nothing, or leaves an empty directory.
    printf 'PK\5\6%b' '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\3\0abc' >"$AGENT_DIR/none.zip"
    head -c 1024 /dev/zero >"$AGENT_DIR/none.tar"
    for none in none.zip none.tar; do
        put "$AGENT_DIR/$none" "$D/new/deep" | jq -e '.entries == 0'
        [ "$(cat "$D/new/deep/d/f")" = new ]
    done
    agent_curl "/v1/archive?path=$D/new/deep&mode=replace" -T "$AGENT_DIR/none.zip" | jq -e '.entries == 0'
    [ -z "$(ls -A "$D/new/deep")" ]
    put <(head -c 24 "$AGENT_DIR/none.zip") "$D/new/deep" | jq -e '.code == "invalid_argument"'
    mkdir -p "$D/new/deep/d"
    echo new >"$D/new/deep/d/f"
    agent_curl "/v1/archive?path=$D/none/x&parents=false" -T "$AGENT_DIR/a.tar" | jq -e '.code == "not_found"'
    agent_curl "/v1/archive?path=$D/t/d/f" -T "$AGENT_DIR/a.tar" | jq -e '.code == "failed_precondition" and .field == "path"'
    agent_curl "/v1/archive?path=$D/t&mode=sideways" -T "$AGENT_DIR/a.tar" | jq -e '.field == "mode"'
}

@test "a git tree goes round and git finds nothing changed" {
    (
        mkdir "$D/repo" && cd "$D/repo" && git init -q . && git config user.email a@b && git config user.name n
        mkdir -p src && seq 1000 >src/a && printf '#!/bin/sh\n' >src/run && chmod +x src/run && ln -s a src/link
        head -c 100000 /dev/urandom >bin && git add . && git commit -qm one && echo more >>src/a && git commit -qam two
    )
    agent_curl "/v1/archive?path=$D/repo&format=tar.zst" -o "$AGENT_DIR/a"
    put "$AGENT_DIR/a" "$D/copy" | jq -e '.format == "tar.zst"'
    diff -r "$D/repo" "$D/copy"
    [ -z "$(git -C "$D/copy" status --porcelain)" ]
    git -C "$D/copy" fsck --full
    # Also over existing files.
    put "$AGENT_DIR/a" "$D/repo" | jq -e '.entries > 10'
    [ -z "$(git -C "$D/repo" status --porcelain)" ]
}

@test "archives as a user belong to him and have his rights" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    chmod 755 "$AGENT_DIR"
    make_tree "$D/t"
    mkdir "$D/his" "$D/ours"
    chown nobody: "$D/his"
    tar -C "$D/t" -cf "$AGENT_DIR/a.tar" .
    agent_curl "/v1/archive?path=$D/his&user=nobody" -T "$AGENT_DIR/a.tar" | jq -e '.entries == 12'
    [ -z "$(find "$D/his" ! -user nobody)" ]
    agent_curl "/v1/archive?path=$D/ours&user=nobody" -T "$AGENT_DIR/a.tar" | jq -e '.code == "permission_denied"'
    [ -z "$(ls -A "$D/ours")" ]
    chown -R 1234:1234 "$D/t/dir"
    tar -C "$D/t" --numeric-owner -cf "$AGENT_DIR/b.tar" .
    agent_curl "/v1/archive?path=$D/kept&keep_owner=true" -T "$AGENT_DIR/b.tar" | jq -e '.entries == 12'
    [ "$(stat -c %u "$D/kept/dir/none" "$D/kept/empty" | tr '\n' ' ')" = "1234 0 " ]
}

@test "a large tree streams both ways with bounded memory" {
    local before after

    mkdir "$D/t"
    for i in $(seq 8); do head -c 25000000 /dev/urandom >"$D/t/$i"; done
    agent_curl "/v1/archive?path=$D/t" -o "$AGENT_DIR/warm"
    before=$(awk '/VmHWM/ {print $2}' "/proc/$AGENT_PID/status")
    agent_curl "/v1/archive?path=$D/t" -o "$AGENT_DIR/a"
    put "$AGENT_DIR/a" "$D/u" | jq -e '.bytes == 200000000'
    after=$(awk '/VmHWM/ {print $2}' "/proc/$AGENT_PID/status")
    diff -r "$D/t" "$D/u"
    [ "$((after - before))" -lt 16000 ] || fail "$before to $after kB"
}

@test "no descriptor is left open by archives" {
    local before

    make_tree "$D/t"
    tar -C "$D/t" -cf "$AGENT_DIR/a.tar" .
    head -c 5000 "$AGENT_DIR/a.tar" >"$AGENT_DIR/cut.tar"
    put "$AGENT_DIR/a.tar" "$D/u" -o /dev/null
    before=$(n_fds)
    for _ in $(seq 10); do
        put "$AGENT_DIR/a.tar" "$D/u" -o /dev/null
        put "$AGENT_DIR/cut.tar" "$D/u" -o /dev/null
        agent_curl "/v1/archive?path=$D/t" -o /dev/null
        agent_curl "/v1/archive?path=$D/t&format=tar.gz" -o - | head -c 100 >/dev/null || true
    done
    is_back() { [ "$(n_fds)" -le "$((before + 2))" ]; }
    wait_until 5 is_back
}

@test "a directory's name may end with a slash, new or not" {
    start_agent
    mkdir "$AGENT_DIR/in"
    echo one >"$AGENT_DIR/in/one"
    tar -C "$AGENT_DIR/in" -cf "$AGENT_DIR/a.tar" .
    [ "$(agent_status "/v1/archive?path=$AGENT_DIR/new/" -T "$AGENT_DIR/a.tar")" = 200 ]
    [ "$(agent_status "/v1/archive?path=$AGENT_DIR/new//" -T "$AGENT_DIR/a.tar")" = 200 ]
    [ "$(cat "$AGENT_DIR/new/one")" = one ]
}

@test "a file of zeros is refused as a bomb unless its sender answers for it" {
    start_agent
    mkdir "$AGENT_DIR/in"
    truncate -s 300M "$AGENT_DIR/in/zeros"
    tar -C "$AGENT_DIR/in" -c . | zstd -q >"$AGENT_DIR/a.tar.zst"
    [ "$(agent_status "/v1/archive?path=$AGENT_DIR/out" -T "$AGENT_DIR/a.tar.zst")" = 413 ]
    [ ! -e "$AGENT_DIR/out" ]
    [ "$(agent_status "/v1/archive?path=$AGENT_DIR/out&any_ratio=true" -T "$AGENT_DIR/a.tar.zst")" = 200 ]
    [ "$(stat -c %s "$AGENT_DIR/out/zeros")" -eq $((300 * 1024 * 1024)) ]
}

@test "bytes after the end of a compressed archive are refused, however many" {
    mkdir "$AGENT_DIR/in"
    echo one >"$AGENT_DIR/in/one"
    tar -C "$AGENT_DIR/in" -cjf "$AGENT_DIR/a.tar.bz2" .
    for n in 1 600000 2500000 8000000; do
        { cat "$AGENT_DIR/a.tar.bz2" && head -c "$n" /dev/urandom | tr '\0' x; } >"$AGENT_DIR/long"
        run agent_curl "/v1/archive?path=$D/t" -T "$AGENT_DIR/long"
        [[ $output = *"there are bytes after the archive's end"* ]]
        [ ! -e "$D/t" ]
    done
    [ -z "$(ls -A "$D")" ]
}
