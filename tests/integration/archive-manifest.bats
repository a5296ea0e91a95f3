#!/usr/bin/env bats
# Manifest, Missing, and the parts of a sync: archives of named files, ignore rules, removals.

load ../lib/agent

setup()
{
    start_agent
    D=$AGENT_DIR/d
    mkdir "$D"
}
teardown() { stop_agents; }

put() { agent_curl "/v1/archive?path=$2" -T "$1" "${@:3}"; }
sum_of() { sha256sum <"$1" | cut -c1-64; }

# Prints the field of a path's entry in a manifest on standard input.
field() { jq -r "select(.entry.path == \"$1\") | .entry.$2"; }

@test "a manifest has every entry with its digest, and the second one reads no file" {
    local m end

    mkdir -p "$D/a/b" "$D/none"
    seq 1000 >"$D/a/b/f"
    : >"$D/a/empty"
    ln -s b/f "$D/a/l"
    chmod 750 "$D/a/b"
    touch -d 2001-02-03T04:05:06.789012345Z "$D/a/b/f"
    printf x >"$D/$(printf 'caf\351')"
    rpc Archive/Manifest "{\"path\":\"$D\",\"sha256\":true}" -o "$AGENT_DIR/m"
    m=$(cat "$AGENT_DIR/m")
    [ "$(field a/b/f sha256 <<<"$m")" = "$(sum_of "$D/a/b/f")" ]
    [ "$(field a/b/f size <<<"$m")" = "$(stat -c %s "$D/a/b/f")" ]
    [ "$(field a/b/f mtime <<<"$m")" = 2001-02-03T04:05:06.789012345Z ]
    [ "$(field a/empty sha256 <<<"$m")" = "$(sum_of /dev/null)" ]
    [ "$(field a/l target <<<"$m")" = b/f ]
    [ "$(field a/l type <<<"$m")" = symlink ]
    [ "$(field a/b mode <<<"$m")" = 0750 ]
    [ "$(field none type <<<"$m")" = directory ]
    jq -se 'any(.[]; .entry.path == {"b64":"Y2Fm6Q=="})' <<<"$m"
    tail -1 <<<"$m" | jq -e '.end | .entries == 7 and .files == 3 and .incomplete == []'
    # A file too young for its times to tell two writes apart is read again.
    all_known()
    {
        rpc Archive/Manifest "{\"path\":\"$D\",\"sha256\":true}" | tail -1 | jq -e '.end.hashed_bytes == 0'
    }
    wait_until 5 all_known
    seq 1001 >"$D/a/b/f"
    touch -d 2001-02-03T04:05:06.789012345Z "$D/a/b/f"
    rpc Archive/Manifest "{\"path\":\"$D\",\"sha256\":true}" -o "$AGENT_DIR/m"
    [ "$(field a/b/f sha256 <"$AGENT_DIR/m")" = "$(sum_of "$D/a/b/f")" ]
}

