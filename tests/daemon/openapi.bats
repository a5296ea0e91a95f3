#!/usr/bin/env bats
# The daemon's OpenAPI document: made of routes.def, valid, and true. tests/lib/check-answers.py checks the answers of the
# other daemon tests against it.

bats_require_minimum_version 1.5.0
load ../lib/box
load ../lib/daemon
load ../lib/venv

setup()
{
    box_setup
    daemon_start
    ask GET /v1/openapi.json >"$BOX_TMP/openapi.json"
}

teardown()
{
    daemon_stop
    box_teardown
}

# The verb, path and macro of each row of routes.def.
rows()
{
    sed -n 's/^\([RJQG]\)(\([A-Z_ |]*\), "\([^"]*\)".*/\1 \2 \3/p' "$BATS_TEST_DIRNAME/../../host-client/daemon/routes.def" |
        sed 's/VERB_//g; s/ | /|/g; s/\.\.\.}/}/'
}

@test "every row of the table is in the document, and nothing else" {
    rows | sed 's#^G ANY #G GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS #' | while read -r _ verbs path; do
        tr '|' '\n' <<<"$verbs" | sed "s|\$| $path|"
    done | sort -u >"$BOX_TMP/rows"
    [ "$(wc -l <"$BOX_TMP/rows")" -gt 30 ]
    jq -r '.paths | to_entries[] | .key as $p | .value | keys[] | ascii_upcase + " " + $p' "$BOX_TMP/openapi.json" |
        sort -u | diff "$BOX_TMP/rows" -
}

@test "each route of JSON has a schema of its answer, and each that takes a body one of it" {
    rows | while read -r macro verbs path; do
        [ "$macro" != R ] && [ "$macro" != G ] || continue
        verb=$(tr 'A-Z' 'a-z' <<<"$verbs")
        jq -e --arg p "$path" --arg v "$verb" '.paths[$p][$v] |
            ((.responses | del(.default) | length > 0) and (.responses | to_entries | all(.value.description != "see docs/daemon.md")))
            and (($v == "get" or $v == "delete") or has("requestBody"))' "$BOX_TMP/openapi.json" >/dev/null || {
            echo "$verbs $path"
            exit 1
        }
    done
    # No schema is named that is not there.
    jq -e '[.. | objects | .["$ref"]? // empty | sub("#/components/schemas/"; "")] - (.components.schemas | keys) == []' \
        "$BOX_TMP/openapi.json"
}

@test "docs/daemon.md has routes for every command, and each of them is there" {
    table=$(sed -n '/^| command | routes |/,/^$/p' "$BATS_TEST_DIRNAME/../../docs/daemon.md")
    bellhop help | sed -n 's/^  \([a-z-]*\)  *[a-z].*/\1/p' | grep -vx bellhop | sort -u >"$BOX_TMP/commands"
    [ "$(wc -l <"$BOX_TMP/commands")" -gt 40 ]
    cut -d '|' -f 2 <<<"$table" | grep -o '`[a-z-]*`' | tr -d '`' | sort | diff "$BOX_TMP/commands" -
    cut -d '|' -f 3 <<<"$table" | grep -oE '`(GET|POST|PUT|DELETE) [^`]*`' | tr -d '`' | while read -r verb path; do
        jq -e --arg p "${path/.../}" --arg v "$(tr 'A-Z' 'a-z' <<<"$verb")" '.paths[$p] | has($v)' "$BOX_TMP/openapi.json" >/dev/null ||
            { echo "$verb $path" && exit 1; }
    done
    cut -d '|' -f 3 <<<"$table" | grep -o '`rpc/[^`]*`' | tr -d '`' | while IFS=/ read -r _ service method; do
        grep -q "^R(\"$service\", \"$method\"," "$BATS_TEST_DIRNAME/../../guest/common/wire/rpc.def" ||
            { echo "$service $method" && exit 1; }
    done
}

@test "the daemon's document is valid OpenAPI 3.1" {
    python=$(venv_python openapi-spec-validator 0.7.1) || skip "the validator can't be installed"
    [ "$(jq -r .openapi "$BOX_TMP/openapi.json")" = 3.1.0 ]
    "$python" -m openapi_spec_validator "$BOX_TMP/openapi.json"
}

# Left out: what is passed to boxes or never ends, what would make boxes and make or remove images at random, and what this provider cannot.
@test "schemathesis finds nothing in the document's routes" {
    python=$(venv_python schemathesis 4.32.5) || skip "schemathesis can't be installed"
    daemon_stop
    daemon_start --listen 127.0.0.1:0
    bellhop up --empty --provider process --agent none --name one >/dev/null 2>&1
    token=$(bellhop token create --scope admin --name schemathesis | tail -1)
    cd "$BOX_TMP" # it writes a directory of its own
    "${python%/python}/schemathesis" run "$BOX_TMP/openapi.json" --url "http://$(jq -r '.tcp | if type == "array" then .[0] else . end' <<<"$DAEMON_READY")" \
        -H "Authorization: Bearer $token" --phases coverage,fuzzing -n 5 --seed 1 --no-color --request-timeout 60 \
        --exclude-path-regex '/(events|terminal|proxy|rpc|tunnel|files|uploads|archive|fs|build|snapshots|fork)|^/page|^/$|^/code|/gc$|/images/|/attach$' \
        --exclude-operation-id "POST /v1/boxes" --exclude-checks positive_data_acceptance >"$BOX_TMP/found" 2>&1 || {
        grep -v '^    ' "$BOX_TMP/found" | tail -60
        return 1
    }
}
