#!/usr/bin/env bats
# Search/Glob and Search/Grep through the agent that ships.
# early

load ../lib/agent

setup()
{
    TREE=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-search-XXXXXX")
    mkdir -p "$TREE/src/deep" "$TREE/build" "$TREE/.git"
    printf 'build/\n*.log\n' >"$TREE/.gitignore"
    printf 'one\ntwo TODO here\nthree\n' >"$TREE/src/a.c"
    printf 'TODO first\nx\ny\nTODO last\n' >"$TREE/src/deep/b.h"
    printf 'TODO in a log\n' >"$TREE/src/noise.log"
    printf 'TODO built\n' >"$TREE/build/out.c"
    printf 'TODO hidden\n' >"$TREE/.env"
    start_agent
}

teardown()
{
    stop_agents
    chmod -R u+rwX "$TREE"
    rm -rf "$TREE"
}

# grep_rpc JSON-FIELDS: prints the messages of a Grep of the tree, one per line
grep_rpc()
{
    rpc Search/Grep "{\"path\":\"$TREE\",$1}"
}

glob_rpc()
{
    rpc Search/Glob "{\"path\":\"$TREE\",$1}"
}

@test "grep streams the matches that rg finds and ends with an account" {
    run grep_rpc '"pattern":"TODO","sort":"path"'
    [ "$(jq -rs '[.[]|select(.match)|.match|"\(.path):\(.line):\(.text)"]|join("|")' <<<"$output")" = \
        "$TREE/src/a.c:2:two TODO here|$TREE/src/deep/b.h:1:TODO first|$TREE/src/deep/b.h:4:TODO last" ]
    [ "$(jq -rs '.[-1].end|"\(.matches) \(.files_searched) \(.limit_reached) \(.incomplete|length)"' \
        <<<"$output")" = "3 2 false 0" ]
}

@test "grep finds the same lines as rg over the tree" {
    command -v rg >/dev/null || skip "rg is not installed"
    run grep_rpc '"pattern":"[a-z]+ ?TODO|TODO [fl]","hidden":true,"sort":"path"'
    ours=$(jq -r 'select(.match)|.match|"\(.path):\(.line):\(.text)"' <<<"$output")
    theirs=$(rg -n --no-heading --hidden --sort path '[a-z]+ ?TODO|TODO [fl]' "$TREE")
    [ "$ours" = "$theirs" ]
}

@test "grep tells column, offset, submatches and context" {
    run grep_rpc '"pattern":"TODO","globs":["*.c"],"before":1,"after":1'
    [ "$(jq -c 'select(.match)|.match|[.column,.offset,.submatches,.before,.after]' <<<"$output")" = \
        '[5,4,[[4,8]],[{"line":1,"text":"one"}],[{"line":3,"text":"three"}]]' ]
}

@test "grep stops at max_count and says so" {
    run grep_rpc '"pattern":"TODO","max_count":1'
    [ "$(jq -s 'map(select(.match))|length' <<<"$output")" -eq 1 ]
    [ "$(jq -s '.[-1].end.limit_reached' <<<"$output")" = true ]
}

@test "grep counts lines and lists files" {
    run grep_rpc '"pattern":"TODO","mode":"count","sort":"path"'
    [ "$(jq -c 'select(.match)|.match.count' <<<"$output" | tr '\n' ' ')" = "1 2 " ]
    run grep_rpc '"pattern":"TODO","mode":"files","sort":"path"'
    [ "$(jq -r 'select(.match)|.match|keys|join(",")' <<<"$output" | sort -u)" = path ]
}

@test "grep names the pattern and the offset of a bad pattern" {
    run grep_rpc '"pattern":"a(b"'
    [[ "$output" == *'"field":"pattern"'* ]]
    [[ "$output" == *'"code":"invalid_argument"'* ]]
    [[ "$output" == *'missing closing parenthesis at offset 3'* ]]
}

@test "grep names a wrong glob, type, enum value and unknown field" {
    run grep_rpc '"pattern":"x","globs":["*.c","a[b"]'
    [[ "$output" == *'globs[1]'* ]]
    run grep_rpc '"pattern":"x","types":["nosuch"]'
    [[ "$output" == *'"field":"types"'* ]]
    run grep_rpc '"pattern":"x","case":"loud"'
    [[ "$output" == *'"field":"case"'* ]]
    run grep_rpc '"pattern":"x","patern":"y"'
    [[ "$output" == *'"field":"patern"'* ]]
}

