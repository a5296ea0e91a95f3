#!/usr/bin/env bats
# Search/Glob and Search/Grep through the agent that ships.

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

# grep_rpc JSON-FIELDS: the messages of a Grep of the tree, one a line
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
    wait_until 5 is_quiet
}
