# early
# The life of a box with the real opencode and the real pi in it, and a fake model: prompts before and after pause and
# resume, stop and start, and in a new box from a snapshot belong to one session, and after rm nothing is left.
# needs: image network

load ../lib/box
load ../lib/node
load ../lib/coding
bats_require_minimum_version 1.5.0

setup()
{
    box_setup
    make_dirty_project "$BOX_TMP/project"
    make_opencode_config "$BOX_TMP/opencode"
    make_pi_config "$BOX_TMP/pi/.pi"
    PROMPTS=()
}
teardown() { box_teardown; }

up() # AGENT BOX [OPTION...]
{
    bellhop up --name "$2" --provider "$TEST_PROVIDER" --agent "$1" --agent-config "$BOX_TMP/$1" --json "${@:3}" \
        >"$BOX_TMP/up.json"
    remember_box "$2"
}

info() # BOX FILTER
{
    bellhop status "$1" --no-resume --json | jq -r "$2"
}

# A request of an HTTP client, with the URL that `status` has now.
ask() # BOX METHOD PATH [JSON]
{
    curl -sS --fail-with-body --max-time 180 -u "opencode:$(jq -r .agent.password "$BOX_TMP/up.json")" -X "$2" \
        "$(info "$1" .agent.url)$3" -H 'Content-Type: application/json' ${4:+--data-binary "$4"}
}

prompt_opencode() # BOX TEXT
{
    SESSION=${SESSION:-$(ask "$1" POST /session '{"title":"t"}' | jq -r .id)}
    ask "$1" POST "/session/$SESSION/message" "$(jq -n --arg text "$2" \
        '{model: {providerID: "fake", modelID: "fake"}, parts: [{type: "text", text: $text}]}')" |
        jq -r '[.parts[] | select(.type == "text") | .text] | join("")'
}

prompt_pi() # BOX TEXT
{
    mkdir -p "$NODE_DIR"
    echo "$2" >"$BOX_TMP/prompt"
    run_node "$BATS_TEST_DIRNAME/pi_client.mjs" "$(info "$1" .guest.socket)" \
        "$(cat "$BELLHOP_STATE_DIR/boxes/$(info "$1" .id)/token")" "$BOX_TMP/prompt" >"$BOX_TMP/said"
    SESSION=${SESSION:-$(jq -r .session "$BOX_TMP/said")}
    [ "$(jq -r .session "$BOX_TMP/said")" = "$SESSION" ]
    jq -r .answer "$BOX_TMP/said"
}

# prompt AGENT BOX: one more prompt is answered, by a model that is told all prompts of the session so far.
prompt()
{
    local text

    text="prompt number $((${#PROMPTS[@]} + 1)) of $1"
    PROMPTS+=("$text")
    "prompt_$1" "$2" "$text" >"$BOX_TMP/answer" # no subshell: SESSION is kept
    grep -q '^RECEIVED' "$BOX_TMP/answer" || fail "$text: $(cat "$BOX_TMP/answer")"
    bellhop exec -n "$2" -- cat /tmp/fake/record >"$BOX_TMP/record"
    jq -es '[.[].request.messages | tostring] | any(. as $said | $ARGS.positional | all(. as $one | $said | contains($one)))' \
        "$BOX_TMP/record" --args "${PROMPTS[@]}" >/dev/null || fail "the model was not told: ${PROMPTS[*]}"
}

# The steps that the boxes of a provider can take; a snapshot is the last one.
STEPS=${TEST_STEPS:-pause stop snapshot}

# BOX lives through a step with its session.
live_through_pause() # AGENT
{
    bellhop pause "$BOX"
    [ "$(info "$BOX" .state)" = paused ]
    bellhop resume "$BOX"
}

live_through_stop() # AGENT
{
    bellhop stop "$BOX"
    bellhop start "$BOX"
    start_fake "$BOX"
}

live_through_snapshot() # AGENT
{
    bellhop snapshot "$BOX" --name kept
    bellhop rm "$BOX"
    BOX=again
    bellhop up --from kept --name "$BOX" --json >"$BOX_TMP/up.json"
    remember_box "$BOX"
    [ "$(info "$BOX" .agent.name)" = "$1" ]
    start_fake "$BOX"
}

work_through_life() # AGENT
{
    local step

    BOX=main
    up "$1" "$BOX" "$BOX_TMP/project"
    start_fake "$BOX"
    prompt "$1" "$BOX"
    for step in $STEPS; do
        "live_through_$step" "$1"
        prompt "$1" "$BOX"
    done
}

end_life()
{
    bellhop rm "$BOX"
    [[ " $STEPS " != *' snapshot '* ]] || bellhop snapshots rm kept
    nothing_is_left
    bellhop gc
    [ -z "$(ls "$BELLHOP_STATE_DIR/snapshots/layers" 2>/dev/null)" ]
}

# count_opencode_prompts N: its session has them.
count_opencode_prompts()
{
    [ "$(ask "$BOX" GET "/session/$SESSION/message" | jq '[.[] | select(.info.role == "user")] | length')" -eq "$1" ]
}

@test "opencode keeps its session through pause, stop and a snapshot's new box, and rm leaves nothing" {
    work_through_life opencode
    if [[ " $STEPS " == *' pause '* ]]; then
        bellhop pause "$BOX"
        prompt opencode "$BOX" # the connection resumes the box
    fi
    count_opencode_prompts "${#PROMPTS[@]}"
    end_life
}

@test "pi keeps its session through pause, stop and a snapshot's new box, and rm leaves nothing" {
    work_through_life pi
    end_life
}