@test "grep of a path that is not there is not_found" {
    run rpc Search/Grep '{"pattern":"x","path":"/nowhere/at/all"}'
    [[ "$output" == *'"code":"not_found"'* ]]
    [[ "$output" == *'"field":"path"'* ]]
}

@test "grep tells which files it could not read" {
    [ "$(id -u)" -eq 0 ] || skip "only root can run the agent for another user"
    chmod 755 "$TREE"
    chmod 000 "$TREE/src/a.c" "$TREE/src/deep"
    run rpc Search/Grep "{\"pattern\":\"TODO\",\"path\":\"$TREE\",\"user\":\"nobody\",\"hidden\":true}"
    [ "$(jq -r 'select(.end)|.end.incomplete[].path' <<<"$output" | sort | tr '\n' ' ')" = \
        "$TREE/src/a.c $TREE/src/deep " ]
    [ "$(jq -r 'select(.match)|.match.path' <<<"$output")" = "$TREE/.env" ]
}

@test "grep stops a pattern that explodes and says so" {
    head -c 200 /dev/zero | tr '\0' a >"$TREE/aaa.txt"
    run grep_rpc '"pattern":"^(a+)+$","invert":true,"globs":["aaa.txt"]'
    [ "$(jq -s '.[-1].end.matches' <<<"$output")" -eq 0 ]
    printf '!\n' >>"$TREE/aaa.txt"
    run grep_rpc '"pattern":"^(a+)+$","globs":["aaa.txt"]'
    [[ "$(jq -r 'select(.end)|.end.incomplete[0].error' <<<"$output")" == *"too much work"* ]]
}

@test "grep of a file name that is not UTF-8 gives it as b64" {
    printf 'TODO\xff\n' >"$TREE/"$'bad\xff.c'
    run grep_rpc '"pattern":"TODO","globs":["bad*"]'
    path=$(jq -r 'select(.match)|.match.path.b64' <<<"$output" | base64 -d | od -An -tx1 | tr -d ' \n')
    [[ "$path" == *626164ff2e63 ]]
    [ "$(jq -r 'select(.match)|.match.b64' <<<"$output" | base64 -d | od -An -tx1 | tr -d ' \n')" = \
        544f444fff ]
}

@test "a binary file that is named is said to match" {
    printf 'head\0TODO\n' >"$TREE/x.bin"
    run grep_rpc '"pattern":"TODO","globs":["x.bin"]'
    [ "$(jq -s 'map(select(.match))|length' <<<"$output")" -eq 0 ]
    [ "$(jq -r 'select(.end)|.end.files_binary' <<<"$output")" -eq 1 ]
    run rpc Search/Grep "{\"pattern\":\"TODO\",\"path\":\"$TREE/x.bin\"}"
    [ "$(jq -r 'select(.match)|.match.binary' <<<"$output")" = true ]
}

@test "glob finds by name and by path, with types, as fd does" {
    run glob_rpc '"pattern":"*.[ch]","sort":"path"'
    [ "$(jq -r 'select(.file)|"\(.file.path) \(.file.type)"' <<<"$output" | tr '\n' '|')" = \
        "$TREE/src/a.c file|$TREE/src/deep/b.h file|" ]
    run glob_rpc '"pattern":"src/*","sort":"path"'
    [ "$(jq -r 'select(.file)|"\(.file.path) \(.file.type)"' <<<"$output" | tr '\n' '|')" = \
        "$TREE/src/a.c file|$TREE/src/deep directory|" ]
    [ "$(jq -c 'select(.end)|.end|[.files,.dirs,.limit_reached]' <<<"$output")" = '[1,1,false]' ]
}

