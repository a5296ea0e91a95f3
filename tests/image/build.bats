#!/usr/bin/env bats
# early
# `bellhop image` and the images under boxes. The images built here add a few files to the cached layers of slim, so
# that a build takes seconds.
# time-limit: 2400
# needs: image

load ../lib/box

setup()
{
    [ "$(id -u)" -eq 0 ] || skip "building an image needs root"
    box_setup
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    # Images of the test's own, layers of everybody's.
    export BELLHOP_IMAGES=$BOX_TMP/images BELLHOP_IMAGE_CACHE=$TOP/build/cache/image
    unset BELLHOP_IMAGE
    cd "$BOX_TMP" || return 1
}

teardown()
{
    [ "$(id -u)" -eq 0 ] || return 0
    cd /
    box_teardown
}

template() # LINE...: an e2b.toml that stands on slim
{
    {
        printf 'template_name = "mine"\n'
        printf '%s\n' "$@" | grep -v '^b:' || true
        printf '[bellhop]\nfrom = "slim"\nversion = "1.2"\n'
        printf '%s\n' "$@" | sed -n 's/^b://p'
    } >"$BOX_TMP/e2b.toml"
}

# oci_config DIR: the file with the configuration of the image's OCI layout.
oci_config()
{
    local blobs=$1/oci/blobs/sha256 digest

    digest=$(jq -r .manifests[0].digest "$1/oci/index.json")
    digest=$(jq -r .config.digest "$blobs/${digest#sha256:}")
    echo "$blobs/${digest#sha256:}"
}

nothing_half()
{
    [ -z "$(find "$BELLHOP_IMAGES" -mindepth 1 -maxdepth 1 ! -name '.*.lock')" ]
    ! grep -F "$BOX_TMP" /proc/self/mountinfo
}

