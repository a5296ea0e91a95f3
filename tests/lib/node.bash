# node.bash: other people's clients from npm, unmodified, to run against us. Used by bats files:
#
#   load ../lib/node
#   npm_package openai 6.10.0      # into $NODE_DIR/node_modules
#   run_node script.mjs            # from $NODE_DIR, so that its imports are found
#
# Node is this machine's when it is new enough, else the one of the boxes' image.

NODE_ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
NODE_DIR=$NODE_ROOT/build/test/node/$(basename "$BATS_TEST_FILENAME" .bats)

node_program()
{
    local image=$NODE_ROOT/build/image/tests/rootfs/usr/local

    if [ "$(node -p 'process.versions.node.split(".")[0] >= 20' 2>/dev/null)" = true ]; then
        command -v node
    else
        echo "$image/bin/node"
    fi
}

# node_client ARG...: node as a client of the agent, recorded (tests/lib/wire) as curl and python3 are.
node_client() { ${WIRE_BIN:+"$WIRE_BIN/launch"} "$(node_program)" "$@"; }

npm_command()
{
    local image=$NODE_ROOT/build/image/tests/rootfs/usr/local

    if command -v npm >/dev/null 2>&1; then
        npm "$@"
    else
        # The image's npm has the image's settings; node has its own list of authorities, without
        # those that this machine's owner has added.
        NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt} \
            npm_config_registry=$("$NODE_ROOT/scripts/npm-registry.sh") \
            "$(node_program)" "$image/lib/node_modules/npm/bin/npm-cli.js" "$@"
    fi
}

# npm_package NAME VERSION: installed once a run of the tests.
npm_package()
{
    local done=$NODE_DIR/.${1//\//+}-$2

    [ -e "$done" ] && return 0
    [ -z "${TEST_OFFLINE:-}" ] || skip "$1 comes over the network"
    mkdir -p "$NODE_DIR"
    [ -e "$NODE_DIR/package.json" ] || echo '{"private":true}' >"$NODE_DIR/package.json"
    (cd "$NODE_DIR" && npm_command install --silent --no-audit --no-fund --ignore-scripts \
        --save-exact "$1@$2") >&2 || return 1
    : >"$done"
}

run_node()
{
    local script=$1

    shift
    cp "$script" "$NODE_DIR/"
    (cd "$NODE_DIR" && node_client "$(basename "$script")" "$@")
}