@test "glob sees hidden and ignored files when asked, and stops at its limit" {
    run glob_rpc '"pattern":"*.c","hidden":true,"no_ignore":true,"type":"file","sort":"path"'
    [ "$(jq -r 'select(.file)|.file.path' <<<"$output" | tr '\n' ' ')" = \
        "$TREE/build/out.c $TREE/src/a.c " ]
    run glob_rpc '"pattern":"**","limit":2'
    [ "$(jq -s 'map(select(.file))|length' <<<"$output")" -eq 2 ]
    [ "$(jq -r 'select(.end)|.end.limit_reached' <<<"$output")" = true ]
}

@test "a search follows no symbolic link out of the tree" {
    ln -s /etc "$TREE/src/etc"
    run grep_rpc '"pattern":"root","no_ignore":true,"hidden":true'
    [[ "$output" != *passwd* ]]
}

@test "a search ends soon after its client has gone" {
    before=$(n_fds)
    agent_curl /bellhop.v1.Search/Grep -H 'Content-Type: application/json' --max-time 1 \
        --data-binary '{"pattern":"x*?","path":"/usr","no_ignore":true,"binary":"text"}' \
        --limit-rate 1k >/dev/null 2>&1 || true
    is_quiet() { [ "$(n_fds)" -le $((before + 1)) ]; }
    within 20 is_quiet # before its reader, which reads nothing, counts as gone
}

# joined FILTER: prints the JSON lines in $output through jq, joined by spaces
joined()
{
    jq -r "$1" <<<"$output" | tr '\n' ' '
}

# in_parts METHOD FIELDS FILTER: searches in pages of one result until there is no cursor; prints the results
in_parts()
{
    local cursor=null limit=limit

    [ "$1" = Glob ] || limit=max_count
    for _ in $(seq 20); do
        run rpc "Search/$1" "{\"path\":\"$TREE\",$2,\"$limit\":1,\"cursor\":$cursor}"
        joined "$3"
        cursor=$(jq -c 'select(.end)|.end.cursor' <<<"$output")
        [ "$cursor" != null ] || return 0
    done
    echo "there is no end"
}

@test "a search goes on exactly behind its limit, in every order and within a file" {
    touch -d '2001-01-01' "$TREE/src/deep/b.h"
    touch -d '2002-01-01' "$TREE/src/a.c"
    for order in '"sort":"path"' '"sort":"modified"' '"sort":"size","reverse":true' '"sort":"path","reverse":true'; do
        fields="\"hidden\":true,$order"
        run glob_rpc "$fields"
        [ "$(in_parts Glob "$fields" 'select(.file)|.file.path')" = "$(joined 'select(.file)|.file.path')" ]
        fields="\"pattern\":\"TODO\",\"hidden\":true,$order"
        run grep_rpc "$fields"
        [ "$(in_parts Grep "$fields" 'select(.match)|.match|"\(.path):\(.line)"')" = \
            "$(joined 'select(.match)|.match|"\(.path):\(.line)"')" ]
    done
    run glob_rpc '"type":"file","sort":"modified"'
    [ "$(joined 'select(.file)|.file.path')" = "$TREE/src/deep/b.h $TREE/src/a.c " ]
}

@test "a cursor is for the search it came from, and for a sorted one" {
    run grep_rpc '"pattern":"TODO","sort":"path","max_count":1'
    cursor=$(jq -c 'select(.end)|.end.cursor' <<<"$output")
    for fields in "\"pattern\":\"other\",\"sort\":\"path\",\"cursor\":$cursor" \
        "\"pattern\":\"TODO\",\"cursor\":$cursor" '"pattern":"TODO","sort":"path","cursor":"AAAA"'; do
        run grep_rpc "$fields"
        [[ "$output" == *'"field":"cursor"'* ]]
    done
}

