#!/bin/sh
# make-image.sh [IMAGE]: runs `bellhop image build` of this tree, with state and cache below build/: builds IMAGE as
# squashfs and as the directory that tests inspect. Without IMAGE: slim, and the base of the tests' boxes, which is
# built as a directory only.
set -eu

cd "$(dirname "$0")/.."
BELLHOP_STATE_DIR=$PWD/build/image/.state
BELLHOP_CACHE_DIR=$PWD/build/cache
export BELLHOP_STATE_DIR BELLHOP_CACHE_DIR
unset BELLHOP_IMAGES BELLHOP_TEMPLATES BELLHOP_IMAGE_CACHE
bellhop=build/release/bellhop
# Other users read the images too: they may have an engine.
mkdir -p build/image

if [ $# -gt 0 ]; then
    echo "  IMAGE $1"
    exec "$bellhop" image build "$1" --form squashfs --form dir
fi
echo "  IMAGE slim, tests"
"$bellhop" image build slim --form squashfs --form dir
"$bellhop" image build ./tests/lib/image --form dir
