# Files from a box with a hostile agent: it sends entries that nobody requested, names that lead out of the
# directory, links, and compressions that would start programs of this machine.
# early

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    box_setup
    ROOT=$BATS_TEST_DIRNAME/../..
    gcc -std=c99 -Wall -Wextra -Werror -I"$ROOT/host-client/include" -o "$BOX_TMP/files_client" \
        "$ROOT/tests/host/files_client.c" -L"$BELLHOP_BUILD" -l:libbellhop.so.0 \
        -Wl,-rpath,"$(realpath "$BELLHOP_BUILD")"
    say '{}'
    mkfifo "$BOX_TMP/ready"
    python3 "$ROOT/tests/host/hostile_agent.py" "$BOX_TMP/scenario" >"$BOX_TMP/ready" 2>"$BOX_TMP/log" 3>&- &
    AGENT=$!
    read -r URL <"$BOX_TMP/ready"
    # A home whose files must not change, and a directory in it that the command writes to.
    H=$BOX_TMP/person
    OUT=$H/out
    mkdir -p "$H/.ssh" "$OUT"
    echo mine | tee "$H/.bashrc" "$H/.ssh/authorized_keys" "$OUT/.env" "$OUT/f" >/dev/null
    chmod 600 "$H/.bashrc" "$OUT/.env"
    before=$(state)
}
teardown()
{
    kill "$AGENT"
    wait "$AGENT" 2>/dev/null || true
    box_teardown
}

say() { printf '%s' "$1" >"$BOX_TMP/scenario"; }
client() { run "$BOX_TMP/files_client" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" "$URL" "$@"; }

# Everything that a user could lose: names, types, modes, link counts, link targets, contents.
state()
{
    (cd "$H" && find . -printf '%p %y %m %n %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}
unchanged() { diff <(echo "$before") <(state) >&2; }

# fails WITH_CODE: and nothing has changed.
fails()
{
    [[ "$status" -eq 1 && "$output" == "$1: "* ]] || fail "$output"
    unchanged || fail "$output"
}

@test "get of a file takes that one entry and nothing else, and before it is whole changes nothing" {
    local scenario

    for scenario in \
        '{"entries": [{"name": ".bashrc", "data": "x"}]}' \
        '{"entries": [{"name": "f", "data": "x"}, {"name": ".ssh/authorized_keys", "data": "x"}]}' \
        '{"entries": [{"name": ".ssh/authorized_keys", "data": "x"}, {"name": "f", "data": "x"}]}' \
        '{"entries": [{"name": "f", "data": "x"}, {"name": "f", "data": "y"}]}' \
        '{"entries": [{"name": "./f", "data": "x"}]}' \
        '{"entries": [{"name": "../f", "data": "x"}]}' \
        '{"entries": [{"name": "/tmp/f", "data": "x"}]}' \
        '{"entries": [{"name": "f", "type": "dir"}]}' \
        '{"entries": [{"name": "f", "type": "fifo"}]}' \
        '{"entries": [{"name": "f", "type": "link", "target": "../.bashrc"}]}' \
        '{"entries": [{"name": "f", "type": "hard", "target": ".env"}]}' \
        '{"entries": [{"name": "f", "data": "0123456789"}], "cut": 516}' \
        '{"entries": []}' \
        '{"stat": {"type": "symlink"}, "entries": [{"name": "f", "data": "x"}]}' \
        '{"stat": {"type": "symlink"}, "entries": [{"name": "g", "type": "link", "target": "/etc"}]}'; do
        say "$scenario"
        client get /workspace/f "$OUT"
        fails data_loss
    done
    say '{"stat": {"type": "fifo"}, "entries": [{"name": "f", "data": "x"}]}'
    client get /workspace/f "$OUT"
    fails invalid_argument
    # The good answer: complete, without set-id bits.
    say '{"entries": [{"name": "f", "data": "new", "mode": 3581}]}'
    client get /workspace/f "$OUT"
    [ "$output" = ok ] || fail "$output"
    [ "$(cat "$OUT/f") $(stat -c %a "$OUT/f")" = "new 775" ]
    [ "$(ls -A "$OUT" | tr '\n' ' ')" = ".env f " ]
}

@test "get of a directory stays below its name, and hard links lead to what came with it" {
    local scenario

    mkdir "$OUT/d"
    echo secret >"$OUT/d/.env"
    before=$(state)
    for scenario in \
        '{"name": "../f", "data": "x"}' \
        '{"name": "/tmp/x", "data": "x"}' \
        '{"name": "a/../../f", "data": "x"}' \
        '{"name": ".", "type": "link", "target": "/etc"}' \
        '{"name": "./", "data": "x"}' \
        '{"name": "harmless", "type": "hard", "target": ".env"}' \
        '{"name": "harmless", "type": "hard", "target": "../f"}'; do
        say "{\"stat\": {\"type\": \"directory\"}, \"entries\": [$scenario]}"
        client get /workspace/d "$OUT"
        [ "$status" -eq 1 ] || fail "$scenario: $output"
        unchanged || fail "$scenario: $output"
    done
    # Parents that the answer makes itself, of links.
    say '{"stat": {"type": "directory"}, "entries": [{"name": "l", "type": "link", "target": "../.."},
          {"name": "l/.bashrc", "data": "x"}]}'
    client get /workspace/d "$OUT"
    [ "$status" -eq 1 ] || fail "$output"
    rm "$OUT/d/l"
    unchanged || fail "$output"
    say '{"stat": {"type": "directory"}, "entries": [{"name": "a", "data": "x"},
          {"name": "b", "type": "hard", "target": "a"}, {"name": "b", "type": "hard", "target": "a"},
          {"name": "p", "type": "fifo"}]}'
    client get /workspace/d "$OUT"
    [ "$output" = ok ] || fail "$output"
    [ "$(stat -c %h "$OUT/d/b")" = 2 ]
    [ "$(ls -A "$OUT/d" | tr '\n' ' ')" = ".env a b " ]
    # The link that is asked for is a directory of its own name.
    say '{"stat": {"type": "symlink", "follow": {"type": "directory"}}, "entries": [{"name": "in", "data": "x"}]}'
    client get /workspace/link "$OUT"
    [ "$output" = ok ] || fail "$output"
    [ -e "$OUT/link/in" ]
    [ ! -e "$OUT/in" ]
}