@test "glob's kinds of pattern, types and filters are fd's" {
    chmod 755 "$TREE/src/a.c"
    : >"$TREE/src/empty"
    ln -s a.c "$TREE/src/link"
    ln -s not-there "$TREE/src/nowhere" && ln -s not-there "$TREE/src/.nowhere" && ln -s not-there "$TREE/src/nowhere.o"
    truncate -s 5000 "$TREE/src/large.BIN"
    touch -d '2001-01-01' "$TREE/src/large.BIN"
    while IFS=';' read -r fields options; do
        run glob_rpc "\"sort\":\"path\",$fields"
        ours=$(jq -r 'select(.file)|.file.path + (if .file.type == "directory" then "/" else "" end)' <<<"$output")
        theirs=$(cd "$TREE" && eval "TZ=UTC fdfind --strip-cwd-prefix $options" | sed "s|^|$TREE/|" | LC_ALL=C sort)
        [ "$(LC_ALL=C sort <<<"$ours")" = "$theirs" ] || { echo "$fields: $ours / $theirs" && return 1; }
    done <<'END'
"pattern":"^[a-b]\\.","kind":"regex";--case-sensitive '^[a-b]\.'
"pattern":".c","kind":"fixed";--fixed-strings .c
"pattern":"*.bin","case":"insensitive";--glob --ignore-case '*.bin'
"pattern":"/src/d","kind":"regex","full_path":true;--full-path --case-sensitive /src/d
"type":"executable";--type x
"type":"empty";--type e
"type":["directory","symlink"];--type d --type l
"extensions":["bin","h"];--extension bin --extension h
"min_size":4096;--size +4096b
"max_size":10;--size -10b
"type":"file","changed_before_ms":1000000000000;--type f --changed-before '2001-09-09 01:46:40'
"type":"file","changed_within_ms":3600000;--type f --changed-within 1h
"min_depth":2,"max_depth":2;--min-depth 2 --max-depth 2
"exclude":["deep","*.c"];--exclude deep --exclude '*.c'
"follow":true,"type":"file";--follow --type f
"follow":true;--follow
"follow":true,"exclude":["deep","nowhere*"];--follow --exclude deep --exclude 'nowhere*'
"follow":true,"hidden":true,"min_depth":2;--follow --hidden --min-depth 2
END
}

@test "links are followed when asked, and a loop is told of and not run into" {
    mkdir "$TREE/real"
    echo 'TODO linked' >"$TREE/real/x.txt"
    ln -s ../real "$TREE/src/dir"
    ln -s ../src "$TREE/src/loop"
    ln -s nowhere "$TREE/src/broken"
    run grep_rpc '"pattern":"TODO linked","follow":true,"sort":"path"'
    [ "$(joined 'select(.match)|.match.path')" = "$TREE/real/x.txt $TREE/src/dir/x.txt " ]
    [ "$(jq -r 'select(.end)|.end.incomplete[].path' <<<"$output" | sort | tr '\n' ' ')" = \
        "$TREE/src/broken $TREE/src/loop " ]
    run grep_rpc '"pattern":"TODO linked"'
    [ "$(joined 'select(.match)|.match.path')" = "$TREE/real/x.txt " ]
}

@test "links are not followed out of the agent's root" {
    stop_agents
    mkdir "$TREE/box"
    echo 'TODO secret' >"$TREE/out.txt"
    ln -s "$TREE/out.txt" "$TREE/box/link"
    ln -s .. "$TREE/box/up"
    start_agent --root "$TREE/box"
    run rpc Search/Grep "{\"pattern\":\"secret\",\"path\":\"$TREE/box\",\"follow\":true}"
    [ "$(jq -s 'map(select(.match))|length' <<<"$output")" -eq 0 ]
    [ "$(jq -r 'select(.end)|.end.incomplete|length' <<<"$output")" -eq 2 ]
}

@test "another file system is not entered when that is asked" {
    [ "$(id -u)" -eq 0 ] || skip "only root can mount"
    mkdir "$TREE/mnt"
    mount -t tmpfs none "$TREE/mnt" 2>/dev/null || skip "mounting is not allowed here"
    echo TODO >"$TREE/mnt/x.c"
    run grep_rpc '"pattern":"TODO","globs":["x.c"],"one_file_system":true'
    within=$(jq -s 'map(select(.match))|length' <<<"$output")
    run grep_rpc '"pattern":"TODO","globs":["x.c"]'
    umount "$TREE/mnt"
    [ "$within" -eq 0 ]
    [ "$(jq -s 'map(select(.match))|length' <<<"$output")" -eq 1 ]
}

