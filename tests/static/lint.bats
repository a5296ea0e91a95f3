#!/usr/bin/env bats
# The rules that `make lint` checks with scripts of ours: each is broken in a scratch tree, and is caught there.

setup()
{
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    cd "$BATS_TEST_TMPDIR"
    mkdir -p scripts guest/common guest/event guest/http guest/proc guest/api/exec guest/dialect/e2b \
        guest/dialect/mcp host-client/lib/util host-client/lib/box host-client/lib/provider/oci \
        host-client/lib/provider/vm host-client/cli tests/unit docs
    cp "$TOP"/scripts/check-*.sh scripts/
    printf '/* A clean file. */\nstatic int pool_start(void);\n\nstatic int pool_start(void)\n{\n}\n' >guest/event/pool.c
    printf '#pragma once\n' >guest/event/pool.h
}

# caught CHECK TEXT: the check fails, and says this.
caught()
{
    run "scripts/check-$1.sh"
    [ "$status" -ne 0 ] || fail_with "check-$1.sh found nothing"
    [[ "$output" == *"$2"* ]] || fail_with "not said: $2"
}

fail_with()
{
    printf '%s\n%s\n' "$1" "$output" >&2
    return 1
}

@test "a tree without a fault passes every check" {
    printf '# Title\n\nA line.\n' >docs/page.md
    for check in layers names docs; do
        run "scripts/check-$check.sh"
        [ "$status" -eq 0 ] || fail_with "check-$check.sh"
    done
}

@test "an include that goes up is caught, in subfolders as well" {
    printf '#include "api/rpc.h"\n' >guest/proc/spawn.c
    caught layers 'guest/proc/spawn.c: #include "api/rpc.h": guest/api is not below guest/proc'
    rm guest/proc/spawn.c
    printf '#include "lib/box/store.h"\n' >host-client/lib/provider/oci/bundle.c
    caught layers 'host-client/lib/box is not below host-client/lib/provider'
}

@test "an include of a neighbour is caught between dialects and between providers" {
    printf '#include "dialect/e2b/proto.h"\n' >guest/dialect/mcp/tools.c
    caught layers 'guest/dialect/mcp/tools.c'
    rm guest/dialect/mcp/tools.c
    printf '#include "lib/provider/oci/bundle.h"\n' >host-client/lib/provider/vm/disk.c
    caught layers 'host-client/lib/provider/vm/disk.c'
}

@test "a library outside of its layer is caught" {
    printf '#include <microhttpd.h>\n' >guest/api/exec/run.c
    caught layers 'this library is seen in'
    rm guest/api/exec/run.c
    printf '#include <jansson.h>\n' >guest/http/respond.c
    caught layers 'guest/http/respond.c'
    rm guest/http/respond.c
    printf '#include <curl/curl.h>\n' >host-client/cli/main.c
    caught layers 'host-client/cli/main.c'
}

@test "a folder without a rule of its own is caught" {
    mkdir guest/extra
    printf '#include "common/err.h"\n' >guest/extra/thing.c
    caught layers 'guest/extra/thing.c'
}

@test "a static of one word is caught, functions and variables" {
    printf 'static int commit(int fd)\n{\n}\n' >guest/proc/spawn.c
    caught names 'guest/proc/spawn.c:1: one-word static "commit"'
    printf 'static const struct option\n    options[] = {{0}};\n' >guest/proc/spawn.c
    caught names 'guest/proc/spawn.c:1: one-word static "options"'
    printf 'static inline bool usable(int x) { return x; }\n' >guest/proc/spawn.h
    caught names 'guest/proc/spawn.h:1: one-word static "usable"'
}

@test "a name that two statics of one folder share is caught" {
    printf 'static void pool_start(int n)\n{\n}\n' >guest/event/loop.c
    caught names 'guest/event/pool.c:2: static "pool_start" is also at guest/event/loop.c:1'
    # Another folder may have it.
    mv guest/event/loop.c guest/proc/loop.c
    run scripts/check-names.sh
    [ "$status" -eq 0 ]
}

@test "a comment that starts with a headless word is caught, wherever it stands" {
    for word in What Who Those That Which; do
        printf '/* %s comes in is kept. */\n' "$word" >guest/proc/spawn.c
        caught names "guest/proc/spawn.c:1: comment starts with \"$word\""
    done
    printf 'int x;\n/*\n * What comes in is kept.\n */\n' >guest/proc/spawn.c
    caught names 'guest/proc/spawn.c:3: comment starts with "What"'
    printf 'int x; /* what is left */\n' >guest/proc/spawn.c
    caught names 'guest/proc/spawn.c:1: comment starts with "what"'
    rm guest/proc/spawn.c
    printf '#!/bin/sh\n# Those who wait go first.\n' >scripts/wait.sh
    caught names 'scripts/wait.sh:2: comment starts with "Those"'
    rm scripts/wait.sh
    printf 'def f():\n    """Which one it was."""\n' >tests/unit/helper.py
    caught names 'tests/unit/helper.py:2: comment starts with "Which"'
    # The word may stand within a comment.
    printf '# Keeps what comes in,\n# which is little.\n' >tests/unit/helper.py
    run scripts/check-names.sh
    [ "$status" -eq 0 ] || fail_with 'a false finding'
}

@test "a base name that two files of one program share is caught" {
    touch guest/proc/pool.c
    caught names 'base name "pool"'
    rm guest/proc/pool.c
    touch host-client/lib/util/store.c host-client/lib/box/store.h
    caught names 'base name "store"'
    rm host-client/lib/util/store.c host-client/lib/box/store.h
    # The same role in sibling folders; the agent's file and the command's; a file and its header.
    touch host-client/lib/provider/oci/exec.c host-client/lib/provider/vm/exec.c guest/dialect/e2b/files.c \
        guest/dialect/mcp/files.c guest/proc/exec.h guest/api/exec/run.c host-client/cli/run.c
    run scripts/check-names.sh
    [ "$status" -eq 0 ] || fail_with 'a false finding'
    # A sibling's name is not free for others.
    touch host-client/lib/util/exec.c
    caught names 'base name "exec"'
}

@test "check-names.sh with a folder prints that folder's findings only" {
    printf 'static int commit(void);\n' >guest/proc/spawn.c
    printf 'static int rollback(void);\n' >guest/http/respond.c
    run scripts/check-names.sh guest/http
    [[ "$output" == *rollback* && "$output" != *commit* ]]
}

@test "a document's line of more than 120 columns is caught, a table's row too" {
    printf '| a | %0113d |\n' 1 >docs/page.md
    caught docs 'docs/page.md:1: 121 columns'
    # Columns are characters.
    printf '%059d%s\n' 1 "$(printf 'ä%.0s' {1..61})" >docs/page.md
    run scripts/check-docs.sh
    [ "$status" -eq 0 ] || fail_with 'bytes were counted'
}

@test "prose in a table's cell is caught" {
    printf '| a | b |\n|---|---|\n| x | It has one sentence. It has another one. |\n' >docs/page.md
    caught docs 'docs/page.md:3: prose in a table'
}

@test "a man page that mandoc warns of is caught" {
    mkdir docs/man
    printf '.TH X 1 2026-11-23\n.SH NAME\nx \\- y\n.SH DESCRIPTION\n.fi\nz\n' >docs/man/x.1
    caught docs 'docs/man/x.1'
}