@test "an archive from a box starts no program of this machine" {
    mkdir "$BOX_TMP/bin"
    for name in lzop lrzip grzip; do
        printf '#!/bin/sh\n: >%s/ran-%s\n' "$BOX_TMP" "$name" >"$BOX_TMP/bin/$name"
        chmod 755 "$BOX_TMP/bin/$name"
    done
    export PATH=$BOX_TMP/bin:$PATH
    for raw in '\211LZO\000\015\012\032\012' 'LRZI\000\006\000\000' 'GRZipII\000\002\004:)'; do
        raw=$( (printf "$raw"; head -c 2000 /dev/zero) | base64 -w 0)
        say "{\"raw\": \"$raw\"}"
        client get /workspace/f "$OUT"
        fails data_loss
        say "{\"raw\": \"$raw\", \"manifest\": [{\"path\": \"new\"}]}"
        client sync /workspace "$OUT"
        fails data_loss
    done
    ls "$BOX_TMP"/ran-* && fail "a program ran"
    # A compression that was not requested is refused.
    say "{\"raw\": \"$(tar -C "$H" -cz f 2>/dev/null | base64 -w 0)\"}"
    client get /workspace/f "$OUT"
    fails data_loss
}

@test "sync out of a box refuses names that git, or the directory above, would be hit by" {
    local name

    git init -q "$OUT"
    before=$(state)
    for name in .git/config .git/hooks/pre-commit .GIT/config .Git sub/.git/config sub/.giT/hooks/x \
        .git./config '.git /config' '.git. . /config' ./.git/config; do
        say "{\"manifest\": [{\"path\": \"$name\"}], \"entries\": [{\"name\": \"$name\", \"data\": \"x\"}]}"
        client sync /workspace "$OUT"
        fails permission_denied
        client sync /workspace "$OUT" delete
        fails permission_denied
    done
    for name in / . ./ ./. .. ../f a/../../.bashrc a/.. /etc/cron.d/x "$H/.bashrc"; do
        say "{\"manifest\": [{\"path\": \"$name\"}], \"entries\": [{\"name\": \"$name\", \"data\": \"x\"}]}"
        client sync /workspace "$OUT"
        fails data_loss
    done
    say '{"manifest": [{"path": ""}]}'
    client sync /workspace "$OUT"
    [ "$status" -eq 1 ]
    unchanged
    say '{"manifest": [{"path": {"b64": "YQBi"}}]}' # a NUL within
    client sync /workspace "$OUT"
    [ "$status" -eq 1 ]
    unchanged
    # Names of git's that no git takes for its own; and a directory that the user leaves out.
    say '{"manifest": [{"path": ".gitignore"}, {"path": "a.git"}, {"path": ".github/x"}, {"path": "sub/.Git/x"}],
          "entries": [{"name": ".gitignore", "data": "x"}, {"name": "a.git", "data": "x"},
          {"name": ".github/x", "data": "x"}]}'
    client sync /workspace "$OUT" exclude=.Git
    [ "$output" = ok ] || fail "$output"
    [ -e "$OUT/.gitignore" ]
    [ -e "$OUT/a.git" ]
    [ -e "$OUT/.github/x" ]
    [ ! -e "$OUT/sub" ]
    # --with-git requests it, under its own name alone.
    say '{"manifest": [{"path": ".git/description"}], "entries": [{"name": ".git/description", "data": "x"}]}'
    client sync /workspace "$OUT" git
    [ "$output" = ok ] || fail "$output"
    [ "$(cat "$OUT/.git/description")" = x ]
    before=$(state)
    say '{"manifest": [{"path": ".git/a"}, {"path": "sub/.GIT/config"}]}'
    client sync /workspace "$OUT" git
    fails permission_denied
}

