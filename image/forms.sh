# shellcheck shell=sh
# Makes the forms of an image (README) from the merged layers at $merged, in $tmp/out. A form that can be loaded
# elsewhere has the agent in it, as one more layer.
# shellcheck disable=SC2154

# The latest time of files: the same input gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1735689600}
export SOURCE_DATE_EPOCH

# The file that marks a form as complete; it is written last.
form_file()
{
    case $1 in
    squashfs) echo rootfs.squashfs ;;
    dir) echo rootfs ;;
    tar) echo rootfs.tar.zst ;;
    oci) echo oci.tar ;;
    vm) echo disk.ext4 ;;
    dockerfile) echo Dockerfile ;;
    *) fail form "there is no form '$1': squashfs, dir, tar, oci, vm or dockerfile" ;;
    esac
}

form_has_agent()
{
    case $1 in tar | oci | vm) true ;; *) false ;; esac
}

agent_digest()
{
    [ ! -e "$agent" ] || sha256sum "$agent" | cut -c 1-64
}

form_is_there()
{
    [ -e "$final/$(form_file "$1")" ] || return 1
    ! form_has_agent "$1" || [ "$(cat "$final/.agent.$1" 2>/dev/null)" = "$(agent_digest)" ]
}

# note_agent FORM: records the agent in the form.
note_agent()
{
    agent_digest >"$tmp/out/.agent.$1"
}

# The root with the agent in it, at $tmp/full.
with_agent()
{
    [ ! -e "$tmp/full" ] || return 0
    [ -e "$agent" ] || fail agent "there is no guest agent at '$agent': build it with 'make'"
    mkdir -p "$tmp/full" "$tmp/agent/usr/local/bin" "$tmp/agent/etc/bellhop"
    install -m 755 "$agent" "$tmp/agent/usr/local/bin/bellhopd"
    for dir in usr usr/local usr/local/bin etc etc/bellhop; do
        chown --reference="$merged/$dir" "$tmp/agent/$dir"
        chmod --reference="$merged/$dir" "$tmp/agent/$dir"
        touch --reference="$merged/$dir" "$tmp/agent/$dir"
    done
    # The names in the chain are relative to the folder of the layers.
    (cd "$layers" && mount -t overlay overlay -o "lowerdir=$tmp/agent:$chain" "$tmp/full") 2>"$log" ||
        fail overlay "the kernel does not mount the layers: $(tail -n 1 "$log")"
}

make_squashfs()
{
    say "packing the squashfs"
    run_logged squashfs "packing the squashfs" mksquashfs "$merged" "$tmp/out/rootfs.squashfs" -noappend \
        -no-progress -comp zstd -Xcompression-level "${IMAGE_ZSTD_LEVEL:-15}" -b 256K
}

make_dir()
{
    say "copying the directory"
    run_logged dir "copying the directory" cp -a "$merged" "$tmp/out/rootfs"
    touch "$tmp/out/rootfs/etc/resolv.conf" "$tmp/out/rootfs/etc/hostname"
}

# tar_of DIR: a reproducible tar of the tree, without sizes of directories and names of users.
tar_of()
{
    tar --create --directory="$1" --sort=name --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        --clamp-mtime --format=posix --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime \
        --xattrs --xattrs-include='security.capability' .
}

make_tar()
{
    with_agent
    say "packing rootfs.tar.zst"
    pack_tar >"$log" 2>&1 || explain tar "packing rootfs.tar.zst"
    note_agent tar
}

pack_tar()
{
    { tar_of "$tmp/full" || : >"$tmp/tar.failed"; } | zstd -q -T0 -9 -o "$tmp/out/rootfs.tar.zst"
    [ ! -e "$tmp/tar.failed" ]
}

# ---- OCI ---------------------------------------------------------------------------------------

sha_of()
{
    sha256sum "$1" | cut -c 1-64
}

# blob FILE: moves it to the blobs; prints "DIGEST SIZE".
blob()
{
    digest=$(sha_of "$1")
    echo "$digest $(stat -c %s "$1")"
    mv "$1" "$tmp/out/oci/blobs/sha256/$digest"
}