@test "up builds a missing image once for all who ask, and says so; start_cmd, ready_cmd, env and limits act" {
    template 'start_cmd = "echo $COLOUR >/tmp/started; sleep 1; echo yes >/tmp/ready; sleep 1000"' \
        'ready_cmd = "grep -q yes /tmp/ready"' 'cpu_count = 1' 'memory_mb = 200' 'b:env = ["COLOUR=red"]'
    for n in 1 2 3; do
        bellhop up --empty -n "b$n" -a none --network none --image mine:1.2 >"up$n" 2>&1 3>&- &
        pids[n]=$!
    done
    for n in 1 2 3; do wait "${pids[n]}" || { cat "up$n"; return 1; }; done
    cat up? | grep 'building the image mine:1.2'
    [ "$(cat up? | grep -c 'stamping it')" -le 1 ]
    [ "$(cat up? | grep -c 'packing the squashfs')" -eq 1 ]

    run bellhop exec b1 -- cat /tmp/started /tmp/ready /etc/bellhop/version
    [ "$output" = "red
yes
1.2" ]
    [ "$(bellhop status b1 --json | jq -r .inspect.limits.memory_bytes)" = $((200 << 20)) ] ||
        bellhop status b1 | grep -q 'memory_bytes *209715200'
    # One device under all of them, which goes with the last.
    [ "$(losetup --noheadings -O NAME -j "$(readlink -f "$BELLHOP_IMAGES/mine")/rootfs.squashfs" | wc -l)" = 1 ]
    run bellhop image rm mine
    [ "$status" -eq 1 ] || [ "$status" -eq 4 ] || [ "$status" -eq 5 ]
    [[ "$output" == *"3 boxes use the image"* ]]
    bellhop rm b1 b2 b3 || for n in 1 2 3; do bellhop rm "b$n"; done
    for _ in $(seq 600); do
        [ -n "$(losetup --noheadings -j "$(readlink -f "$BELLHOP_IMAGES/mine")/rootfs.squashfs")" ] || break
        read -r -t 0.1 <> <(:) || true
    done
    [ -z "$(losetup --noheadings -j "$(readlink -f "$BELLHOP_IMAGES/mine")/rootfs.squashfs")" ]
    bellhop image rm mine:1.2
    run bellhop image inspect mine
    [ "$(jq -r .version <<<"$output")" = 1.2 ] # the template, not an image
    nothing_half
}

@test "image ls, inspect and build speak json; a further form comes beside the first, with the same bytes for the same input" {
    template 'start_cmd = "./serve"'
    dir=$(bellhop image build --json -f dockerfile | jq -r .path)
    grep -q '^FROM' "$dir/Dockerfile"
    grep -q '^CMD .*"--start-file", "/etc/bellhop/start"\]$' "$dir/Dockerfile"
    [ "$(tail -n 2 "$dir/context/etc/start")" = "cd '/home/user' || exit
./serve" ]
    [ "$(bellhop image build -f oci mine 2>/dev/null)" = "$dir" ]
    [ "$(jq -r .imageLayoutVersion "$dir/oci/oci-layout")" = 1.0.0 ]
    first=$(jq -r .manifests[0].digest "$dir/oci/index.json")
    jq -e '.outputs["oci.tar"].bytes and .outputs.Dockerfile.sha256' "$dir/manifest.json"
    bellhop image ls --json >ls
    jq -e '.images[] | select(.name == "mine" and .built and .forms == "oci dockerfile")' ls
    jq -e '.images[] | select(.name == "full" and (.built | not))' ls
    # Holes do not count.
    truncate -s 10G "$dir/disk.ext4"
    [ "$(bellhop image ls --json | jq '.images[] | select(.name == "mine") | .bytes < 1000000000')" = true ]
    rm "$dir/disk.ext4"
    bellhop image inspect mine --json | jq -e '.packages.git and .user.name == "user"'
    jq -e '.config | .User == "user" and .WorkingDir == "/home/user" and .Entrypoint[0] == "/usr/local/bin/bellhopd" and
        .Cmd[-4:] == ["--env-file", "/etc/bellhop/env", "--start-file", "/etc/bellhop/start"]' \
        "$(oci_config "$dir")"

    # It has no form yet that a box could use.
    bellhop up --empty -n b1 -a none --network none --image mine
    jq -e '.outputs["rootfs.squashfs"].bytes and .outputs["oci.tar"].bytes' "$dir/manifest.json"
    bellhop rm b1

    bellhop image rm --all
    dir=$(bellhop image build -f oci mine 2>/dev/null)
    [ "$(jq -r .manifests[0].digest "$dir/oci/index.json")" = "$first" ]
}

@test "the template's user and workdir act in a box; --dest has the last word" {
    template 'start_cmd = "id -un >/tmp/who; pwd >>/tmp/who"' 'ready_cmd = "grep -q app /tmp/who"' \
        'b:user = "bob"' 'b:workdir = "/srv/app"'
    bellhop image build -f dir
    bellhop up --empty -n b1 -a none --network none --image mine
    run bellhop exec b1 -- sh -c 'id -un; pwd; echo $HOME; cat /tmp/who; sudo id -un; stat -c %U . $HOME; ls /home'
    [ "$output" = "$(printf '%s\n' bob /srv/app /home/bob bob /srv/app root bob bob bob)" ]
    bellhop up --empty -n b2 -a none --network none --image mine --dest /data --privilege strict
    run bellhop exec b2 -- sh -c 'id -un; pwd; echo $HOME'
    [ "$output" = "$(printf '%s\n' bob /data /home/bob)" ]
    bellhop rm b1 b2
    # By default the project has a place of its own.
    [ "$(bellhop image inspect slim | jq -r .workdir)" = /home/user ]
    BELLHOP_IMAGES=$TOP/build/image bellhop up --empty -n b3 -a none --network none --image slim
    [ "$(bellhop exec b3 -- pwd)" = /workspace ]
}

@test "apt and npm of a build go by the proxies of whoever started it" {
    [ -z "${http_proxy:-}${https_proxy:-}" ] || skip "this machine needs a proxy itself"
    # Others' layers below ours: what is made here is fetched here.
    mkdir -p cache/layers
    ln -s "$BELLHOP_IMAGE_CACHE"/*.tgz cache/
    find "$BELLHOP_IMAGE_CACHE/layers" -mindepth 1 -maxdepth 1 -type d ! -name '.*' -exec ln -s -t cache/layers '{}' +
    template "b:packages = [\"hello\"]" 'b:npm = ["is-number@7.0.0"]' "b:exclude = [\"/nothing/$$\"]"
    sed -i "s|^from = .*|from = \"$TOP/tests/lib/image\"|" e2b.toml
    python3 "$TOP/tests/lib/forward_proxy.py" port hosts 3>&- &
    proxy=$!
    for _ in $(seq 300); do
        [ ! -e port ] || break
        read -r -t 0.1 <> <(:) || true
    done
    status=0
    http_proxy=http://127.0.0.1:$(cat port) https_proxy=http://127.0.0.1:$(cat port) \
        BELLHOP_IMAGE_CACHE=$BOX_TMP/cache bellhop image build -f dir || status=$?
    kill "$proxy"
    [ "$status" -eq 0 ]
    [ -x "$BELLHOP_IMAGES/mine/rootfs/usr/bin/hello" ]
    jq -e '.npm_packages["is-number"] == "7.0.0"' "$BELLHOP_IMAGES/mine/manifest.json"
    grep -qxF "$("$TOP/scripts/npm-registry.sh" | sed 's|^[a-z]*://||; s|[:/].*||')" hosts
    # A proxy in apt's own settings goes before.
    apt-config dump | grep -Eqi '^acquire::https?::.*proxy' ||
        grep -qxF "$("$TOP/scripts/debian-sources.sh" | sed -n '1s|^[a-z]*://\([^:/]*\).*|\1|p')" hosts
}

@test "what image is told wrongly is refused before anything is built" {
    run bellhop image test
    [ "$status" -eq 3 ]
    [[ "$output" == *"there is no ./e2b.toml here"* ]]
    run bellhop image build
    [ "$status" -eq 3 ]
    [[ "$output" == *"there is no ./e2b.toml here"* ]]
    run bellhop image test slim --check teapot
    [ "$status" -eq 2 ]
    [[ "$output" == *"there is no check 'teapot': agent, start, ready, user, sudo, git, "* ]]
    run bellhop image ls --form oci
    [ "$status" -eq 2 ]
    [[ "$output" == *"'image ls' takes no --form"* ]]
    run bellhop image rm slim --fresh
    [ "$status" -eq 2 ]
    [[ "$output" == *"'image rm' takes no --fresh"* ]]
    run bellhop image inspect ''
    [ "$status" -eq 2 ]
    [[ "$output" == *"which image?"* ]]
    run bellhop image inspect .
    [ "$status" -eq 3 ]
    run bellhop image biuld
    [ "$status" -eq 2 ]
    [[ "$output" == *"there is no 'image biuld': ls, build, test, inspect or rm"* ]]
    printf 'template_name = "mine"\n[belhop]\n' >e2b.toml
    run bellhop image build
    [ "$status" -eq 2 ]
    [[ "$output" == *"./e2b.toml:2: there is no table 'belhop', only 'bellhop'"* ]]
    nothing_half
}

@test "an image that a newer one replaced has its directory's name, by which it goes" {
    template
    old=$(bellhop image build -f dir)
    template 'start_cmd = "true"'
    new=$(bellhop image build -f dir)
    [ "$old" != "$new" ]
    bellhop image ls --json >ls
    jq -e --arg new "$new" '[.images[] | select(.name == "mine" and (.replaced | not)) | .path] == [$new]' ls
    [ "$(bellhop image ls | grep -c "^${old##*/}[[:space:]]")" = 1 ]
    bellhop image rm "${old##*/}"
    [ ! -e "$old" ] && [ -e "$new/manifest.json" ]
}

