#!/usr/bin/env bats
# early
# Runs the file tests again on an overlay, on tmpfs, as a plain user and on a full disk. The mounts are made in
# a mount namespace of the test's own, so that none is left.

load ../lib/agent
load ../lib/inner

# Of these files only one test for each kind of call, and no large file.
MAIN='^(stat tells|the tag of stat|list is sorted|directories are|move and|remove refuses|attributes|edit is|'
MAIN+='fs calls act|files keep|file ranges|file conditions are|file digests|file errors|file names|'
MAIN+='files under|files as|watch tells of|watch leaves|watch ends|'
MAIN+='conditions hold|a part of a file|what can|a replacement keeps|no update is lost|an upload in pieces)'
FILES=(fs.bats files.bats files_http.bats files_upload.bats fs_watch.bats)

setup()
{
    HERE=$BATS_TEST_DIRNAME
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-env-XXXXXX")
    chmod 755 "$DIR"
}
teardown() { rm -rf "$DIR"; }

# in_mounts SCRIPT: bash runs it in a mount namespace of its own, with these functions and DIR, HERE.
in_mounts()
{
    [ "$(id -u)" = 0 ] || skip "needs root"
    unshare -m --propagation private true || skip "no mount namespaces"
    HERE=$HERE DIR=$DIR BELLHOP_BUILD=$BELLHOP_BUILD MAIN=$MAIN LIB=$HERE/../lib/inner.bash \
        unshare -m --propagation private bash -euc ". \"\$LIB\"; cd \"\$HERE\"; $1" 3>&-
}

@test "the file tests pass on an overlay" {
    in_mounts '
        mkdir "$DIR"/{disk,at}
        mount -t tmpfs none "$DIR/disk"
        mkdir "$DIR"/disk/{lower,upper,work} "$DIR/disk/lower/tmp"
        mount -t overlay -o "lowerdir=$DIR/disk/lower,upperdir=$DIR/disk/upper,workdir=$DIR/disk/work,redirect_dir=off" \
            none "$DIR/at"
        chmod 755 "$DIR/at" "$DIR/at/tmp"
        inner "$DIR/at/tmp" "$MAIN" fs.bats files.bats files_http.bats files_upload.bats fs_watch.bats
        [ "$INNER_PASSED" -ge 18 ]'
}

@test "what lies in the lower layer of an overlay can be moved, copied, edited, watched and removed" {
    in_mounts '
        mkdir "$DIR"/{disk,at}
        mount -t tmpfs none "$DIR/disk"
        mkdir -p "$DIR"/disk/{upper,work} "$DIR"/disk/lower/{tree/sub/deep,tree2/sub,tree3}
        for t in tree/sub/deep tree2/sub tree3; do echo lower >"$DIR/disk/lower/$t/f"; done
        ln "$DIR/disk/lower/tree/sub/deep/f" "$DIR/disk/lower/tree/hard"
        ln -s sub "$DIR/disk/lower/tree/link"
        mount -t overlay -o "lowerdir=$DIR/disk/lower,upperdir=$DIR/disk/upper,workdir=$DIR/disk/work,redirect_dir=off" \
            none "$DIR/at"
        inner "$DIR" . env/overlay.bats'
}

@test "the file tests pass on tmpfs" {
    in_mounts '
        mkdir "$DIR/at"
        mount -t tmpfs -o mode=0755 none "$DIR/at"
        inner "$DIR/at" "$MAIN" fs.bats files.bats files_http.bats files_upload.bats fs_watch.bats
        [ "$INNER_PASSED" -ge 18 ]'
}

@test "the file tests pass for an agent that is a plain user" {
    [ "$(id -u)" = 0 ] || skip "needs root, to be somebody else"
    mkdir -p "$DIR/tests/integration" "$DIR/build" "$DIR/tmp"
    cp -r "$HERE/../lib" "$DIR/tests/lib"
    for f in "${FILES[@]}"; do cp "$HERE/$f" "$DIR/tests/integration/"; done
    cp "$BELLHOP_BUILD/bellhopd" "$DIR/build/"
    chown -R nobody: "$DIR/tmp"
    cd "$DIR/tests/integration"
    INNER_BUILD=$DIR/build INNER_SKIPS='needs root' \
        INNER_AS='setpriv --reuid nobody --regid nogroup --clear-groups' \
        inner "$DIR/tmp" "$MAIN" "${FILES[@]}"
    [ "$INNER_PASSED" -ge 18 ]
}

@test "a full disk of 4 MB refuses by name, changes nothing, leaves nothing, and works again (tmpfs)" {
    in_mounts '
        mkdir "$DIR/at"
        mount -t tmpfs -o size=4m,mode=0755 none "$DIR/at"
        inner "$DIR" . env/full.bats'
}

@test "a full disk of 4 MB refuses by name, changes nothing, leaves nothing, and works again (ext4)" {
    in_mounts '
        mkdir "$DIR/at"
        truncate -s 4M "$DIR/disk"
        mkfs.ext4 -q -O ^has_journal -m 0 "$DIR/disk"
        mount -o loop "$DIR/disk" "$DIR/at" || exit 77
        inner "$DIR" . env/full.bats' || { [ "$?" = 77 ] && skip "no loop devices"; }
}
