# early
# The real opencode in a box, on a dirty git tree, with a fake model: from `up` to nothing left.
# needs: image network

load ../lib/box
load ../lib/node
load ../lib/coding
bats_require_minimum_version 1.5.0

SDK=1.18.33

setup()
{
    box_setup
    PROJECT=$BOX_TMP/project
    make_dirty_project "$PROJECT"
    mkdir "$BOX_TMP/got"
    make_opencode_config "$BOX_TMP/config"
}
teardown() { box_teardown; }

up() # NAME [OPTION...]
{
    local name=$1

    shift
    bellhop up --name "$name" --provider "$TEST_PROVIDER" --agent opencode \
        --agent-config "$BOX_TMP/config" --json "$@" "$PROJECT" >"$BOX_TMP/up.json"
    URL=$(jq -r .agent.url "$BOX_TMP/up.json")
    PASSWORD=$(jq -r .agent.password "$BOX_TMP/up.json")
}

ask() # METHOD PATH [JSON]
{
    curl -sS --fail-with-body --max-time "${ASK_S:-180}" -u "opencode:$PASSWORD" -X "$1" "$URL$2" \
        -H 'Content-Type: application/json' ${3:+--data-binary "$3"}
}

# For polling: while it starts, opencode takes connections whose first request it never answers.
is_healthy() { ASK_S=3 ask GET /global/health; }

@test "opencode works on a dirty tree in a box without a network: prompt, tool call, file, rm" {
    up main --network none
    remember_box main
    [ "$(jq -r .agent.name "$BOX_TMP/up.json")" = opencode ]
    [ "$(bellhop exec -n main -- git status --porcelain)" = "$(git -C "$PROJECT" status --porcelain)" ]
    run ! bellhop exec -n main -- test -e build/ignored.o

    start_fake main
    session=$(ask POST /session '{"title":"t"}' | jq -r .id)
    ask POST "/session/$session/message" '{"model":{"providerID":"fake","modelID":"fake"},
        "parts":[{"type":"text","text":"RUN: printf tool-call >>changed.txt"}]}' >"$BOX_TMP/answer"
    [ "$(jq -r '[.parts[] | select(.type == "text") | .text] | join("")' "$BOX_TMP/answer")" != "" ]

    workdir=$(bellhop exec -n main -- pwd)
    bellhop get main ":$workdir/changed.txt" "$BOX_TMP/got"
    [ "$(cat "$BOX_TMP/got/changed.txt")" = "$(printf 'changed\ntool-call')" ]
    [ "$(cat "$PROJECT/changed.txt")" = changed ]

    bellhop rm main
    nothing_is_left
}

@test "the official sdk, unmodified, uses the printed URL and password" {
    npm_package @opencode-ai/sdk "$SDK"
    up sdk
    remember_box sdk
    start_fake sdk
    run_node "$BATS_TEST_DIRNAME/opencode_client.mjs" "$URL" "$PASSWORD" \
        "$(bellhop exec -n sdk -- pwd)" >"$BOX_TMP/out"
    diff <(jq -S . "$BOX_TMP/out") <(jq -S . <<'EXPECTED'
{
  "session": true,
  "answer": "DONE (no output)",
  "tools": [["bash", "completed", "echo from the model >made.txt"]],
  "shell": "shell says 42",
  "file": "from the model",
  "events": true
}
EXPECTED
    )
}

@test "opencode's server asks for its password, which is this box's and stands nowhere else" {
    up guarded
    remember_box guarded
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$URL/global/health")" = 401 ]
    [ "$(ask GET /global/health | jq -r .healthy)" = true ]
    [ "$(stat -c %a "$BELLHOP_STATE_DIR"/boxes/*/agent-password)" = 600 ]
    run ! grep -rqF --exclude=agent-password --exclude=agent-start.json "$PASSWORD" \
        "$BELLHOP_STATE_DIR" --exclude-dir=root --exclude-dir=upper
    run ! grep -rlzqF "$PASSWORD" /proc/[0-9]*/cmdline
}

@test "up again finds opencode well and changes nothing" {
    up again
    remember_box again
    before=$(bellhop exec -n again -- pgrep -x opencode)
    up again
    [ "$(bellhop exec -n again -- pgrep -x opencode)" = "$before" ]
    [ "$(ask GET /global/health | jq -r .healthy)" = true ]
}

@test "opencode that is killed comes back by itself, and again after stop and start" {
    up back
    remember_box back
    bellhop exec -n back -- pkill -9 -x opencode
    wait_for 180 is_healthy

    password=$PASSWORD
    bellhop stop back
    up back
    [ "$PASSWORD" = "$password" ]
    [ "$(ask GET /global/health | jq -r .healthy)" = true ]
}