@test "sync out of a box takes one name for one entry: ./a is a, and twice is refused" {
    chmod 600 "$H/.bashrc"
    echo 1 >"$OUT/a"
    touch -d 2020-01-01T00:00:00Z "$OUT/a"
    before=$(state)
    # It comes as a link, and its mode is set as a file's.
    for names in '"./a" "a"' '"a" "./a"' '"a" "a/"' '"a" "a"' '"b/c" "b//c"' '"b/c" "b/./c"'; do
        read -r one two <<<"$names"
        say "{\"manifest\": [{\"path\": $one, \"type\": \"symlink\", \"target\": \"../.bashrc\"},
              {\"path\": $two, \"size\": 2, \"mode\": \"0777\"}],
              \"entries\": [{\"name\": \"a\", \"type\": \"link\", \"target\": \"../.bashrc\"}]}"
        client sync /workspace "$OUT"
        fails data_loss
    done
    say '{"manifest": [{"path": "./g"}], "entries": [{"name": "g", "data": "x"}]}'
    client sync /workspace "$OUT"
    [ "$output" = ok ] || fail "$output"
    [ "$(cat "$OUT/g")" = x ]
}

@test "sync out of a box takes nothing that it did not ask for, nor as something else" {
    local entries

    for entries in \
        '{"name": "new", "data": "x"}, {"name": ".git/config", "data": "x"}' \
        '{"name": "new", "data": "x"}, {"name": "f", "data": "x"}, {"name": "f2", "data": "x"}' \
        '{"name": "new/.git/config", "data": "x"}'; do
        say "{\"manifest\": [{\"path\": \"new\"}], \"entries\": [$entries]}"
        client sync /workspace "$OUT"
        fails data_loss
    done
    for entries in \
        '{"name": "new", "type": "dir"}' \
        '{"name": "new", "type": "link", "target": "../.bashrc"}' \
        '{"name": "new", "type": "fifo"}'; do
        say "{\"manifest\": [{\"path\": \"new\"}], \"entries\": [$entries]}"
        client sync /workspace "$OUT"
        fails aborted
    done
    # A link to above, and what is said to be below it.
    say '{"manifest": [{"path": "up", "type": "symlink", "target": ".."}, {"path": "up/.bashrc"}],
          "entries": [{"name": "up/.bashrc", "data": "x"}]}'
    client sync /workspace "$OUT"
    fails data_loss
    say '{"manifest": [{"path": "up", "type": "symlink", "target": ".."}, {"path": "up/.bashrc"}],
          "entries": [{"name": "up", "type": "link", "target": ".."}, {"name": "up/.bashrc", "data": "x"}]}'
    client sync /workspace "$OUT"
    fails data_loss
    say '{"manifest": [{"path": "up/a/b"}, {"path": "up-1"}, {"path": "up", "type": "symlink", "target": ".."}]}'
    client sync /workspace "$OUT"
    fails data_loss
    [ -z "$(find "$H" -name '.bellhop-tmp*')" ]
}

@test "sync out of a box removes nothing that a link of this machine leads to" {
    mkdir "$H/elsewhere"
    echo kept >"$H/elsewhere/k"
    echo 1 >"$OUT/gone"
    ln -s ../elsewhere "$OUT/dir"
    say '{"manifest": [{"path": "dir", "type": "directory"}, {"path": "dir/k"}],
          "missing": {"missing": ["f", "gone"]}}'
    client sync /workspace "$OUT" delete
    [ "$(cat "$H/elsewhere/k")" = kept ] || fail "$output"
    [ "$(cat "$H/.bashrc")" = mine ]
}
