#!/usr/bin/env bats
# The claims of the tree's texts about the tree: names, links, tests, targets, metrics, man pages.

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

# page_fields PAGE: the words in bold that begin its entries, options and names of fields.
page_fields()
{
    sed -n '/^\.TP/ { n; s/^\.B //p }' "$BATS_TEST_DIRNAME/../../docs/man/$1" | sed 's/\\fR, \\fB/\n/' | sort -u
}

@test "e2b.toml(5) has the fields that are read, and no others" {
    cd "$BATS_TEST_DIRNAME/../.."
    sed -n -e 's/^ *\(TEXT\|NUMBER\|LIST\)("\([a-z_.]*\)".*/\2/p' -e 's/^ *{\.key = "\([a-z_.]*\)".*/\1/p' \
        host-client/lib/image/template.c | sed 's/^bellhop\.//' | sort -u >"$BATS_TEST_TMPDIR/read"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/read")" -gt 20 ]
    diff <(page_fields e2b.toml.5) "$BATS_TEST_TMPDIR/read"
}

@test "bellhop-recipe(5) has the fields of the schema, and no others" {
    cd "$BATS_TEST_DIRNAME/../.."
    # Members of an object are named with it; entries of a list have no path of their own.
    jq -r '.properties | to_entries[] | .key as $k | if .value.properties then .value.properties | keys[] | "\($k).\(.)"
        else $k end' bootstrap/schema.json | grep -v '^files$' | sort -u >"$BATS_TEST_TMPDIR/schema"
    diff <(page_fields bellhop-recipe.5) "$BATS_TEST_TMPDIR/schema"
    grep -q '^\.SS files' docs/man/bellhop-recipe.5
}

@test "libbellhop(3) has every function of the header" {
    cd "$BATS_TEST_DIRNAME/../.."
    grep -oE '\bbh_[a-z0-9_]+\(' host-client/include/bellhop/bellhop.h | sort -u >"$BATS_TEST_TMPDIR/header"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/header")" -gt 60 ]
    grep -oE '\bbh_[a-z0-9_]+\(' docs/man/libbellhop.3 | sort -u | comm -13 - "$BATS_TEST_TMPDIR/header" >"$BATS_TEST_TMPDIR/missing"
    [ ! -s "$BATS_TEST_TMPDIR/missing" ] || fail "$(cat "$BATS_TEST_TMPDIR/missing")"
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
