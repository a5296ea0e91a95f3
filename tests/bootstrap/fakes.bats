# The fakes against the official clients of what they fake. The recorded exchange is kept below: the
# client must make of the fake's answers what it makes of the real API's.
# needs: network

load ../lib/node

OPENAI=7.57.0

setup()
{
    FAKE_TMP=$(mktemp -d)
    mkfifo "$FAKE_TMP/ready"
    python3 "$NODE_ROOT/tests/fakes/openai.py" --ready "$FAKE_TMP/ready" \
        --record "$FAKE_TMP/record" 3>&- &
    FAKE_PID=$!
    read -r FAKE_PORT <"$FAKE_TMP/ready"
}

teardown()
{
    kill "$FAKE_PID" 2>/dev/null || true
    wait "$FAKE_PID" 2>/dev/null || true
    rm -rf "$FAKE_TMP"
}

@test "the official openai client understands the fake" {
    npm_package openai "$OPENAI"
    run_node "$NODE_ROOT/tests/fakes/openai_client.mjs" "$FAKE_PORT" >"$FAKE_TMP/out"
    diff <(jq -S . "$FAKE_TMP/out") <(jq -S . <<'EXPECTED'
{
  "models": ["fake"],
  "plain": "RECEIVED 5 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
  "finish": "stop",
  "call": "bash",
  "command": "echo hi",
  "call_finish": "tool_calls",
  "has_usage": true,
  "done": "DONE hi",
  "refused": ["BadRequestError", 400]
}
EXPECTED
    )
}

@test "the fake records what the client sent" {
    npm_package openai "$OPENAI"
    run_node "$NODE_ROOT/tests/fakes/openai_client.mjs" "$FAKE_PORT" >/dev/null
    [ "$(jq -r .authorization "$FAKE_TMP/record" | sort -u)" = "Bearer sk-test" ]
    diff <(jq -S -c '[.request.stream // false, [.request.messages[].role], .text // .call]' \
        "$FAKE_TMP/record") - <<'EXPECTED'
[false,["user"],"RECEIVED 5 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"]
[true,["user"],"echo hi"]
[true,["user","assistant","tool"],"DONE hi"]
EXPECTED
}
