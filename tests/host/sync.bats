# bellhop sync: a directory here and one in a box, made alike in both directions.
# early

bats_require_minimum_version 1.5.0

load ../lib/box

setup()
{
    box_setup
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>"$BOX_TMP/err"
    L=$BOX_TMP/here
    R=$BOX_TMP/there # the process provider shows the box this machine's own files
    mkdir "$L"
}
teardown()
{
    box_teardown
}

up() { bellhop sync one "$L" ":$R" "$@"; }
down() { bellhop sync one ":$R" "$L" "$@"; }
counts() { jq -r '"\(.sent) \(.removed) \(.unchanged) \(.touched) \(.kept)"'; }

tree_of()
{
    (cd "$1" && find . -path ./.git -prune -o ! -path . ! -type d -printf '%p %y %m %l %T@\n' -o -type d -printf '%p %y\n' | sort
        find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum)
}

make_tree()
{
    mkdir -p "$1/src/deep" "$1/empty"
    seq 20000 >"$1/src/numbers"
    printf '#!/bin/sh\n' >"$1/src/run"
    chmod 755 "$1/src/run"
    echo x >"$1/src/deep/x"
    ln -s src/numbers "$1/link"
    printf 'b' >"$1/$(printf 'caf\351')"
    head -c 3000000 /dev/urandom >"$1/large"
}

@test "sync goes up, comes down, and the second time moves nothing" {
    make_tree "$L"
    [ "$(up --json | counts)" = "6 0 0 0 0" ]
    diff <(tree_of "$L") <(tree_of "$R")
    [ "$(up --json | counts)" = "0 0 6 0 0" ]
    [ "$(down --json | counts)" = "0 0 6 0 0" ]
    L=$BOX_TMP/new/place
    [ "$(down --json | counts)" = "6 0 0 0 0" ]
    diff <(tree_of "$L") <(tree_of "$R")
    [ "$(down --json | counts)" = "0 0 6 0 0" ]
    [ "$(down)" = "fetched 0 files, 0 B; removed 0; 6 unchanged" ]
    [ "$(up)" = "sent 0 files, 0 B; removed 0; 6 unchanged" ]
    [ "$(down -n)" = "would fetch 0 files, 0 B; removed 0; 6 unchanged" ]
}

@test "a sync out of a repository tells that its commits stay, unless they are fetched" {
    mkdir "$R"
    echo x >"$R/x"
    git -C "$R" init -q
    run -0 down
    [[ "$output" == "fetched 1 file, "*"commits stayed in the box: --with-git also fetches '$R/.git'" ]] || fail "$output"
    run -0 down --with-git
    [[ "$output" == "fetched "* && "$output" != *stayed* ]] || fail "$output"
    run -0 up
    [[ "$output" != *stayed* ]] || fail "$output"
    [ "$(bellhop put one "$R/x" ":$R/y")" = "1 file, 2 B" ]
}

@test "sync sends what changed and removes what went, both ways" {
    make_tree "$L"
    up >/dev/null
    echo more >>"$L/src/numbers"
    rm -r "$L/src/deep" "$L/link"
    chmod 700 "$L/src/run"
    ln -s elsewhere "$L/other"
    up -n >"$BOX_TMP/plan"
    grep -qx 'send src/numbers' "$BOX_TMP/plan"
    grep -qx 'remove src/deep/x' "$BOX_TMP/plan"
    [ -e "$R/src/deep/x" ]
    [ "$(up --json | counts)" = "2 3 2 1 0" ]
    diff <(tree_of "$L") <(tree_of "$R")
    rm -r "$R/src"
    mkdir "$R/large2"
    mv "$R/large" "$R/large2/large"
    [ "$(down --json | jq -r '"\(.sent) \(.kept)"')" = "1 0" ]
    diff <(tree_of "$L") <(tree_of "$R")
    # A file where a directory was, and the other way round.
    rm -r "$L/large2" "$L/other"
    echo file >"$L/large2"
    mkdir "$L/other"
    echo in >"$L/other/in"
    up >/dev/null
    diff <(tree_of "$L") <(tree_of "$R")
    rm -r "$R/other" "$R/large2"
    echo file >"$R/other"
    mkdir "$R/large2"
    echo in >"$R/large2/in"
    down >/dev/null
    diff <(tree_of "$L") <(tree_of "$R")
}

