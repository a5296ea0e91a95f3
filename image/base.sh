#!/bin/sh
# base.sh [SUITE]: the minimal Debian that every image stands on, as a tar on standard output: what a
# Dockerfile can be built on where there is no registry of images:
#   image/base.sh | docker import - bellhop-base && BASE=bellhop-base image/render.sh slim OUT
# It is the first layer of any image that was built here.
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
