#!/bin/sh
# make-image.sh [IMAGE]: `bellhop image build` of this tree's own program, without a state directory
# of anybody's: IMAGE as squashfs and as the directory that tests look into. Without one: slim, and
# what the tests' boxes stand on, as a directory only, since nothing is gained by packing that.
set -eu

cd "$(dirname "$0")/.."
BELLHOP_STATE_DIR=$PWD/build/image/.state
BELLHOP_CACHE_DIR=$PWD/build/cache
export BELLHOP_STATE_DIR BELLHOP_CACHE_DIR
unset BELLHOP_IMAGES BELLHOP_TEMPLATES BELLHOP_IMAGE_CACHE
bellhop=build/release/bellhop

if [ $# -gt 0 ]; then
    echo "  IMAGE $1"
    exec "$bellhop" image build "$1" --form squashfs --form dir
fi
echo "  IMAGE slim, tests"
"$bellhop" image build slim --form squashfs --form dir
"$bellhop" image build ./tests/lib/image --form dir
