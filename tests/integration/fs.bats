#!/usr/bin/env bats
# The Fs service through HTTP.
# early

load ../lib/agent

setup()
{
    start_agent
    D=$AGENT_DIR/d
    mkdir "$D"
}
teardown() { stop_agents; }

# check METHOD PARAMS FILTER: the filter must be true for the reply
check()
{
    local reply

    reply=$(rpc "Fs/$1" "$2")
    jq -e "$3" <<<"$reply" >/dev/null || fail "$1 $2 gave $reply, not $3"
}

@test "stat tells kind, size, mode, owner, time and target" {
    printf 12345 >"$D/f"
    chmod 640 "$D/f"
    touch -d '2001-09-09T01:46:40.123456789Z' "$D/f"
    ln -s f "$D/l"
    mkfifo "$D/p"
    check Stat "{\"path\":\"$D/f\"}" '.type == "file" and .size == 5 and .mode == "0640" and .links == 1'
    check Stat "{\"path\":\"$D/f\"}" '.mtime == "2001-09-09T01:46:40.123456789Z"'
    check Stat "{\"path\":\"$D/f\"}" ".uid == $(id -u) and .user == \"$(id -un)\" and .group == \"$(id -gn)\""
    check Stat "{\"path\":\"$D/f\"}" '.etag == null'
    check Stat "{\"path\":\"$D/f\",\"etag\":true}" '.etag | length > 10'
    check Stat "{\"path\":\"$D/l\"}" '.type == "symlink" and .target == "f"'
    check Stat "{\"path\":\"$D/l\",\"follow\":true}" '.type == "file" and .target == null'
    check Stat "{\"path\":\"$D/p\"}" '.type == "fifo"'
    check Stat "{\"path\":\"/dev/null\"}" '.type == "char"'
    check Stat "{\"path\":\"$D/none\"}" '.code == "not_found" and .field == "path"'
    check Stat "{\"path\":\"$D/f/x\"}" '.code == "not_found"'
    check Stat "{\"path\":\"\"}" '.code == "invalid_argument" and .field == "path"'
    check Stat "{\"path\":\"$D/f\",\"zoom\":true}" '.field == "zoom"'
    check Stat "{}" '.field == "path"'
}

@test "the tag of stat is the one that files gives and takes" {
    local tag

    echo one >"$D/f"
    tag=$(rpc Fs/Stat "{\"path\":\"$D/f\",\"etag\":true}" | jq -r .etag)
    agent_curl "/v1/files/$D/f" -I | grep -qF "\"$tag\""
    [ "$(agent_status "/v1/files/$D/f" -X PUT --data-binary two -H "If-Match: \"$tag\"")" = 200 ]
    check Remove "{\"path\":\"$D/f\",\"if_match\":\"$tag\"}" '.code == "aborted" and .field == "if_match"'
    check Stat "{\"path\":\"$D/f\"}" '.size == 3'
}

@test "list is sorted, has depth and pages" {
    mkdir -p "$D/b/deep/er" "$D/a"
    touch "$D/b/1" "$D/b/deep/2" "$D/.hidden" "$D/z"
    check List "{\"path\":\"$D\"}" '[.entries[].name] == [".hidden","a","b","z"] and .next == null'
    check List "{\"path\":\"$D\",\"depth\":2}" '[.entries[].name] == [".hidden","a","b","1","deep","z"]'
    check List "{\"path\":\"$D\",\"depth\":9,\"limit\":4}" '(.entries | length) == 4 and .next == "b/1"'
    check List "{\"path\":\"$D\",\"depth\":9,\"limit\":4,\"cursor\":\"b/1\"}" \
        '[.entries[].name] == ["deep","2","er","z"]'
    check List "{\"path\":\"$D/z\"}" '.code == "not_found" and .field == "path"'
    check List "{\"path\":\"$D\",\"limit\":0}" '.field == "limit"'
    check List "{\"path\":\"$D\",\"depth\":999}" '.field == "depth"'
}

