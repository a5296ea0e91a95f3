# The library as a program uses it: the example of docs/examples is built against the header and
# the libraries that are shipped, and run.

load ../lib/agent
load ../lib/box

setup()
{
    box_setup
    ROOT=$BATS_TEST_DIRNAME/../..
    mkdir -p "$BOX_TMP/project"
    echo one >"$BOX_TMP/project/one.txt"
}
teardown()
{
    stop_agents
    box_teardown
}

compile() # OUTPUT [LIBRARY...]
{
    local out=$1

    shift
    gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$ROOT/host-client/include" -o "$out" \
        "$ROOT/docs/examples/$(basename "$out").c" "$@"
}

shared()
{
    compile "$1" -L"$BELLHOP_BUILD" -l:libbellhop.so.0 -Wl,-rpath,"$(realpath "$BELLHOP_BUILD")"
}

# A program with the library, recorded (tests/lib/wire) as curl is.
client() { ${WIRE_BIN:+"$WIRE_BIN/launch"} "$@"; }

hello()
{
    client "$BOX_TMP/hello" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" process "$BOX_TMP/project"
}

check_hello()
{
    [ "$status" -eq 0 ] || fail "$output"
    [[ "$output" == *"hello from hello"* ]]
    [[ "$output" == *"one.txt"* ]]
    [[ "$output" == *"exited with 0"* ]]
    [[ "$output" == *"note.txt has 5 bytes: kept"* ]]
    [[ "$output" == *"port 8080 of the box is http://127.0.0.1:"* ]]
}

# The programs beside the example are found as they are beside `bellhop`.
install_beside()
{
    ln -s "$(realpath "$BELLHOP_BUILD/bellhopd")" "$(realpath "$BELLHOP_BUILD/bellhop-monitor")" \
        "$BOX_TMP/"
}

@test "the example program builds as C99 against the static library and runs" {
    install_beside
    # shellcheck disable=SC2046 # words
    compile "$BOX_TMP/hello" "$BELLHOP_BUILD/libbellhop.a" \
        $(pkg-config --libs libcurl jansson libarchive sqlite3 nettle) -pthread
    run hello
    check_hello
    [ -z "$(bellhop ls -q)" ]
}

@test "the example program runs with the shared library" {
    install_beside
    shared "$BOX_TMP/hello"
    run hello
    check_hello
}

@test "the first example is a whole program in sixty lines" {
    [ "$(wc -l <"$ROOT/docs/examples/hello.c")" -le 60 ]
}

@test "the examples of commands and files do what they say" {
    shared "$BOX_TMP/commands"
    shared "$BOX_TMP/files"
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
    run client "$BOX_TMP/commands" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" one
    [ "$status" -eq 0 ] || fail "$output"
    [[ "$output" == "adder: running, while read -r a b; do echo "*"42"*"3"*"42"*"3"*"exited with 3, "* ]] || fail "$output"
    run client "$BOX_TMP/files" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" one
    [ "$status" -eq 0 ] || fail "$output"
    [[ "$output" == "the second writer hears: aborted"* ]] || fail "$output"
    [[ "$output" == *"notes/list.txt:1: bread"*"notes/list.txt:2: butter"* ]] || fail "$output"
    [[ "$output" == *"-milk"*"+bread"*"2 matches"* ]] || fail "$output"
    [[ "$output" == *"butlist.txt: file of 13 bytes, mode 644"*"watching: started" ]] || fail "$output"
    run bellhop cat one :notes/list.txt
    [ "$status" -ne 0 ]
}

