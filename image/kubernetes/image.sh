#!/bin/sh
# image.sh [IMAGE...]: the image of the daemon in a cluster, bellhop/daemon:VERSION, as build/image/daemon.oci.tar. It
# knows the boxes' images IMAGE (slim), which it builds in their OCI form; the cluster pulls those from its registry.
# Root.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=${here%/*/*}
images=${BELLHOP_IMAGES:-$top/build/image}
bellhop=${BELLHOP_BUILD:-$top/build/release}/bellhop
version=$("$bellhop" version --json | jq -r .version)
[ $# -gt 0 ] || set -- slim

tmp=$(mktemp -d "${TMPDIR:-/tmp}/bellhop-daemon-XXXXXX")
trap 'rm -rf --one-file-system "$tmp"' EXIT
oci=$tmp/oci
root=$tmp/root

sha_of()
{
    sha256sum "$1" | cut -c 1-64
}

# blob FILE: moves it to the blobs; prints its descriptor without the type.
blob()
{
    digest=$(sha_of "$1")
    jq -cn --arg digest "sha256:$digest" --argjson size "$(stat -c %s "$1")" '{digest: $digest, size: $size}'
    mv "$1" "$oci/blobs/sha256/$digest"
}

# blob_of DESCRIPTOR: its file.
blob_of()
{
    echo "$oci/blobs/sha256/$(printf '%s' "$1" | jq -r '.digest[7:]')"
}

# install_programs: as `make install`, without what programs are built with or people read.
install_programs()
{
    DESTDIR=$root PREFIX=/usr/local VERSION=$version "$top/scripts/install.sh" install >/dev/null
    rm -rf "$root/usr/local/include" "$root"/usr/local/lib/libbellhop.* "$root/usr/local/lib/pkgconfig" \
        "$root/usr/local/lib/systemd" "$root/usr/local/share/man" "$root/usr/local/share/bash-completion" \
        "$root/usr/local/share/zsh" "$root/usr/local/share/fish"
}

# install_image NAME: a box's image as the provider needs it: the manifest, and the note of the agent in it. Its bytes
# are in the registry: an empty file stands for them.
install_image()
{
    "$bellhop" image build "$1" --form oci
    case $1 in
    */*) name=$(sed -n 's/^template_name = "\(.*\)"/\1/p' "$1/e2b.toml") ;;
    *) name=$1 ;;
    esac
    from=$(readlink -f "$images/$name")
    to=$root/usr/local/share/bellhop/images/${from##*/}
    mkdir -p "$to"
    cp "$from/manifest.json" "$from/.agent.oci" "$to"
    : >"$to/oci.tar"
    ln -sfn "${from##*/}" "${to%/*}/$name"
    ln -sfn "${from##*/}" "${to%/*}/$name:$(jq -r .version "$from/manifest.json")"
}

"$bellhop" image build "$here" --form oci
cp -R "$(readlink -f "$images/daemon-base")/oci" "$oci"
install_programs
for image; do
    install_image "$image"
done
chmod -R go+rX "$root"

epoch=${SOURCE_DATE_EPOCH:-1735689600}
tar --create --file="$tmp/layer.tar" --directory="$root" --sort=name --numeric-owner --owner=0 --group=0 \
    --mtime="@$epoch" --format=posix --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime usr
diff=sha256:$(sha_of "$tmp/layer.tar")
gzip -n -6 "$tmp/layer.tar"
layer=$(blob "$tmp/layer.tar.gz")

base_manifest=$(blob_of "$(jq -c '.manifests[0]' "$oci/index.json")")
base_config=$(blob_of "$(jq -c .config "$base_manifest")")
jq -c --arg diff "$diff" --arg version "$version" '
    .rootfs.diff_ids += [$diff] | .history += [{created: .created, created_by: "bellhop"}] |
    .config = {User: "1000:1000", WorkingDir: "/", Env: [.config.Env[] | select(startswith("PATH="))],
        ExposedPorts: {"7070/tcp": {}}, Entrypoint: ["/usr/local/bin/bellhop"], Cmd: ["daemon"],
        Labels: {"org.opencontainers.image.title": "bellhop/daemon", "org.opencontainers.image.version": $version}}' \
    "$base_config" >"$tmp/config"
config=$(blob "$tmp/config")
jq -c --argjson config "$config" --argjson layer "$layer" '
    .config += $config | .layers += [.layers[0] + $layer]' "$base_manifest" >"$tmp/manifest"
manifest=$(blob "$tmp/manifest")
# For `docker load` before version 25; it uses the same blobs.
jq -c --arg tag "bellhop/daemon:$version" '
    def file: "blobs/sha256/" + .digest[7:];
    [{Config: (.config | file), RepoTags: [$tag], Layers: [.layers[] | file]}]' \
    "$(blob_of "$manifest")" >"$tmp/manifest.json"
jq -c --argjson manifest "$manifest" --arg version "$version" '
    .manifests[0] += $manifest | .manifests[0].annotations = {"org.opencontainers.image.ref.name": $version,
        "io.containerd.image.name": ("docker.io/bellhop/daemon:" + $version)}' "$oci/index.json" >"$tmp/index.json"
mv "$tmp/index.json" "$oci/index.json"
rm -f "$base_manifest" "$base_config"

tar --create --file="$images/.daemon.oci.tar.$$" --sort=name --numeric-owner --owner=0 --group=0 --mode=u=rwX,go=rX \
    --mtime="@$epoch" --directory="$oci" blobs index.json oci-layout --directory="$tmp" manifest.json
mv -f "$images/.daemon.oci.tar.$$" "$images/daemon.oci.tar"
echo "made bellhop/daemon:$version: $images/daemon.oci.tar"