# oci_layer DIR: prints "DIFF_ID DIGEST SIZE".
oci_layer()
{
    { tar_of "$1" || : >"$tmp/tar.failed"; } | tee "$tmp/fifo" | gzip -n -6 >"$tmp/layer" &
    packing=$!
    diff=$(sha256sum <"$tmp/fifo" | cut -c 1-64)
    wait "$packing" || return 1
    [ ! -e "$tmp/tar.failed" ] || return 1
    echo "$diff $(blob "$tmp/layer")"
}

oci_config()
{
    workdir=$(image_value "$definition" workdir)
    jq -cn --arg arch "$(image_arch)" --arg workdir "$workdir" --arg name "$name" --arg version "$version" \
        --arg user "$(image_value "$definition" user)" --arg diff1 "$1" --arg diff2 "$2" \
        --arg created "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" \
        --rawfile env "$definition/env" --rawfile start "$definition/start_cmd" '
        {created: $created, architecture: $arch, os: "linux",
         config: {User: $user, WorkingDir: $workdir, ExposedPorts: {"4711/tcp": {}},
            Env: (["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"] +
                ($env | split("\n") | map(select(. != "")))),
            Entrypoint: ["/usr/local/bin/bellhopd"],
            Cmd: (["--listen", "0.0.0.0:4711", "--token-file", "/run/bellhop/token",
                "--env-file", "/etc/bellhop/env"] +
                (if $workdir != "/home/" + $user then ["--workdir", $workdir] else [] end) +
                (if $start != "" then ["--start-file", "/etc/bellhop/start"] else [] end)),
            Labels: {"org.opencontainers.image.title": ("bellhop/" + $name),
                     "org.opencontainers.image.version": $version}},
         rootfs: {type: "layers", diff_ids: ["sha256:" + $diff1, "sha256:" + $diff2]},
         history: [{created: $created, created_by: "bellhop image build"},
                   {created: $created, created_by: "bellhopd"}]}'
}

make_oci()
{
    with_agent
    say "packing the OCI image"
    pack_oci >"$log" 2>&1 || explain oci "packing the OCI image"
    note_agent oci
}

pack_oci()
{
    mkdir -p "$tmp/out/oci/blobs/sha256"
    mkfifo "$tmp/fifo"
    root_layer=$(oci_layer "$merged") || return 1
    agent_layer=$(oci_layer "$tmp/agent") || return 1
    # shellcheck disable=SC2086 # three words each
    set -- $root_layer $agent_layer
    oci_config "$1" "$4" >"$tmp/config"
    config=$(blob "$tmp/config")
    jq -cn --arg config "${config% *}" --argjson config_size "${config#* }" --arg l1 "$2" --argjson s1 "$3" \
        --arg l2 "$5" --argjson s2 "$6" '
        {schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
         config: {mediaType: "application/vnd.oci.image.config.v1+json", digest: ("sha256:" + $config),
            size: $config_size},
         layers: [{mediaType: "application/vnd.oci.image.layer.v1.tar+gzip", digest: ("sha256:" + $l1), size: $s1},
                  {mediaType: "application/vnd.oci.image.layer.v1.tar+gzip", digest: ("sha256:" + $l2), size: $s2}]}' \
        >"$tmp/manifest"
    manifest=$(blob "$tmp/manifest")
    jq -cn --arg digest "${manifest% *}" --argjson size "${manifest#* }" --arg name "$name" --arg version "$version" '
        {schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
         manifests: [{mediaType: "application/vnd.oci.image.manifest.v1+json", digest: ("sha256:" + $digest),
            size: $size, annotations: {"org.opencontainers.image.ref.name": $version,
                "io.containerd.image.name": ("docker.io/bellhop/" + $name + ":" + $version)}}]}' \
        >"$tmp/out/oci/index.json"
    echo '{"imageLayoutVersion":"1.0.0"}' >"$tmp/out/oci/oci-layout"
    # For `docker load` before version 25; it uses the same blobs.
    jq -cn --arg config "${config% *}" --arg l1 "$2" --arg l2 "$5" --arg tag "bellhop/$name:$version" '
        [{Config: ("blobs/sha256/" + $config), RepoTags: [$tag],
          Layers: ["blobs/sha256/" + $l1, "blobs/sha256/" + $l2]}]' >"$tmp/manifest.json"
    tar --create --file="$tmp/out/oci.tar" --sort=name --numeric-owner --owner=0 --group=0 --mode=u=rwX,go=rX \
        --mtime="@$SOURCE_DATE_EPOCH" --directory="$tmp/out/oci" blobs index.json oci-layout \
        --directory="$tmp" manifest.json
}