@test "the example of keys and history tells what became of a box" {
    shared "$BOX_TMP/history"
    install_beside
    run client "$BOX_TMP/history" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" process 1234.5678
    [ "$status" -eq 0 ] || fail "$output"
    [ "$output" = "one box: yes
1 requested, by the example
2 provisioning, by the example
3 bootstrapping, by the example
4 running, by the example
5 destroying, by the example: removed by a command
6 destroyed, by the example: removed by a command
record: process, removed by a command, killed, times in order, logs kept, transcript none
gone: the same box, process, removed by a command
the key is free: not_found, gone" ] || fail "$output"
}

@test "a program uses an agent that is there already by its URL, and cannot end it" {
    shared "$BOX_TMP/connect"
    mkdir "$BOX_TMP/there"
    start_agent
    there() # URL TOKEN
    {
        run "$BOX_TMP/connect" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" "$1" "$2" "$BOX_TMP/there"
    }
    there "$AGENT_URL" "$AGENT_TOKEN"
    [ "$status" -eq 0 ] || fail "$output"
    [ "$output" = "hello from there
kept
exited with 0; its agent: $AGENT_URL
stop: failed_precondition
destroy: failed_precondition
start: failed_precondition
extend: failed_precondition
url: failed_precondition" ] || fail "$output"
    curl -fsS "$AGENT_URL/v1/health"

    there "$AGENT_URL" wrong
    [[ "$status" -eq 1 && "$output" == "unauthenticated: "* ]] || fail "$output"
    there ftp://nowhere x
    [[ "$status" -eq 1 && "$output" == "invalid_argument: url: 'ftp://nowhere' does not begin with"* ]] || fail "$output"
    stop_agents
    there "$AGENT_URL" "$AGENT_TOKEN"
    [ "$status" -eq 1 ] || fail "$output"
    # Nothing of it is kept, and there is no box.
    [ -z "$(bellhop ls -q)" ]
    [ -z "$(ls "$BELLHOP_STATE_DIR" | grep connected || true)" ]
}

@test "files and archives go both ways, errors have the agent's facts, and a start with a timeout extends the lease" {
    gcc -std=c99 -Wall -Wextra -Werror -I"$ROOT/host-client/include" -o "$BOX_TMP/libcalls" \
        "$ROOT/tests/host/libcalls.c" -L"$BELLHOP_BUILD" -l:libbellhop.so.0 -Wl,-rpath,"$(realpath "$BELLHOP_BUILD")"
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
    run client "$BOX_TMP/libcalls" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" one
    [ "$output" = "all is well" ] || fail "$output"
}

@test "a program built with an older header runs: no struct without a size has grown" {
    gcc -std=c99 -Wall -Wextra -Werror -o "$BOX_TMP/old_caller" "$ROOT/tests/host/old_caller.c" \
        -L"$BELLHOP_BUILD" -l:libbellhop.so.0 -Wl,-rpath,"$(realpath "$BELLHOP_BUILD")"
    bellhop up --name one --provider process --agent none --empty >/dev/null 2>&1
    bellhop rm one >/dev/null
    run client "$BOX_TMP/old_caller" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR" one
    [ "$status" -eq 0 ] || fail "$output"
    [ "$output" = not_found ] || fail "$output"
}

@test "the shared library exports bh_ names only" {
    run bash -c "nm -D --defined-only '$BELLHOP_BUILD/libbellhop.so.0' | awk '{print \$3}' | grep -v -e '^bh_' -e '^LIBBELLHOP_' -e '^\$'"
    [ -z "$output" ] || fail "$output"
}

@test "the header compiles alone as C99 and as C++" {
    echo '#include <bellhop/bellhop.h>' >"$BOX_TMP/t.c"
    gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$ROOT/host-client/include" "$BOX_TMP/t.c"
    if command -v g++ >/dev/null; then
        g++ -Wall -Wextra -Werror -fsyntax-only -x c++ -I"$ROOT/host-client/include" "$BOX_TMP/t.c"
    fi
}

@test "a program that was compiled with smaller option structs still works" {
    cat >"$BOX_TMP/old.c" <<'C'
#include <bellhop/bellhop.h>
#include <stddef.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    struct bh_options o = {offsetof(struct bh_options, agent_path), argv[1], argv[2]};
    struct bh_error e;
    struct bh_ctx *ctx;

    (void)argc;
    if (bh_open(&o, &ctx, &e) < 0) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    bh_close(ctx);
    o.size = 0;
    return bh_open(&o, &ctx, &e) == -BH_INVALID_ARGUMENT ? 0 : 1;
}
C
    gcc -std=c99 -I"$ROOT/host-client/include" -o "$BOX_TMP/old" "$BOX_TMP/old.c" \
        -L"$BELLHOP_BUILD" -l:libbellhop.so.0 -Wl,-rpath,"$(realpath "$BELLHOP_BUILD")"
    "$BOX_TMP/old" "$BELLHOP_STATE_DIR" "$BELLHOP_CACHE_DIR"
}