@test "a manifest leaves out what is excluded or ignored, and names what it can not read" {
    local list

    mkdir -p "$D/r/.git" "$D/r/build" "$D/r/sub" "$D/r/shut"
    printf '*.o\n/build/\n' >"$D/r/.gitignore"
    printf '!keep.o\n' >"$D/r/sub/.gitignore"
    touch "$D/r/a.o" "$D/r/a.c" "$D/r/build/x" "$D/r/sub/keep.o" "$D/r/sub/gone.o" "$D/r/.hidden" "$D/r/.git/HEAD"
    list=$(rpc Archive/Manifest "{\"path\":\"$D/r\",\"ignore\":true,\"exclude\":[\".git\"]}" | jq -r '.entry.path // empty' | tr '\n' ' ')
    [ "$list" = ".gitignore .hidden a.c shut sub sub/.gitignore sub/keep.o " ] || fail "$list"
    agent_curl "/v1/archive?path=$D/r&ignore=true&exclude=.git" | tar -tf - >"$AGENT_DIR/list"
    [ "$(tr '\n' ' ' <"$AGENT_DIR/list")" = "./ .gitignore .hidden a.c shut/ sub/ sub/.gitignore sub/keep.o " ]
    # A name with invalid UTF-8 does not match its valid beginning, and a glob may be anchored at the root of the tree.
    mkdir "$D/n" "$D/n/d"
    touch "$D/n/a" "$D/n/d/a" "$D/n/$(printf 'a\377')" "$D/n/$(printf '\377')"
    for q in a /a d/a '' '?'; do
        agent_curl "/v1/archive?path=$D/n&exclude=$(jq -rn --arg q "$q" '$q | @uri')" | tar -tf - | grep -vx '\./'
        rpc Archive/Manifest "$(jq -n --arg path "$D/n" --arg q "$q" '{path: $path, exclude: [$q]}')" | jq -c '.entry.path // empty'
    done >"$AGENT_DIR/list"
    diff "$AGENT_DIR/list" - <<'END'
a\377
d/
\377
{"b64":"Yf8="}
"d"
{"b64":"/w=="}
a\377
d/
d/a
\377
{"b64":"Yf8="}
"d"
"d/a"
{"b64":"/w=="}
a
a\377
d/
\377
"a"
{"b64":"Yf8="}
"d"
{"b64":"/w=="}
a
a\377
d/
d/a
\377
"a"
{"b64":"Yf8="}
"d"
"d/a"
{"b64":"/w=="}
a\377
{"b64":"Yf8="}
END
    # As in rg, .gitignore has no effect without a repository; .ignore has.
    rm -r "$D/r/.git"
    printf 'a.*\n' >"$D/r/.ignore"
    list=$(rpc Archive/Manifest "{\"path\":\"$D/r\",\"ignore\":true}" | jq -r '.entry.path // empty' | grep '\.[oc]' | tr '\n' ' ')
    [ "$list" = "sub/gone.o sub/keep.o " ] || fail "$list"
    if [ "$(id -u)" = 0 ]; then
        chmod 755 "$AGENT_DIR"
        chmod 700 "$D/r/shut" && chown root: "$D/r/shut"
        rpc Archive/Manifest "{\"path\":\"$D/r\",\"user\":\"nobody\"}" | tail -1 |
            jq -e '.end.incomplete == [{"path":"shut","error":.end.incomplete[0].error}]'
    fi
    rpc Archive/Manifest "{\"path\":\"$D/none\"}" | jq -e '.code == "not_found" and .field == "path"'
    rpc Archive/Manifest "{\"path\":\"$D/r/a.c\"}" | jq -e '.code == "not_found" and .field == "path"'
}

