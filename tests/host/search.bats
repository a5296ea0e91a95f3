# grep and glob print what rg and fd print, and end as they end.

bats_require_minimum_version 1.5.0

load ../lib/box

setup_file()
{
    box_setup
    export BOX_TMP TREE=$BOX_TMP/tree
    mkdir -p "$TREE/sub/deep" "$TREE/.hidden"
    cd "$TREE"
    git init -q .
    printf 'one TODO two TODO\nplain\nthree TODO\n' >a.txt
    printf 'x\ny\nTODO z\nq\nr\ns\nTODO end\ntodo\n' >sub/b.c
    printf 'TODO\n\nnothing\nTODOs\n' >sub/deep/c.py
    printf 'bin\0TODO\n' >bin.dat
    printf 'TODO hidden\n' >.hidden/h.txt
    printf 'ignored.txt\n' >.gitignore
    printf 'TODO ignored\n' >ignored.txt
    printf 'caf\303\251 TODO\n' >"na me.md"
    printf 'latin \351 TODO\n' >latin.txt
    "$BELLHOP" up --name one --provider process --agent none --empty >/dev/null 2>&1
}
teardown_file()
{
    box_teardown
}
setup() { cd "$TREE"; }

# as_rg ARG...: the same output and the same status, byte for byte.
as_rg()
{
    local want=0 got=0

    rg --sort path --no-heading -n "$@" >"$BOX_TMP/want" 2>/dev/null </dev/null || want=$?
    "$BELLHOP" grep one --sort path "$@" "$TREE" >"$BOX_TMP/got.abs" 2>"$BOX_TMP/err" </dev/null || got=$?
    sed "s#$TREE/##g" "$BOX_TMP/got.abs" >"$BOX_TMP/got"
    diff "$BOX_TMP/want" "$BOX_TMP/got" >&2 || fail "$*"
    [ "$want" -eq "$got" ] || fail "$*: status $got, rg has $want: $(cat "$BOX_TMP/err")"
}

@test "grep prints what rg prints, with the same options" {
    as_rg TODO
    as_rg -i todo
    as_rg -S todo
    as_rg -w TODO
    as_rg -x TODO
    as_rg -v -g '*.py' TODO
    as_rg -F 'TODO z'
    as_rg -C 1 TODO
    as_rg -A 1 TODO
    as_rg -B 2 TODO
    as_rg -m 1 TODO
    as_rg -o TODO
    as_rg -o 'T(O)DO' -r '<$1>'
    as_rg -r '[$0]' TODO
    as_rg -l TODO
    as_rg --files-without-match two
    as_rg -c TODO
    as_rg --count-matches TODO
    as_rg -t py TODO
    as_rg -T py TODO
    as_rg -g '*.c' -g '!a*' TODO
    as_rg --hidden TODO
    as_rg --no-ignore TODO
    as_rg --max-depth 1 TODO
    as_rg --max-filesize 20 TODO
    as_rg --column TODO
    as_rg -b TODO
    as_rg -H TODO
    as_rg -I TODO
    as_rg -0 -l TODO
    as_rg -0 TODO
    as_rg -a bin
    as_rg -U 'TODO\nplain'
    as_rg -e one -e three
    as_rg --color always TODO
    as_rg --color always -C 1 TODO
    as_rg nothing-of-this-kind
    as_rg '('
    as_rg -N TODO
}

@test "a single file is searched without its name, and a missing one is status 2" {
    run -0 bellhop grep one TODO ":$TREE/a.txt"
    [ "$output" = "$(rg -n TODO a.txt)" ]
    run -0 bellhop grep one -H TODO "$TREE/a.txt" "$TREE/sub/b.c"
    [ "$output" = "$(rg -n TODO "$TREE/a.txt" "$TREE/sub/b.c" --sort path)" ]
    run -2 bellhop grep one TODO /nonexistent
    [[ "$output" == *"/nonexistent"* ]]
    run -0 --separate-stderr bellhop grep -q one TODO "$TREE"
    [ -z "$output" ]
}

# on_terminal COMMAND...: its whole output on a terminal; script(1) does not always wait for the end.
on_terminal()
{
    python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$@" </dev/null | tr -d '\r'
}

@test "on a terminal matches stand under headings, in colour unless NO_COLOR is set" {
    TERM=xterm on_terminal "$BELLHOP" grep one TODO "$TREE/sub" >"$BOX_TMP/got"
    rg --sort path --heading --color always -n TODO "$TREE/sub" >"$BOX_TMP/want"
    diff "$BOX_TMP/want" "$BOX_TMP/got" >&2
    NO_COLOR=1 TERM=xterm on_terminal "$BELLHOP" grep one TODO "$TREE/sub" >"$BOX_TMP/got"
    rg --sort path --heading -n TODO "$TREE/sub" | diff - "$BOX_TMP/got" >&2
}

# as_fd ARG... -- ARG...: fd's arguments, and those of glob for the same.
as_fd()
{
    local -a theirs=()

    while [ "$1" != -- ]; do
        theirs+=("$1")
        shift
    done
    shift
    fdfind --color never "${theirs[@]}" . "$TREE" 2>/dev/null | sed 's#/$##' | LC_ALL=C sort >"$BOX_TMP/want"
    "$BELLHOP" glob one "$@" '*' "$TREE" | LC_ALL=C sort >"$BOX_TMP/got" || true
    diff "$BOX_TMP/want" "$BOX_TMP/got" >&2 || fail "${theirs[*]}"
    [ -s "$BOX_TMP/got" ] || fail "${theirs[*]}: nothing"
}

@test "glob finds what fd finds, with the same options" {
    as_fd --
    as_fd -t f -- -t f
    as_fd -t d -- -t d
    as_fd -e c -- -e c
    as_fd -H -E .git -- -H -E .git
    as_fd -I -- -I
    as_fd -d 1 -- -d 1
    as_fd --min-depth 2 -- --min-depth 2
    as_fd -E sub -- -E sub
    [ "$(bellhop glob one --regex '^[ab]\.' "$TREE" --sort path)" = "$TREE/a.txt
$TREE/sub/b.c" ]
    [ "$(bellhop glob one -0 'a.txt' "$TREE" | tr '\0' '+')" = "$TREE/a.txt+" ]
    run -1 bellhop glob one '*.nothing' "$TREE"
}

@test "what a limit cut off is said, and a cursor goes on from there" {
    run -0 --separate-stderr bellhop glob one --json --sort path -t f -m 2 '*' "$TREE"
    [ "$(jq '.files | length' <<<"$output")" -eq 2 ]
    [ "$(jq .end.limit_reached <<<"$output")" = true ]
    cursor=$(jq -r .end.cursor <<<"$output")
    first=$(jq -r '.files[].path' <<<"$output")
    rest=$(bellhop glob one --sort path -t f --cursor "$cursor" '*' "$TREE")
    [ "$(printf '%s\n%s' "$first" "$rest")" = "$(bellhop glob one --sort path -t f '*' "$TREE")" ]
    run -0 --separate-stderr bellhop grep one --limit 1 TODO "$TREE"
    [[ "$stderr" == *"the limit was reached"* ]]
}

@test "output that cannot be written is an error of grep and glob" {
    local command

    to_full() { "$BELLHOP" "$@" 2>&1 >/dev/full; }
    for command in "grep one TODO $TREE" "grep one TODO $TREE --json" "grep one nosuchword $TREE --json" \
        "glob one *.txt $TREE" "glob one *.txt $TREE --json"; do
        set -f
        run to_full $command
        set +f
        [ "$output" = "bellhop: writing standard output: No space left on device" ]
        [ "$status" = 2 ]
    done
}
