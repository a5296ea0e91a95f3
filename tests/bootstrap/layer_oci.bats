# The shared layer of a coding agent in an isolated box: mounted read-only, and nothing in the box can change that.
# needs: image

load ../lib/box
load ../lib/layer
bats_require_minimum_version 1.5.0

LAYER=/run/bellhop-layers/mine-1.0

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
    layer_up mine "$1" --provider oci "${@:2}"
    remember_box "$1"
}

digest() { (cd "$(layers)/tree" && find . -type f -printf '%m %p ' -exec sha256sum {} \; | sort | sha256sum); }

@test "root in a box cannot write into the layer that other boxes have" {
    up a --privilege sudo
    up b
    [ "$(layers | wc -l)" -eq 1 ]
    [ "$(agent_file a)" = "$LAYER/package/bin/../lib/deep/server.py" ]
    before=$(digest)
    for change in "touch $LAYER/x" "rm $LAYER/package/bin/serve" "echo x >>$LAYER/package/bin/serve" \
        "chmod 777 $LAYER/package/bin/serve" "chown 0 $LAYER/package/bin/serve" \
        "mv $LAYER /run/away" "rm -rf $LAYER" "mount -o remount,rw $LAYER" "umount $LAYER" \
        "mount --bind /tmp $LAYER" "ln $LAYER/package/bin/serve $LAYER/package/bin/other"; do
        run ! bellhop exec a --user root -- sh -c "$change"
    done
    [ "$(digest)" = "$before" ]
    [ "$(bellhop exec b -- cat "$LAYER/package/bin/serve")" = "$(cat "$(layers)/tree/package/bin/serve")" ]
    # Nothing of it was copied onto the box's own disk.
    run ! bellhop exec a -- test -e .bellhop/agents
}

@test "a box that comes back has the layer again" {
    up a
    bellhop stop a
    bellhop start a
    bellhop status a --json >"$BOX_TMP/up.a"
    [ "$(agent_file a)" = "$LAYER/package/bin/../lib/deep/server.py" ]
}

@test "a box without a coding agent has no layer" {
    up a
    bellhop up --name none --provider oci --agent none --empty
    remember_box none
    run ! bellhop exec none -- test -e /run/bellhop-layers
}
