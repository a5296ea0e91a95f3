# A coding agent whose packages are in the cache is unpacked once for all boxes, and not sent into any of them. The
# packages are made here: no registry, no network. The boxes are of the process provider, which shows a layer at its
# place; layer_oci.bats has what the isolation adds.
#
# early

load ../lib/box
load ../lib/layer
bats_require_minimum_version 1.5.0

setup()
{
    box_setup
    layer_setup
    make_package mine
    layer_recipe mine
}
teardown() { box_teardown; }

up() # BOX [OPTION...]
{
    layer_up mine "$1" --provider process --port "$(free_port)" "${@:2}"
}

# sent BOX: the agent is in the box's own files, and there is no layer.
sent()
{
    [[ "$(agent_file "$1")" == */.bellhop/agents/mine-1.0/package/* ]] && [ -z "$(layers)" ]
}

@test "boxes that start at once unpack the agent once, and have no copy of it" {
    for box in a b c d; do
        up "$box" 2>"$BOX_TMP/said.$box" &
        eval "pid_$box=$!"
    done
    for box in a b c d; do
        eval "wait \$pid_$box"
    done
    [ "$(layers | wc -l)" -eq 1 ]
    [ "$(cat "$BOX_TMP"/said.* | grep -c 'unpacking mine-1.0')" -le 1 ]
    for box in a b c d; do
        [[ "$(agent_file "$box")" == "$(layers)"/tree/package/* ]]
    done
    [ -z "$(find "$BELLHOP_STATE_DIR/boxes" -name agents)" ]
    [ "$(ls "$(layers)/users" | wc -l)" -eq 4 ]
}

@test "the files of a layer are for reading" {
    up a
    [ -z "$(find "$(layers)/tree" -type f -perm /222)" ]
    [ -x "$(layers)/tree/package/bin/serve" ]
}

@test "a layer that lost a file, or a part of one, is made again" {
    up a
    layer=$(layers)
    bellhop stop a
    rm "$layer/tree/package/lib/deep/server.py"
    bellhop start a
    [ -s "$layer/tree/package/lib/deep/server.py" ]
    bellhop stop a
    truncate -s 10 "$layer/tree/package/bin/serve"
    bellhop start a
    bellhop status a --json >"$BOX_TMP/up.a"
    [[ "$(agent_file a)" == "$layer"/tree/package/* ]]
    [ "$(stat -c %s "$layer/tree/package/bin/serve")" -gt 10 ]
}

@test "what a killed command left half unpacked is never used" {
    up a
    layer=$(layers)
    bellhop rm a
    mv "$layer" "$layer.tmp"
    truncate -s 0 "$layer.tmp/tree/package/bin/serve"
    up a
    [ ! -e "$layer.tmp" ]
    [[ "$(agent_file a)" == "$layer"/tree/package/* ]]
}

@test "an archive that is not what the recipe wants makes no layer" {
    echo more >>"$BELLHOP_CACHE_DIR/npm/mine-1.0.tgz"
    run up a
    [ "$status" -ne 0 ]
    [ "$(jq -r .error.step "$BOX_TMP/up.a")" = install ]
    [ "$(jq -r .error.code "$BOX_TMP/up.a")" = unavailable ]
    [ -z "$(layers)" ]
}

@test "a recipe with commands, and a package without a digest, are installed in the box" {
    layer_recipe mine '.install.commands = [["true"]]'
    up a
    sent a
    bellhop rm a
    # With a layer of the same agent on this machine:
    layer_recipe mine
    up a
    [ -n "$(layers)" ]
    layer_recipe mine '.install.commands = [["true"]]'
    up b
    [[ "$(agent_file b)" == */.bellhop/agents/mine-1.0/package/* ]]
}

@test "the same name and version with other content is another layer" {
    up a
    first=$(layers)
    echo more >"$BOX_TMP/packing/package/more"
    make_package mine
    layer_recipe mine
    up b
    [ "$(layers | wc -l)" -eq 2 ]
    [[ "$(agent_file a)" == "$first"/tree/package/* ]]
    [[ "$(agent_file b)" != "$first"/tree/package/* ]]
}

@test "a box without its layer, whose archive is gone too, gets the agent as before" {
    up a
    bellhop stop a
    mv "$BELLHOP_CACHE_DIR" "$BOX_TMP/away"
    mkdir -p "$BELLHOP_CACHE_DIR/npm"
    run bellhop start a
    [ "$status" -ne 0 ]
    [[ "$output" == *"npm package mine 1.0"* ]]
    cp "$BOX_TMP/away/npm/mine-1.0.tgz" "$BELLHOP_CACHE_DIR/npm/"
    bellhop start a
    [[ "$(agent_file a)" == "$(layers)"/tree/package/* ]]
}

@test "gc removes a layer once no box has it" {
    up a
    layer=$(layers)
    mkdir "$AGENTS/old-1.0-x86_64-0000.tmp"
    bellhop stop a
    bellhop gc >"$BOX_TMP/said"
    [ "$(layers)" = "$layer" ]
    bellhop rm a
    bellhop gc --dry-run | grep -q "$(basename "$layer"): no box has this layer, would be removed"
    [ "$(layers)" = "$layer" ]
    bellhop gc | grep -q "$(basename "$layer"): no box had this layer, removed"
    [ -z "$(layers)" ]
}
