# early
# The real pi in a box, spoken to over its pipes, with a fake model: a prompt that no terminal line
# would hold, a tool call, and the same session after stop and start.
# needs: image network

load ../lib/box
load ../lib/node
load ../lib/coding
bats_require_minimum_version 1.5.0

PROMPT_BYTES=200000

setup()
{
    box_setup
    PROJECT=$BOX_TMP/project
    make_dirty_project "$PROJECT"
    CONFIG=$BOX_TMP/config/.pi
    mkdir -p "$CONFIG/agent" "$CONFIG/extensions" "$BOX_TMP/got"
    make_pi_config "$CONFIG"
    (umask 077 && echo '{"fake": {"type": "api_key", "key": "sk-from-auth"}}' \
        >"$CONFIG/agent/auth.json")
    echo 'You are the system prompt of the test.' >"$CONFIG/SYSTEM.md"
    cat >"$CONFIG/extensions/mark.ts" <<'EXTENSION'
export default function (pi) {
    pi.registerCommand("mark-of-the-test", { description: "there", handler: async () => {} });
}
EXTENSION
}
teardown() { box_teardown; }

up() # NAME [OPTION...]
{
    local name=$1

    shift
    bellhop up --name "$name" --provider "$TEST_PROVIDER" --agent pi \
        --agent-config "$BOX_TMP/config" --json "$@" "$PROJECT" >"$BOX_TMP/up.json"
    BOX_DIR=$BELLHOP_STATE_DIR/boxes/$(jq -r .id "$BOX_TMP/up.json")
    SOCKET=$(jq -r .guest.socket "$BOX_TMP/up.json")
}

# prompt FILE: the answer as JSON in $BOX_TMP/said.
prompt()
{
    mkdir -p "$NODE_DIR"
    run_node "$BATS_TEST_DIRNAME/pi_client.mjs" "$SOCKET" "$(cat "$BOX_DIR/token")" "$1" \
        >"$BOX_TMP/said"
}

said()
{
    jq -r "$1" "$BOX_TMP/said"
}

@test "pi takes a prompt of 200 kB, calls a tool, and is in the same session after stop and start" {
    up main
    remember_box main
    session=$(jq -r .session "$BOX_DIR/agent.json")
    [ -n "$session" ]
    start_fake main

    head -c $((PROMPT_BYTES / 2)) /dev/zero | tr '\0' x >"$BOX_TMP/prompt"
    yes 'a line, and “quotes”' | head -c $((PROMPT_BYTES / 2)) | iconv -c -t UTF-8 >>"$BOX_TMP/prompt"
    prompt "$BOX_TMP/prompt"
    [ "$(said .accepted)" = true ]
    [ "$(said .answer)" = "$(python3 -c 'import hashlib, sys
text = open(sys.argv[1], encoding="utf-8").read()
print("RECEIVED", len(text), hashlib.sha256(text.encode()).hexdigest())' "$BOX_TMP/prompt")" ]
    [ "$(said .session)" = "$session" ]

    echo 'RUN: printf tool-call >>changed.txt' >"$BOX_TMP/prompt"
    prompt "$BOX_TMP/prompt"
    [ "$(said ".tools | tojson")" = '[["bash",false]]' ]
    bellhop get main ":$(bellhop exec -n main -- pwd)/changed.txt" "$BOX_TMP/got"
    [ "$(cat "$BOX_TMP/got/changed.txt")" = "$(printf 'changed\ntool-call')" ]
    before=$(said .messages)

    bellhop stop main
    bellhop start main
    [ "$(jq -r .session "$BOX_DIR/agent.json")" = "$session" ]
    SOCKET=$(bellhop status main --json | jq -r .guest.socket)
    start_fake main
    echo 'still there?' >"$BOX_TMP/prompt"
    prompt "$BOX_TMP/prompt"
    [ "$(said .session)" = "$session" ]
    [ "$(said .messages)" -gt "$before" ]

    bellhop rm main
    nothing_is_left
}

@test "pi gets its five configuration files, and needs no network to be installed" {
    up files --network none
    remember_box files
    start_fake files
    echo 'hello' >"$BOX_TMP/prompt"
    prompt "$BOX_TMP/prompt"
    bellhop get files :/tmp/fake/record "$BOX_TMP/got"
    record=$BOX_TMP/got/record
    [ "$(jq -r .request.model "$record")" = fake ]
    [ "$(jq -r .authorization "$record")" = "Bearer sk-from-auth" ]
    jq -r '.request.messages[0].content' "$record" | grep -q 'You are the system prompt of the test'
    bellhop exec -n files -- sh -c 'stat -c %a ~/.pi/agent/auth.json' | grep -qx 600
    bellhop exec -n files -- sh -c 'test -s ~/.pi/agent/extensions/mark.ts'
    # `up` on a terminal explains how to talk to pi.
    run bellhop up --name files --provider "$TEST_PROVIDER" --agent pi "$PROJECT"
    [ "$status" -eq 0 ]
    [[ "$output" == *'JSON lines: {"type":"prompt","message":"hello"}'* ]]
    [[ "$output" == *"bellhop attach -i -n files agent "* ]]
}

@test "a session that is gone is answered with a new one" {
    up lost
    remember_box lost
    bellhop stop lost
    jq '.session = "00000000-0000-7000-8000-000000000000"' "$BOX_DIR/agent.json" >"$BOX_TMP/agent.json"
    cat "$BOX_TMP/agent.json" >"$BOX_DIR/agent.json"
    bellhop start lost
    session=$(jq -r .session "$BOX_DIR/agent.json")
    [ -n "$session" ]
    [ "$session" != 00000000-0000-7000-8000-000000000000 ]
}

@test "pi that is killed comes back by itself in its session" {
    up killed
    remember_box killed
    start_fake killed
    echo 'remember this' >"$BOX_TMP/prompt"
    prompt "$BOX_TMP/prompt"
    session=$(said .session)
    pid=$(bellhop exec -n killed -- pgrep -x pi | head -n 1)
    bellhop exec -n killed -- kill -9 "$pid"
    wait_for 120 sh -c "[ \"\$('$BELLHOP' exec -n killed -- pgrep -x pi | head -n 1)\" != '$pid' ]"
    wait_for 120 bellhop exec -n killed -- pgrep -x pi
    echo 'and now?' >"$BOX_TMP/prompt"
    prompt "$BOX_TMP/prompt"
    [ "$(said .session)" = "$session" ]
}