@test "missing says what is not there, what differs, and what only has another mode or time" {
    local entries

    mkdir "$D/d"
    echo one >"$D/d/one"
    echo two >"$D/d/two"
    ln -s one "$D/d/l"
    chmod 644 "$D/d/one"
    entries="{\"path\":\"d/one\",\"size\":4,\"sha256\":\"$(sum_of "$D/d/one")\",\"mode\":\"0644\"},
        {\"path\":\"d/one\",\"mode\":\"0600\"},{\"path\":\"d/one\",\"size\":5},{\"path\":\"d/two\",\"sha256\":\"$(sum_of "$D/d/one")\"},
        {\"path\":\"d/none\"},{\"path\":\"none/none\"},{\"path\":\"d\",\"type\":\"directory\"},{\"path\":\"d\"},
        {\"path\":\"d/l\",\"type\":\"symlink\",\"target\":\"one\"},{\"path\":\"d/l\",\"type\":\"symlink\",\"target\":\"two\"},
        {\"path\":\"d/l/x\"},{\"path\":\"d/two\",\"mtime\":\"2001-02-03T04:05:06Z\"}"
    rpc Archive/Missing "{\"path\":\"$D\",\"entries\":[$entries]}" | jq -c . >"$AGENT_DIR/got"
    [ "$(cat "$AGENT_DIR/got")" = '{"missing":["d/none","none/none","d/l/x"],"differs":["d/one","d/two","d","d/l"],"stale":["d/one","d/two"]}' ]
    rpc Archive/Missing "{\"path\":\"$D\",\"entries\":[{\"path\":\"a\"},{\"path\":\"../x\"}]}" |
        jq -e '.code == "invalid_argument" and .field == "entries[1]"'
    rpc Archive/Missing "{\"path\":\"$D\",\"entries\":[{\"path\":\"a\",\"sha256\":\"12\"}]}" |
        jq -e '.code == "invalid_argument" and .field == "entries[0]"'
    python3 -c "import json; print(json.dumps({'path': '$D', 'entries': [{'path': 'x'}] * 10001}))" >"$AGENT_DIR/many"
    agent_curl /bellhop.v1.Archive/Missing -H 'Content-Type: application/json' --data-binary "@$AGENT_DIR/many" | jq -e '.code == "invalid_argument" and .field == "entries"'
}

@test "a POST gets the files that its body names and no others" {
    mkdir -p "$D/t/a/b"
    echo 1 >"$D/t/a/b/1"
    echo 2 >"$D/t/a/2"
    ln "$D/t/a/2" "$D/t/a/3"
    agent_curl "/v1/archive?path=$D/t&format=tar.gz" --data-binary "@"<(printf 'a\0a/b/1\0a/3\0a/none\0') -D "$AGENT_DIR/h" |
        tar -tzf - >"$AGENT_DIR/list"
    [ "$(tr '\n' ' ' <"$AGENT_DIR/list")" = "a/ a/b/1 a/3 " ]
    grep -qi '^Bellhop-Left-Out: 1' "$AGENT_DIR/h"
    grep -qi '^Bellhop-Left-Out-Names: a/none: it is not there' "$AGENT_DIR/h"
    agent_curl "/v1/archive?path=$D/t" --data-binary 'a' | jq -e '.code == "invalid_argument"'
    for name in ../d a/../../d a/.. .. /etc/passwd; do
        agent_curl "/v1/archive?path=$D/t" --data-binary "@"<(printf 'a/2\0%s\0' "$name") | jq -e '.code == "invalid_argument"'
    done
    mkdir "$D/t/..."
    agent_curl "/v1/archive?path=$D/t" --data-binary "@"<(printf '...\0') | tar -tf - | grep -qx '\.\.\./'
    stop_agents
    start_agent --read-only
    mkdir "$AGENT_DIR/t"
    echo 1 >"$AGENT_DIR/t/1"
    agent_curl "/v1/archive?path=$AGENT_DIR/t" --data-binary "@"<(printf '1\0') | tar -tf - | grep -qx 1
}

@test "an archive may name what goes, all or nothing with the rest" {
    mkdir -p "$D/t/d/e" "$D/t/full" "$D/s/d"
    touch "$D/t/old" "$D/t/d/e/f" "$D/t/full/x" "$D/t/kept" "$D/s/d/new"
    printf 'old\0d/e/f\0d/e/\0full/\0none\0none/x\0kept/\0' >"$D/s/.bellhop-tmp-removals"
    tar -C "$D/s" -cf "$AGENT_DIR/a.tar" .bellhop-tmp-removals d
    put "$AGENT_DIR/a.tar" "$D/t" | jq -e '.code == "invalid_argument"'
    [ -e "$D/t/old" ]
    agent_curl "/v1/archive?path=$D/t&removals=true" -T "$AGENT_DIR/a.tar" | jq -e '.removed == 3'
    [ "$(cd "$D/t" && find . | sort | tr '\n' ' ')" = ". ./d ./d/new ./full ./full/x ./kept " ]
    # A file replaces a directory, and a directory a file.
    mkdir "$D/s2"
    printf 'd/new\0d/\0kept\0' >"$D/s2/.bellhop-tmp-removals"
    mkdir "$D/s2/kept"
    touch "$D/s2/kept/now" "$D/s2/d"
    tar -C "$D/s2" -cf "$AGENT_DIR/b.tar" .bellhop-tmp-removals kept d
    agent_curl "/v1/archive?path=$D/t&removals=true" -T "$AGENT_DIR/b.tar" | jq -e '.removed == 3'
    [ "$(cd "$D/t" && find . | sort | tr '\n' ' ')" = ". ./d ./full ./full/x ./kept ./kept/now " ]
    # A failure half-way restores the removed files, with the directories' times.
    mkdir "$D/s3"
    printf 'full/x\0full/\0' >"$D/s3/.bellhop-tmp-removals"
    echo >"$D/s3/kept"
    tar -C "$D/s3" -cf "$AGENT_DIR/c.tar" .bellhop-tmp-removals kept
    touch -d 2001-02-03 "$D/t/full" "$D/t"
    find "$D/t" -printf '%p %y %m %T@\n' | sort >"$AGENT_DIR/before"
    agent_curl "/v1/archive?path=$D/t&removals=true" -T "$AGENT_DIR/c.tar" | jq -e '.code == "failed_precondition"'
    find "$D/t" -printf '%p %y %m %T@\n' | sort | diff "$AGENT_DIR/before" -
    for bad in '../x\0' '/etc/x\0' './\0'; do
        printf "$bad" >"$D/s3/.bellhop-tmp-removals"
        tar -C "$D/s3" -cf "$AGENT_DIR/d.tar" .bellhop-tmp-removals
        agent_curl "/v1/archive?path=$D/t&removals=true" -T "$AGENT_DIR/d.tar" | jq -e '.code == "invalid_argument"'
    done
    agent_curl "/v1/archive?path=$D/t&removals=true&mode=replace" -T "$AGENT_DIR/b.tar" | jq -e '.field == "removals"'
}