@test "grep tells matches only, and what they would become" {
    run grep_rpc '"pattern":"(t\\w+) (TODO)","replace":"$2 ${1}! $$","globs":["a.c"]'
    [ "$(joined 'select(.match)|.match|[.text,.replaced.text]|join("|")')" = 'two TODO here|TODO two! $ here ' ]
    run grep_rpc '"pattern":"[a-z]o|(?<x>e)","only_matching":true,"replace":"<$x>","globs":["a.c"]'
    [ "$(jq -c 'select(.match)|.match|[.line,.column,.offset,.text,.replaced.text]' <<<"$output" | tr '\n' ' ')" = \
        '[1,3,2,"e","<e>"] [2,2,5,"wo","<>"] [2,11,14,"e","<e>"] [2,13,16,"e","<e>"] [3,4,21,"e","<e>"] [3,5,22,"e","<e>"] ' ]
}

@test "grep's modes and options are rg's" {
    printf 'foo\r\nbar foo\r\n' >"$TREE/crlf.txt"
    printf 'caf\xe9 foo\n' >"$TREE/latin.txt"
    printf 'f\0o\0o\0\n\0' >"$TREE/wide.txt"
    printf '\xff\xfef\0o\0o\0\n\0' >"$TREE/marked.txt"
    while IFS=';' read -r fields options; do
        run grep_rpc "\"sort\":\"path\",$fields"
        ours=$(jq -r 'select(.match)|.match|.path + (if .count then ":\(.count)" elif .line then ":\(.line):\(.text)" else "" end)' <<<"$output" | tr -d '\r')
        theirs=$(eval "rg --no-heading --sort path $options '$TREE'" | tr -d '\r' || true)
        [ "$ours" = "$theirs" ] || { echo "$fields: $ours / $theirs" && return 1; }
    done <<'END'
"pattern":"o","mode":"count_matches";--count-matches o
"pattern":"TODO","mode":"files_without_match";--files-without-match TODO
"patterns":["one","bar"],"pattern":"TODO l";-n -e 'TODO l' -e one -e bar
"patterns":["(","foo"],"fixed":true,"globs":["!latin.txt"];-n -F -e '(' -e foo -g '!latin.txt'
"pattern":"foo$","crlf":true,"globs":["!latin.txt"];-n --crlf 'foo$' -g '!latin.txt'
"pattern":"caf\u00e9 f","encoding":"latin1","mode":"files";-l -E latin1 'café f'
"pattern":"foo","encoding":"utf-16le","globs":["wide.txt"];-n -E utf-16le foo -g wide.txt
"pattern":"^foo","globs":["marked.txt"];-n ^foo -g marked.txt
"pattern":"TODO","iglobs":["*.C"];-n TODO --iglob '*.C'
"pattern":"TODO","types":["web"],"type_add":["web:*.c","web:include:sh"];-n TODO --type-add 'web:*.c' --type-add 'web:include:sh' -t web
"pattern":"TODO","no_ignore_vcs":true;-n TODO --no-ignore-vcs
END
}

@test "a wrong one of several patterns is named, and text is cut where asked" {
    run grep_rpc '"patterns":["ok","a(b"]'
    [[ "$output" == *'"field":"patterns[1]"'* ]]
    run grep_rpc '"pattern":"TODO","globs":["a.c"],"max_columns":7'
    [ "$(joined 'select(.match)|.match|"\(.text)|\(.truncated)"')" = 'two TOD|true ' ]
}

