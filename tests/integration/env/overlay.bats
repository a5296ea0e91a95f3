#!/usr/bin/env bats
# Run by environments.bats with ../at an overlay whose lower layer has three trees.

load ../../lib/agent

setup()
{
    start_agent --workdir /
    AT=$TMPDIR/at
}
teardown() { stop_agents; }

@test "what lies in the lower layer is moved, copied, edited, watched and removed" {
    local out=$AGENT_DIR/out tag

    curl -sSN -H "Authorization: Bearer $AGENT_TOKEN" -H 'Content-Type: application/json' \
        --data-binary "{\"path\":\"$AT\"}" "$AGENT_URL/bellhop.v1.Fs/Watch" >"$out" &
    wait_until 10 grep -q started "$out"

    # The kernel refuses to rename such a directory (EXDEV).
    if python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$AT/tree" "$AT/x" 2>/dev/null; then
        fail "this overlay renames directories of its lower layer"
    fi
    rpc Fs/Move "{\"from\":\"$AT/tree\",\"to\":\"$AT/moved\"}" | jq -e '. == {}'
    [ ! -e "$AT/tree" ]
    [ "$(cat "$AT/moved/sub/deep/f")" = lower ]
    [ "$(readlink "$AT/moved/link")" = sub ]
    [ "$AT/moved/hard" -ef "$AT/moved/sub/deep/f" ]
    is_told() { grep -q "\"path\":\"$AT/moved/sub/deep/f\"" "$out"; }
    wait_until 10 is_told

    rpc Fs/Copy "{\"from\":\"$AT/tree2\",\"to\":\"$AT/copy\",\"recursive\":true}" | jq -e '.entries == 3'
    diff -r "$AT/tree2" "$AT/copy"
    rpc Fs/Edit "{\"path\":\"$AT/tree2/sub/f\",\"edits\":[{\"old\":{\"text\":\"lower\"},\"new\":{\"text\":\"upper\"}}]}" |
        jq -e '.replaced == 1'
    [ "$(cat "$AT/tree2/sub/f")" = upper ]
    tag=$(rpc Fs/Stat "{\"path\":\"$AT/tree3/f\",\"etag\":true}" | jq -r .etag)
    [ "$(agent_status "/v1/files/$AT/tree3/f" -X PUT --data-binary x -H "If-Match: \"$tag\"")" = 200 ]
    [ "$(agent_status "/v1/files/$AT/tree3/f" -X PUT --data-binary y -H "If-Match: \"$tag\"")" = 412 ]
    rpc Fs/Remove "{\"path\":\"$AT/tree3\",\"recursive\":true}" | jq -e '.removed == 2'
    echo new >"$BATS_TEST_TMPDIR/replaced"
    tar -C "$BATS_TEST_TMPDIR" -c replaced | agent_curl "/v1/archive?path=$AT/tree2&mode=replace" -T - | jq -e .entries
    [ "$(ls -A "$AT/tree2")" = replaced ]
    [ -z "$(find "$AT" -name '.bellhop*')" ]
}