@test "sync leaves what the other side has made, unless told otherwise" {
    make_tree "$L"
    up >/dev/null
    echo agent >"$R/src/made-there"
    [ "$(up --json | counts)" = "0 0 6 0 1" ]
    [ -e "$R/src/made-there" ]
    [ "$(up --delete -n --json | jq .removed)" = 1 ]
    [ "$(up --delete --json | counts)" = "0 1 6 0 0" ]
    [ ! -e "$R/src/made-there" ]
    echo mine >"$L/mine"
    [ "$(down --json | jq .kept)" = 1 ]
    [ "$(cat "$L/mine")" = mine ]
    [ "$(down --json --delete | jq .removed)" = 1 ]
    [ ! -e "$L/mine" ]
    # Without a record of an earlier sync, nothing counts as removed.
    rm -rf "$BELLHOP_STATE_DIR/sync"
    rm "$L/large"
    [ "$(up --json | counts)" = "0 0 5 0 1" ]
    [ -e "$R/large" ]
}

@test "sync neither sends nor removes what is ignored, secret or excluded" {
    git init -q "$L"
    printf '*.o\nbuild/\n' >"$L/.gitignore"
    mkdir "$L/build" "$L/keep"
    touch "$L/a.c" "$L/a.o" "$L/build/x" "$L/.env" "$L/keep/k"
    up --exclude keep >/dev/null
    [ "$(cd "$R" && find . | sort | tr '\n' ' ')" = ". ./.gitignore ./a.c " ]
    mkdir "$R/build" "$R/keep" "$R/.git"
    touch "$R/build/out" "$R/b.o" "$R/keep/theirs" "$R/.git/theirs"
    [ "$(up --delete --exclude keep --json | counts)" = "0 0 2 0 0" ]
    [ "$(down --delete --exclude keep --json | counts)" = "0 0 2 0 0" ]
    [ -e "$R/build/out" ]
    [ -e "$R/b.o" ]
    [ -e "$R/keep/theirs" ]
    [ -e "$R/.git/theirs" ]
    [ -e "$L/a.o" ]
    [ -e "$L/build/x" ]
    [ -e "$L/.env" ]
    [ -e "$L/.git/HEAD" ]
    # A tracked file is sent although it is ignored, and does not count as removed.
    git -C "$L" add -f a.o
    [ "$(up --exclude /keep --json | counts)" = "1 0 2 0 0" ]
    [ "$(up --exclude keep --json | counts)" = "0 0 3 0 0" ]
    [ "$(down --delete --exclude keep --json | jq .removed)" = 0 ]
    [ -e "$L/a.o" ]
}

@test "sync into a box sends nothing from behind a link, whatever git tracks there" {
    git init -q "$L"
    mkdir "$L/d" "$BOX_TMP/outside"
    echo x >"$L/d/id_rsa"
    git -C "$L" add .
    echo SECRET >"$BOX_TMP/outside/id_rsa"
    rm -r "$L/d"
    ln -s "$BOX_TMP/outside" "$L/d"
    [ "$(up --json | counts)" = "1 0 0 0 0" ]
    [ "$(readlink "$R/d")" = "$BOX_TMP/outside" ]
    [ "$(find "$R" -type f | wc -l)" = 0 ]
    # Nor does it come back through the link.
    rm "$R/d"
    mkdir "$R/d"
    echo evil >"$R/d/id_rsa"
    down >/dev/null
    [ "$(cat "$BOX_TMP/outside/id_rsa")" = SECRET ]
    [ "$(cat "$L/d/id_rsa")" = evil ]
}