# ---- forms of other scripts --------------------------------------------------------------------

make_vm()
{
    [ -x "$here/vm.sh" ] || fail form "the form 'vm' is not there"
    with_agent
    say "making disk, kernel and initramfs"
    run_logged vm "making disk, kernel and initramfs" "$here/vm.sh" "$tmp/full" "$tmp/out" "$agent"
    note_agent vm
}

make_dockerfile()
{
    say "rendering the Dockerfile"
    run_logged dockerfile "rendering the Dockerfile" "$here/render.sh" "$definition" "$tmp/out"
}

# ---- the manifest ------------------------------------------------------------------------------

check_budget()
{
    limit=$(image_value "$definition" size_mb)
    made=$tmp/out/rootfs.squashfs
    [ "${limit:-0}" -gt 0 ] && [ -e "$made" ] || return 0
    bytes=$(stat -c %s "$made")
    [ "$bytes" -le $((limit * 1000000)) ] ||
        fail size_mb "the squashfs has $((bytes / 1000000)) MB, more than the $limit MB of size_mb"
}

# Every output with its size and digest; those of earlier forms are copied from the old manifest.
outputs()
{
    [ ! -e "$final/manifest.json" ] || jq -c '.outputs' "$final/manifest.json"
    for file in rootfs.squashfs rootfs.tar.zst oci.tar disk.ext4 kernel initramfs Dockerfile; do
        [ -f "$tmp/out/$file" ] || continue
        jq -cn --arg file "$file" --argjson size "$(stat -c %s "$tmp/out/$file")" \
            --arg sha "$(sha_of "$tmp/out/$file")" \
            '{($file): {bytes: $size, sha256: $sha}}'
    done
}

write_manifest()
{
    # shellcheck disable=SC2016 # dpkg's words
    dpkg-query --admindir="$merged/var/lib/dpkg" -W -f '${Package}\t${Version}\n' | sort -u >"$tmp/packages"
    {
        [ ! -e "$merged/usr/local/bin/node" ] || printf 'node\t%s\n' "$(image_locked node 4)"
        for json in "$merged"/usr/local/lib/node_modules/*/package.json \
            "$merged"/usr/local/lib/node_modules/@*/*/package.json; do
            [ ! -e "$json" ] || jq -r '[.name, .version] | @tsv' "$json"
        done
    } >"$tmp/npm"
    find "$merged/usr/local/lib" -path '*-packages/*.dist-info/METADATA' -exec awk '
        /^Name: / { name = $2 } /^Version: / { print name "\t" $2; exit }' '{}' ';' >"$tmp/pip"
    outputs >"$tmp/outputs"
    jq -n --arg name "$name" --arg version "$version" --arg hash "$hash" --arg suite "$suite" \
        --arg arch "$(image_arch)" --arg user "$(image_value "$definition" user)" \
        --arg workdir "$(image_value "$definition" workdir)" \
        --arg start "$(cat "$definition/start_cmd")" --arg ready "$(cat "$definition/ready_cmd")" \
        --argjson cpus "$(image_value "$definition" cpu_count)" \
        --argjson memory "$(image_value "$definition" memory_mb)" --argjson uid "$image_uid" \
        --argjson size "$(du -s --block-size=1 "$merged" | cut -f 1)" --rawfile packages "$tmp/packages" \
        --rawfile npm "$tmp/npm" --rawfile pip "$tmp/pip" --rawfile env "$definition/env" \
        --rawfile agents "$definition/agents" --slurpfile outputs "$tmp/outputs" '
        def table: split("\n") | map(select(. != "") | split("\t") | {(.[0]): .[1]}) | add // {};
        {name: $name, version: $version, hash: $hash, suite: $suite, arch: $arch, size_bytes: $size,
         user: {name: $user, uid: $uid, gid: $uid, home: ("/home/" + $user)}, workdir: $workdir,
         start_cmd: $start, ready_cmd: $ready, cpu_count: $cpus, memory_mb: $memory,
         env: ($env | split("\n") | map(select(. != ""))),
         agents: ($agents | split("\n") | map(select(. != "") | split(" ") | {(.[0]): .[1]}) | add // {}),
         npm_packages: ($npm | table), pip_packages: ($pip | table), packages: ($packages | table),
         outputs: ($outputs | add // {})}' >"$tmp/out/manifest.json"
}
