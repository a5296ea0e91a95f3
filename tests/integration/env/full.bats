#!/usr/bin/env bats
# Run by environments.bats with TMPDIR/at a disk of 4 MB.

load ../../lib/agent

setup()
{
    start_agent --workdir /
    AT=$TMPDIR/at
    IN=$AGENT_DIR/in
    head -c 3000000 /dev/urandom >"$IN"
}
teardown() { stop_agents; }

# Prints everything in the tree, except times of directories.
snapshot() { (cd "$AT" && find . -printf '%p %y %m %s\n' | grep -v lost+found | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

@test "a full disk refuses by name, changes nothing, leaves nothing, and works again" {
    local before name

    mkdir "$AT/d"
    echo old >"$AT/f"
    seq 30000 >"$AT/d/text"
    cp "$IN" "$AT/big"
    mkdir "$AGENT_DIR/tree"
    cp "$IN" "$AGENT_DIR/tree/one"
    tar -C "$AGENT_DIR/tree" -cf "$AGENT_DIR/tree.tar" one
    before=$(snapshot)

    [ "$(agent_status "/v1/files/$AT/f" -T "$IN")" = 507 ]
    [ "$(agent_status "/v1/files/$AT/new" -T - <"$IN")" = 507 ]
    [ "$(agent_status "/v1/archive?path=$AT/d" -T "$AGENT_DIR/tree.tar")" = 507 ]
    [ "$(agent_status "/v1/archive?path=$AT/d&mode=replace" -T "$AGENT_DIR/tree.tar")" = 507 ]
    for name in big d; do
        rpc Fs/Copy "{\"from\":\"$AGENT_DIR/tree\",\"to\":\"$AT/copy\",\"recursive\":true}" |
            jq -e '.code == "resource_exhausted"'
    done
    rpc Fs/Copy "{\"from\":\"$AT/big\",\"to\":\"$AT/d/text\",\"overwrite\":true}" |
        jq -e '.code == "resource_exhausted"'
    rpc Fs/Move "{\"from\":\"$AGENT_DIR/tree\",\"to\":\"$AT/tree\"}" | jq -e '.code == "resource_exhausted"'
    rpc Fs/Move "{\"from\":\"$AGENT_DIR/tree/one\",\"to\":\"$AT/f\",\"overwrite\":true}" |
        jq -e '.code == "resource_exhausted"'
    [ -e "$AGENT_DIR/tree/one" ]
    jq -n --arg path "$AT/f" --rawfile text <(head -c 1500000 "$IN" | base64) \
        '{path: $path, edits: [{old: {text: "old"}, new: {text: $text}}]}' >"$AGENT_DIR/edit"
    agent_curl /bellhop.v1.Fs/Edit -H 'Content-Type: application/json' --data-binary "@$AGENT_DIR/edit" |
        jq -e '.code == "resource_exhausted"'

    [ "$(snapshot)" = "$before" ] || fail "it is not as it was: $(diff <(snapshot) <(echo "$before"))"
    # Operations that need no space still work.
    rpc Fs/Move "{\"from\":\"$AT/f\",\"to\":\"$AT/g\"}" | jq -e '. == {}'
    rpc Fs/Remove "{\"path\":\"$AT/big\"}" | jq -e '.removed == 1'
    [ "$(agent_status "/v1/files/$AT/new" -T "$IN")" = 201 ]
    cmp "$IN" "$AT/new"
    [ -z "$(find "$AT" -name '.bellhop*')" ]
}
