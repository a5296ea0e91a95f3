#!/bin/sh
# base.sh [SUITE]: writes the minimal Debian, the first layer of every image, as a tar to standard output: a base for
# Dockerfiles on a machine without a registry of images:
#   image/base.sh | docker import - bellhop-base && BASE=bellhop-base image/render.sh slim OUT
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=${here%/*}
# shellcheck source=image/lib.sh
. "$here/lib.sh"
suite=${1:-bookworm}
layer=$image_cache/layers/$(image_minbase "$suite")/fs

[ -d "$layer" ] || {
    echo "base: no image of $suite was built here yet: bellhop image build slim" >&2
    exit 1
}
tar --create --directory="$layer" --sort=name --numeric-owner .