@test "sync with git takes a linked work tree's repository along, and no other" {
    git -c init.defaultBranch=main init -q "$BOX_TMP/main"
    git -C "$BOX_TMP/main" -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m one
    rmdir "$L"
    git -C "$BOX_TMP/main" worktree add -q -b side "$L"
    up --with-git >/dev/null
    [ "$(git -C "$R" rev-parse HEAD)" = "$(git -C "$L" rev-parse HEAD)" ]
    [ "$(git -C "$R" branch --show-current)" = side ]
    L=$BOX_TMP/thief
    mkdir "$L"
    echo "gitdir: $BOX_TMP/main/.git" >"$L/.git"
    R=$BOX_TMP/loot
    run --separate-stderr up --with-git
    [ "$status" -ne 0 ]
    [[ "$stderr" == *"does not name that directory in turn"* ]]
    [ ! -e "$R" ]
}

@test "sync compares contents where only the time differs, and everywhere when asked" {
    make_tree "$L"
    up >/dev/null
    touch "$L/src/numbers" "$L/large"
    [ "$(up --json | counts)" = "0 0 4 2 0" ]
    [ "$(up --json | counts)" = "0 0 6 0 0" ]
    touch "$R/large"
    [ "$(down --json | counts)" = "0 0 5 1 0" ]
    # The same size and time, other bytes: only --checksum sees it.
    printf 'c' >"$L/$(printf 'caf\351')"
    touch -r "$R/$(printf 'caf\351')" "$L/$(printf 'caf\351')"
    [ "$(up --json | counts)" = "0 0 6 0 0" ]
    [ "$(up --checksum --json | counts)" = "1 0 5 0 0" ]
    [ "$(cat "$R/$(printf 'caf\351')")" = c ]
    [ "$(up --checksum --json | counts)" = "0 0 6 0 0" ]
}

@test "sync that can not be done changes nothing and says why" {
    make_tree "$L"
    run --separate-stderr bellhop sync one "$L" "$R"
    [ "$status" -eq 2 ] || [ "$status" -eq 1 ]
    run --separate-stderr bellhop sync one ":$R/none" "$L"
    [ "$status" -eq 3 ]
    run --separate-stderr bellhop sync one "$L/none" ":$R"
    [ "$status" -eq 3 ]
    up >/dev/null
    # A directory with files of its own is not replaced by a file.
    mkdir -p "$R/src2" && echo own >"$R/src2/own"
    echo file >"$L/src2"
    echo new >"$L/new"
    run --separate-stderr up
    [ "$status" -ne 0 ]
    [[ "$stderr" == *src2* ]]
    [ ! -e "$R/new" ]
    [ "$(cat "$R/src2/own")" = own ]
    rm "$L/src2" "$L/new"
    mkdir "$L/dir" && echo own >"$L/dir/own"
    echo file >"$R/dir"
    run --separate-stderr down
    [ "$status" -ne 0 ]
    [ "$(cat "$L/dir/own")" = own ]
    [ -z "$(find "$L" "$R" -name '.bellhop-tmp*')" ]
}

@test "sync of eight thousand files a second time moves no data" {
    local start

    python3 -c "
import os, sys
for i in range(80):
    os.mkdir(f'{sys.argv[1]}/{i}')
    for j in range(100):
        open(f'{sys.argv[1]}/{i}/{j}', 'w').write(str(j))
" "$L"
    [ "$(up --json | counts)" = "8000 0 0 0 0" ]
    start=$(date +%s%N)
    [ "$(up --json | counts)" = "0 0 8000 0 0" ]
    echo "# the second sync took $((($(date +%s%N) - start) / 1000000)) ms" >&3
    [ "$(down --json | counts)" = "0 0 8000 0 0" ]
}
