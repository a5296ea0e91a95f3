#!/usr/bin/env bats
# What the texts of the tree say of the tree: names, links, tests, targets, metrics.

load ../lib/agent

teardown() { stop_agents; }

check() { python3 "$BATS_TEST_DIRNAME/../lib/claims.py" "$1"; }

@test "files and functions that comments name are there" { check comments; }

@test "tests that the security model names are there" { check tests; }

@test "links and paths of the documents lead somewhere" { check links; }

@test "make targets that the documents name are there" { check targets; }

@test "operations.md names every metric, and none that is not there" {
    start_agent
    agent_curl /v1/metrics >"$AGENT_DIR/metrics"
    sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' "$AGENT_DIR/metrics" | sort -u >"$AGENT_DIR/there"
    [ "$(wc -l <"$AGENT_DIR/there")" -gt 20 ]
    grep -oE '`(bellhop|process)_[a-z_]+' "$BATS_TEST_DIRNAME/../../docs/operations.md" | tr -d '`' | sort -u >"$AGENT_DIR/named"
    diff "$AGENT_DIR/named" "$AGENT_DIR/there"
}

@test "commands and options that the documents show are there" {
    bellhop=${BELLHOP_BUILD:-$BATS_TEST_DIRNAME/../../build/release}/bellhop
    cd "$BATS_TEST_DIRNAME/../.."
    # A line of shell that begins with bellhop, or a code span that does: its command and its long options.
    git ls-files 'README.md' 'docs/*.md' '*/README.md' | grep -v '^tests/' | xargs grep -hoE \
        '(^|`|\| |; |\$\()(sudo )?bellhop [a-z][a-z-]+[^`|;#)]*' | sed -E 's/^[^b]*(sudo )?bellhop //' |
        sort -u >"$BATS_TEST_TMPDIR/shown"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/shown")" -gt 30 ]
    while read -r command rest; do
        "$bellhop" help "$command" >"$BATS_TEST_TMPDIR/help" || fail "no command: $command $rest"
        for option in $(sed 's/ -- .*//' <<<"$rest" | grep -oE -- '(^| )--[a-z][a-z-]+' || true); do
            grep -qE -- "(^|[ ,])$option( |\$)" "$BATS_TEST_TMPDIR/help" || fail "$command has no $option"
        done
    done <"$BATS_TEST_TMPDIR/shown"
}

@test "without the token there is what protocol-http.md says, and nothing else" {
    start_agent
    agent_curl /v1/openapi.json | jq -r '.paths | to_entries[] | .key as $p | .value | keys[] | ascii_upcase + " " + $p' |
        grep -E '^(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) ' >"$AGENT_DIR/routes"
    printf '%s\n' 'GET /metrics' 'GET /envs' 'POST /init' 'GET /files' 'POST /files' 'POST /files/compose' \
        'POST /process.Process/List' 'POST /filesystem.Filesystem/ListDir' >>"$AGENT_DIR/routes"
    [ "$(wc -l <"$AGENT_DIR/routes")" -gt 50 ]
    while read -r verb path; do
        path=$(sed 's/{[a-z]*}/1/g' <<<"$path")
        how=(-X "$verb")
        [ "$verb" != HEAD ] || how=(-I)
        status=$(curl -s -o /dev/null -w '%{http_code}' --max-time 60 "${how[@]}" "$AGENT_URL$path")
        expected=401
        [ "$path" != /v1/health ] || expected=200
        [ "$status" = "$expected" ] || fail "$verb $path: $status"
    done <"$AGENT_DIR/routes"
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$AGENT_URL/health")" = 204 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$AGENT_URL/nothing")" = 404 ]
}