@test "the list of what could not be read is bounded, and the rest counted" {
    [ "$(id -u)" -eq 0 ] || skip "only root can run the agent for another user"
    chmod 755 "$TREE"
    mkdir "$TREE/many"
    for i in $(seq 130); do echo TODO >"$TREE/many/$i"; done
    chmod 000 "$TREE"/many/*
    run rpc Search/Grep "{\"pattern\":\"TODO\",\"path\":\"$TREE/many\",\"user\":\"nobody\"}"
    [ "$(jq -c 'select(.end)|.end|[(.incomplete|length),.incomplete_more]' <<<"$output")" = '[100,30]' ]
}

@test "work stops at once when the client goes, also within a pattern that takes long" {
    # Each line takes PCRE2 some time, within its limits per starting place; all lines take a minute.
    for _ in $(seq 20000); do echo aaaaaaaaaaaaaaaaaaaaaa; done >"$TREE/slow.txt"
    ticks() { awk '{ print $14 + $15 }' "/proc/$AGENT_PID/stat"; }
    is_at_work() { [ "$(ticks)" -ge $((start + 20)) ]; }
    is_idle()
    {
        local then

        then=$(ticks)
        sleep 0.2
        [ "$(ticks)" -le "$then" ]
    }
    for ASK_SOCKET in "" "$AGENT_SOCKET"; do
        start=$(ticks)
        ask_and_leave Search/Grep "{\"pattern\":\"(a|aa)+\$(?<!a)\",\"path\":\"$TREE/slow.txt\"}" /dev/null \
            is_at_work
        before=$(ticks)
        wait_until 5 is_idle
        # Hundredths of a second of processor time since the client left; a search to the end would need thousands.
        [ $(($(ticks) - before)) -le 200 ]
    done
}

@test "ignore files that are links, not UTF-8 or too long: read as far as rg does, and told of" {
    mv "$TREE/.gitignore" "$TREE/rules"
    ln -s rules "$TREE/.gitignore"
    printf 'b.h\n\xff\na.c\n' >"$TREE/src/.ignore"
    [ "$(glob_rpc '"pattern":"*"' | jq -r 'select(.file.type == "file")|.file.path' | sort)" = \
        "$(cd "$TREE" && rg --files --no-messages "$TREE" | sort)" ]
    [ "$(glob_rpc '"pattern":"*"' | jq -r 'select(.end)|.end.incomplete[]|.path + ": " + .error')" = \
        "$TREE/src/.ignore: has a line that is not UTF-8: the rules from there on do not count" ]
    seq 25000 >"$TREE/src/.ignore"
    [ "$(glob_rpc '"pattern":"*"' | jq -r 'select(.end)|.end.incomplete[]|.path + ": " + .error')" = \
        "$TREE/src/.ignore: more than 20000 rules" ]
    grep_rpc '"pattern":"TODO"' | jq -e 'select(.end)|.end.matches == 3'
}

@test "more than ten thousand ignore rules hide what they hide for rg" {
    {
        seq -f 'name-%g.txt' 12000
        seq -f '/deep/*/dir-%g/' 3000
        printf '!name-77.txt\n*.log\n!keep-1.log\n'
    } >"$TREE/.gitignore"
    mkdir -p "$TREE/deep/a/dir-2999" "$TREE/deep/a/dir-3001"
    for n in 1 76 77 78 11999 12000 12001; do : >"$TREE/deep/name-$n.txt"; done
    touch "$TREE/keep-1.log" "$TREE/keep-2.log" "$TREE"/deep/a/dir-2999/x "$TREE"/deep/a/dir-3001/x
    files=$(cd "$TREE" && rg --files "$TREE" | sort)
    [[ "$files" == *"/name-77.txt"* && "$files" != *"/name-78.txt"* && "$files" == *"dir-3001/x"* ]]
    [ "$(glob_rpc '"pattern":"*","type":"file"' | jq -r 'select(.file)|.file.path' | sort)" = "$files" ]
}

@test "each encoding of the stream has the same messages" {
    body="{\"pattern\":\"TODO\",\"path\":\"$TREE\",\"sort\":\"path\"}"
    lines=$(rpc Search/Grep "$body")
    events=$(agent_curl /bellhop.v1.Search/Grep -H 'Content-Type: application/json' \
        -H 'Accept: text/event-stream' --data-binary "$body" | sed -n 's/^data: //p' | grep -v '^{}$')
    [ "$events" = "$lines" ]
}

@test "times farther than there are find what the farthest do" {
    local far=9223372036854775807 n

    n_found() { glob_rpc "\"type\":\"file\",$1" | jq -s '[.[] | select(.file)] | length'; }
    n=$(n_found '"changed_after_ms":0')
    [ "$n" -gt 0 ]
    [ "$(n_found "\"changed_after_ms\":$far")" -eq 0 ]
    [ "$(n_found "\"changed_before_ms\":$far")" -eq "$n" ]
    [ "$(n_found "\"changed_after_ms\":-$far")" -eq "$n" ]
    [ "$(n_found "\"changed_before_ms\":-$far")" -eq 0 ]
    [ "$(n_found "\"changed_within_ms\":-$far")" -eq 0 ]
}