@test "list is in the order that is asked for, page by page" {
    local order want cursor seen

    mkdir "$D/dir" "$D/.git"
    printf 333 >"$D/a"
    printf 1 >"$D/b"
    printf 22 >"$D/dir/c"
    touch "$D/.git/config"
    touch -d @3 "$D/a"; touch -d @1 "$D/b"; touch -d @2 "$D/dir/c"; touch -d @9 "$D/dir"
    for order in '"sort":"size","reverse":true,"directories_first":true dir a c b' \
        '"sort":"mtime" b c a dir' '"sort":"name" a b c dir' '"sort":"name","reverse":true dir c b a'; do
        want=${order#* }
        order=${order%% *}
        check List "{\"path\":\"$D\",\"depth\":2,\"hidden\":false,$order}" \
            "([.entries[].name] | join(\" \")) == \"$want\" and .next == null"
        cursor=null seen=
        while :; do
            reply=$(rpc Fs/List "{\"path\":\"$D\",\"depth\":2,\"hidden\":false,\"limit\":1,\"cursor\":$cursor,$order}")
            seen+=$(jq -r '.entries[0].name' <<<"$reply")' '
            cursor=$(jq .next <<<"$reply")
            [ "$cursor" != null ] || break
        done
        [ "$seen" = "$want " ]
    done
    check List "{\"path\":\"$D\",\"sort\":\"color\"}" '.code == "invalid_argument" and .field == "sort"'
    check List "{\"path\":\"$D\",\"sort\":\"size\",\"cursor\":\"x\"}" '.field == "cursor"'
}

@test "names of every kind are listed, looked at, copied, moved and removed" {
    local name deep long reply path

    long=$(head -c 255 /dev/zero | tr '\0' n)
    for name in $'new\nline' $'caf\351' "$long" ' ' '-' '%41' 'a\b' '~' $'\001'; do
        printf x >"$D/$name"
        path=$(rpc Fs/List "{\"path\":\"$D\"}" | jq -c '.entries[0].path')
        check Stat "{\"path\":$path}" '.size == 1'
        check Copy "{\"from\":$path,\"to\":\"$AGENT_DIR/copy\",\"overwrite\":true}" '.bytes == 1'
        check Move "{\"from\":$path,\"to\":\"$AGENT_DIR/moved\",\"overwrite\":true}" '. == {}'
        check Move "{\"from\":\"$AGENT_DIR/moved\",\"to\":$path}" '. == {}'
        [ -e "$D/$name" ]
        check Remove "{\"path\":$path}" '.removed == 1'
        [ -z "$(ls -A "$D")" ]
    done
    check MakeDir "{\"path\":\"$D/${long}n\"}" '.code == "invalid_argument" and .field == "path"'
    # A path longer than the kernel accepts.
    deep=$D
    for _ in $(seq 25); do deep+=/$long; done
    check MakeDir "{\"path\":\"$deep\"}" .created
    check Stat "{\"path\":\"$deep\"}" '.type == "directory"'
    [ "$(agent_status "/v1/files/$deep/f" -X PUT --data-binary deep)" = 201 ]
    [ "$(agent_curl "/v1/files/$deep/f")" = deep ]
    check Copy "{\"from\":\"$D/$long\",\"to\":\"$D/copy\",\"recursive\":true}" '.entries == 26'
    check List "{\"path\":\"$D\",\"depth\":60}" '(.entries | length) == 52'
    check Remove "{\"path\":\"$D/$long\",\"recursive\":true}" '.removed == 26'
    check Remove "{\"path\":\"$D/copy\",\"recursive\":true}" '.removed == 26'
}

@test "directories are made, with parents and without" {
    check MakeDir "{\"path\":\"$D/a/b/c\",\"mode\":\"0750\"}" '.created'
    [ "$(stat -c %a "$D/a/b/c")" = 750 ]
    check MakeDir "{\"path\":\"$D/a/b/c\"}" '.created == false'
    check MakeDir "{\"path\":\"$D/a/b/c\",\"parents\":false}" '.code == "already_exists"'
    check MakeDir "{\"path\":\"$D/x/y\",\"parents\":false}" '.code == "not_found"'
    touch "$D/f"
    check MakeDir "{\"path\":\"$D/f/g\"}" '.code == "already_exists" and .field == "path"'
    check MakeDir "{\"path\":\"$D/q\",\"mode\":\"rwx\"}" '.field == "mode"'
}

@test "move and copy do what they say and nothing more" {
    mkdir -p "$D/t/sub"
    echo f >"$D/t/f"
    ln -s f "$D/t/l"
    echo g >"$D/g"
    check Copy "{\"from\":\"$D/t\",\"to\":\"$D/u\"}" '.code == "failed_precondition" and .field == "recursive"'
    check Copy "{\"from\":\"$D/t\",\"to\":\"$D/u\",\"recursive\":true}" '.entries == 4 and .bytes == 2'
    diff -r "$D/t" "$D/u"
    check Copy "{\"from\":\"$D/g\",\"to\":\"$D/u/f\"}" '.code == "already_exists" and .field == "to"'
    check Copy "{\"from\":\"$D/g\",\"to\":\"$D/u/f\",\"overwrite\":true}" '.bytes == 2'
    [ "$(cat "$D/u/f")" = g ]
    check Move "{\"from\":\"$D/g\",\"to\":\"$D/u/f\"}" '.code == "already_exists"'
    check Move "{\"from\":\"$D/g\",\"to\":\"$D/new/dir/g\"}" '.code == "not_found"'
    check Move "{\"from\":\"$D/g\",\"to\":\"$D/new/dir/g\",\"parents\":true}" '. == {}'
    [ "$(cat "$D/new/dir/g")" = g ]
    check Move "{\"from\":\"$D/t\",\"to\":\"$D/t/sub/t\"}" '.code == "invalid_argument" and .field == "to"'
    check Move "{\"from\":\"$D/none\",\"to\":\"$D/x\"}" '.code == "not_found" and .field == "from"'
    [ -z "$(find "$D" -name '.bellhop*')" ]
}

@test "move across mounts is a copy and a removal" {
    mkdir -p "$D/t/sub"
    echo f >"$D/t/sub/f"
    X=$(mktemp -d /dev/shm/bellhop-test-XXXXXX)
    [ "$(stat -c %d "$X")" != "$(stat -c %d "$D")" ] || skip "one mount only"
    check Move "{\"from\":\"$D/t\",\"to\":\"$X/t\"}" '. == {}'
    [ "$(cat "$X/t/sub/f")" = f ]
    [ ! -e "$D/t" ]
    rm -r "$X"
}

@test "remove refuses the root, mount points and what is not empty" {
    mkdir -p "$D/t/sub" "$D/keep"
    touch "$D/t/sub/f" "$D/keep/f"
    ln -s ../keep "$D/t/link"
    check Remove "{\"path\":\"/\",\"recursive\":true}" '.code == "invalid_argument"'
    check Remove "{\"path\":\"/proc\",\"recursive\":true}" '.code == "failed_precondition" and .field == "path"'
    check Remove "{\"path\":\"$D/t\"}" '.code == "failed_precondition"'
    check Remove "{\"path\":\"$D/t\",\"recursive\":true}" '.removed == 4'
    [ -e "$D/keep/f" ]
    check Remove "{\"path\":\"$D/t\"}" '.code == "not_found"'
    check Remove "{\"path\":\"$D/t\",\"missing_ok\":true}" '.removed == 0'
}

@test "attributes change as asked" {
    touch "$D/f"
    check SetAttr "{\"path\":\"$D/f\",\"mode\":\"0604\",\"mtime\":\"2020-01-02T03:04:05.6Z\"}" \
        '.mode == "0604" and .mtime == "2020-01-02T03:04:05.600000000Z"'
    check SetAttr "{\"path\":\"$D/f\",\"owner\":\"nobody-at-all\"}" '.code == "not_found" and .field == "owner"'
    for t in yesterday 2023-02-30T00:00:00Z 2023-02-20T24:00:00Z 2023-02-20T-1:00:00Z ' 023-02-20T00:00:00Z' 2023-02-20T00:00:00; do
        check SetAttr "{\"path\":\"$D/f\",\"mtime\":\"$t\"}" '.field == "mtime"'
    done
    check SetAttr "{\"path\":\"$D/f\",\"mtime\":\"2024-02-29T23:59:60Z\"}" '.mtime == "2024-03-01T00:00:00.000000000Z"'
    [ "$(id -u)" = 0 ] || return 0
    check SetAttr "{\"path\":\"$D/f\",\"owner\":\"nobody\",\"group\":\"1234\"}" '.user == "nobody" and .gid == 1234'
}

@test "edit is all or none and answers with a diff" {
    printf 'one\ntwo\nthree\n' >"$D/f"
    check Edit "{\"path\":\"$D/f\",\"edits\":[{\"old\":{\"text\":\"two\"},\"new\":{\"text\":\"2\"}},
        {\"old\":{\"text\":\"none\"},\"new\":{\"text\":\"x\"}}]}" '.code == "not_found" and .field == "edits[1].old"'
    [ "$(sed -n 2p "$D/f")" = two ]
    check Edit "{\"path\":\"$D/f\",\"edits\":[{\"old\":{\"text\":\"two\"},\"new\":{\"text\":\"2\"}}]}" \
        '.replaced == 1 and (.diff.text | contains("-two\n+2\n"))'
    [ "$(sed -n 2p "$D/f")" = 2 ]
    check Edit "{\"path\":\"$D/f\",\"edits\":[{\"old\":{\"text\":\"e\"},\"new\":{\"text\":\"E\"}}]}" \
        '.code == "failed_precondition"'
    check Edit "{\"path\":\"$D/f\",\"edits\":[{\"old\":{\"text\":\"e\"},\"new\":{\"text\":\"E\"},\"all\":true}]}" '.replaced == 3'
    check Edit "{\"path\":\"$D/f\",\"edits\":[]}" '.field == "edits"'
    check Edit "{\"path\":\"$D/f\",\"edits\":[{\"old\":{\"text\":\"o\"},\"new\":{\"text\":\"0\"},\"count\":0}]}" '.field == "edits[0].count"'
    check Edit "{\"path\":\"$D/f\",\"edits\":[{\"old\":{\"text\":\"e\"},\"nev\":1}]}" '.field == "edits[0].nev"'
    check Edit "{\"path\":\"$D/new\",\"create\":true,\"edits\":[{\"old\":{\"text\":\"\"},\"new\":{\"b64\":\"/wA=\"}}]}" \
        '.created and .bytes == 2'
    [ "$(od -An -tx1 "$D/new" | tr -d ' ')" = ff00 ]
}

@test "fs calls act as the user that is named" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    chmod 755 "$AGENT_DIR"
    mkdir -p "$D/his" "$D/ours/sub"
    chmod 700 "$D/ours"
    chown nobody: "$D/his"
    check MakeDir "{\"path\":\"$D/his/x\",\"user\":\"nobody\"}" .created
    [ "$(stat -c %U "$D/his/x")" = nobody ]
    for call in 'Stat {"path":"D/ours/sub"' 'List {"path":"D/ours"' 'MakeDir {"path":"D/ours/n"' \
        'Remove {"path":"D/ours/sub"' 'Move {"from":"D/ours/sub","to":"D/his/sub"' \
        'Copy {"recursive":true,"from":"D/ours/sub","to":"D/his/sub"' 'SetAttr {"mode":"0777","path":"D/ours"'; do
        call=${call//D\//$D/}
        check "${call%% *}" "${call#* },\"user\":\"nobody\"}" '.code == "permission_denied"'
    done
    check Stat "{\"path\":\"$D/ours/sub\"}" '.type == "directory" and .user == "root"'
}