@test "without loop devices, or a squashfs in the kernel, a box stands on a directory, unpacked once, and status says so" {
    # An image of the test's own, of links: nobody has unpacked it yet.
    slim=$TOP/build/image/slim
    mkdir "$BOX_TMP/mine"
    ln -s "$(readlink -f "$slim/rootfs.squashfs")" "$slim/manifest.json" "$BOX_TMP/mine/"
    hidden='mount --bind /dev/null /dev/loop-control && for d in /sys/block/loop*; do
        mount --bind /dev/null "/dev/${d##*/}" 2>/dev/null || true; done; exec "$@"'
    for n in 1 2; do
        unshare --mount sh -c "$hidden" sh "$BELLHOP" up --empty -n "b$n" -a none --network none -i "$BOX_TMP/mine" 3>&- &
        pids[n]=$!
    done
    for n in 1 2; do wait "${pids[n]}"; done
    for n in 1 2; do
        bellhop status "b$n" | grep -q 'lower *directory'
        [ "$(bellhop exec "b$n" -- sh -c 'cat /etc/bellhop/name; sudo id -u; stat -c %U /home/user')" = "slim
0
user" ]
    done
    [ "$(ls "$BOX_TMP/mine")" = "manifest.json
rootfs
rootfs.squashfs" ]

    # Half a squashfs is an error, and no half directory.
    mkdir "$BOX_TMP/cut"
    head -c 20000000 "$slim/rootfs.squashfs" >"$BOX_TMP/cut/rootfs.squashfs"
    run unshare --mount sh -c "$hidden" sh "$BELLHOP" up --empty -n b3 -a none --network none -i "$BOX_TMP/cut"
    [ "$status" -ne 0 ]
    [[ "$output" == *"a free loop device"*"and unpacking it"*"unsquashfs"* ]]
    [ "$(ls -A "$BOX_TMP/cut")" = rootfs.squashfs ]
}

@test "what cannot be built is a clear error, and leaves nothing behind" {
    # While apt of another build is at the packages that both share, it waits.
    template 'b:packages = ["no-such-package-here"]'
    mkdir -p "$BELLHOP_IMAGE_CACHE/apt"
    exec 5>"$BELLHOP_IMAGE_CACHE/apt/archives.lock"
    flock 5
    bellhop image build -f squashfs >log 2>&1 3>&- 5>&- &
    pid=$!
    for _ in $(seq 1200); do
        ! grep -q 'waiting for the packages of another build' log || break
        read -r -t 0.1 <> <(:) || true
    done
    exec 5>&-
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 3 ]
    grep -q 'waiting for the packages of another build' log
    grep -q "has no package 'no-such-package-here'" log
    nothing_half

    template 'b:packages = ["hello"]'
    run unshare --net "$BELLHOP" image build -f squashfs
    [ "$status" -eq 5 ]
    [[ "$output" == *"reading Debian's package lists failed"* ]]
    nothing_half

    template
    mkdir small
    mount -t tmpfs -o size=8m tmpfs small
    BELLHOP_IMAGES=$BOX_TMP/small run bellhop image build -f squashfs
    umount small
    [ "$status" -eq 8 ]
    [[ "$output" == *"no space left on device"* ]]

    printf 'template_name = "mine"\n[bellhop]\npakages = []\n' >e2b.toml
    run bellhop image build
    [ "$status" -eq 2 ]
    [[ "$output" == *"./e2b.toml:3: there is no field 'bellhop.pakages'"* ]]
    run bellhop up --empty -n b9 -a none --image base:9.9
    [ "$status" -eq 3 ]
    [[ "$output" == *"is version '1.0.0', not '9.9'"* ]]
    nothing_half
}

@test "a build that is interrupted leaves no mount, no directory and no process; what one that was killed left goes with the next" {
    template
    "$BELLHOP" image build -f oci >log 2>&1 3>&- &
    pid=$!
    for _ in $(seq 3000); do
        grep -q packing log && break
        read -r -t 0.1 <> <(:) || true
    done
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 130 ]
    nothing_half

    # Leftovers of a dead process, and the files of a live one.
    sh -c 'mkdir "$1/.mine.def.$$.abcdef" "$1/.mine-1.tmp.$$"' sh "$BELLHOP_IMAGES"
    mkdir "$BELLHOP_IMAGES/.mine.def.$$.abcdef"
    bellhop image build -f dockerfile
    [ "$(ls -A "$BELLHOP_IMAGES" | grep -F -e .def. -e .tmp.)" = ".mine.def.$$.abcdef" ]
}

