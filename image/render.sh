#!/bin/sh
# Renders Dockerfile.template to build/image/docker/Dockerfile from the lists the slim image is made
# from, and puts the files it copies where it looks for them. BASE names another base image.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/image/lib.sh"

version=$(sed -n 's/^VERSION := //p' "$top/Makefile")
out=$image_build/docker
mkdir -p "$out"

rm -rf "$out/local"
image_unpack_node "$out/local"

image_list excludes.txt | sed 's/^/path-exclude=/' >"$out/excludes.cfg"
printf 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n' >"$out/apt.conf"

sed -e "s|@VERSION@|$version|g" \
    -e "s|@SUITE@|$image_suite|g" \
    -e "s|@BASE@|${BASE:-debian:$image_suite-slim}|g" \
    -e "s|@PACKAGES@|$(image_list packages.txt | paste -sd ' ')|g" \
    -e "s|@NODE_VERSION@|$(image_locked node 4)|g" \
    -e "s|@NPM_VERSION@|$(image_locked npm 4)|g" \
    -e "s|@DOCKER_DIR@|build/image/docker|g" \
    -e "s|@PORT@|4711|g" \
    "$top/Dockerfile.template" >"$out/Dockerfile.tmp"

if grep -n '@[A-Z_]*@' "$out/Dockerfile.tmp" >&2; then
    echo "render: the template has placeholders nobody fills in (above)" >&2
    exit 1
fi
mv -f "$out/Dockerfile.tmp" "$out/Dockerfile"
echo "  RENDER build/image/docker/Dockerfile"
