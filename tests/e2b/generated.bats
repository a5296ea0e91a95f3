#!/usr/bin/env bats
# E2B's services in protobuf, by a client generated of their messages: Connect's own.
# needs: image network

load ../lib/e2b

teardown()
{
    stop_agents
}

@test "e2b: a generated Connect client drives both services in protobuf" {
    start_e2b
    protoc-c --proto_path="$BATS_TEST_DIRNAME" --descriptor_set_out="$AGENT_DIR/descriptors" \
        generated.proto generated_files.proto
    NODE_DIR=$NODE_ROOT/build/cache/node-connect-2.1.2
    mkdir -p "$NODE_DIR"
    (flock 9 && npm_package @bufbuild/protobuf 2.12.1 && npm_package @connectrpc/connect 2.1.2 &&
        npm_package @connectrpc/connect-node 2.1.2) 9>"$NODE_DIR.lock"
    cp "$BATS_TEST_DIRNAME/generated.mjs" "$NODE_DIR/"
    E2B_SANDBOX_URL=$AGENT_URL timeout 300 "$(node_program)" "$NODE_DIR/generated.mjs" "$AGENT_DIR/descriptors" 3>&-
}

@test "e2b: what is no protobuf is refused, and errors stay JSON" {
    local url

    start_e2b
    url=$AGENT_URL/process.Process
    post()
    {
        printf '%b' "$2" | curl -sS --max-time 120 -D "$AGENT_DIR/head" -H "Content-Type: application/$3" \
            --data-binary @- "$url/$1"
    }
    [ -z "$(post List '' proto)" ]
    grep -qi '^content-type: application/proto' "$AGENT_DIR/head"
    [ "$(post CloseStdin '\x0a\xff' proto | jq -r .code)" = invalid_argument ]
    [ "$(post CloseStdin '\x0a\x04\x08\xff\xff\x03' proto | jq -r .message)" = 'process with pid 65535 not found' ]
    post Start '\0\0\0\0\x02\x0a\xff' connect+proto | tail -c +6 | jq -e '.error.code == "invalid_argument"'
    grep -qi '^content-type: application/connect+proto' "$AGENT_DIR/head"
    # A NUL in a text: CloseStdin's tag, Start's cmd and an environment's value, Stat's path.
    post CloseStdin '\x0a\x05\x12\x03a\0b' proto | jq -e '.code == "invalid_argument" and .message == "'"'tag' has a NUL in it"'"'
    post Start '\0\0\0\0\x07\x0a\x05\x0a\x03l\0s' connect+proto | tail -c +6 |
        jq -e '.error.code == "invalid_argument" and (.error.message | startswith("'"'cmd'"'"))'
    post Start '\0\0\0\0\x0d\x0a\x0b\x1a\x09\x0a\x01A\x12\x04x\0yz' connect+proto | tail -c +6 |
        jq -e '.error.code == "invalid_argument" and (.error.message | startswith("'"'value'"'"))'
    post ../filesystem.Filesystem/Stat '\x0a\x04/\0ab' proto | jq -e '.message | startswith("'"'path'"'")'
    post Start '\0\0\0\0\x06\x0a\x04\x0a\x02\xff\xfe' connect+proto | tail -c +6 |
        jq -e '.error.code == "invalid_argument" and (.error.message | test("UTF-8"))'
}