@test "what is installed builds images and boots them without the tree that it was built in" {
    make -s -C "$TOP" install DESTDIR="$BOX_TMP/root" PREFIX=/usr
    unset BELLHOP_IMAGES
    template 'b:env = ["FROM=there"]'
    # The tree is not there for it; what it stands on is, as layers.
    cat >try.sh <<END
set -eu
mount --bind "$BELLHOP_IMAGE_CACHE" "$BOX_TMP/cache"
mount -t tmpfs tmpfs "$TOP"
export BELLHOP_IMAGE_CACHE="$BOX_TMP/cache"
$BOX_TMP/root/usr/bin/bellhop image build -f dir -f dockerfile
$BOX_TMP/root/usr/bin/bellhop image ls --json >ls
$BOX_TMP/root/usr/bin/bellhop up --empty -n b1 -a none --network none --image mine:1.2
$BOX_TMP/root/usr/bin/bellhop exec b1 -- sh -c 'echo \$FROM; id -un' >said
$BOX_TMP/root/usr/bin/bellhop rm b1
$BOX_TMP/root/usr/bin/bellhop image test root/usr/share/bellhop/images/mine --form oci --check agent --check user --check jq >tried
END
    mkdir -p cache
    unshare --mount --propagation private sh -e try.sh
    [ "$(cat said)" = "$(printf 'there\nuser')" ]
    [ "$(jq -r '.images[] | select(.built) | .path' ls)" = "$(readlink -f root/usr/share/bellhop/images/mine)" ]
    [ "$(jq '[.images[] | select(.built | not) | .name] == ["base","full","lang-go","lang-ruby","lang-rust","lang-ts","slim"]' ls)" = true ]
    [ "$(awk '$3 == "ok" { print $1 }' tried | xargs)" = "agent user jq" ]
}

@test "a tree where nothing was built yet has its images and layers in itself" {
    unset BELLHOP_IMAGES BELLHOP_IMAGE_CACHE
    mkdir -p tree/build/release tree/scripts
    cp "$BELLHOP_BUILD/bellhop" tree/build/release/
    cp -R "$TOP/image" tree/
    # The environment that it gets proves as much as a build.
    printf '#!/bin/sh\necho "$BELLHOP_IMAGES $BELLHOP_IMAGE_CACHE" >%s/told\nexit 1\n' "$BOX_TMP" >tree/image/build.sh
    run tree/build/release/bellhop image build slim -f dir
    [ "$status" -ne 0 ]
    [ "$(cat told)" = "$BOX_TMP/tree/build/image $BOX_TMP/tree/build/cache/image" ]
}
