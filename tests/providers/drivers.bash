# drivers.bash: the table of the providers that the suite runs against, and their driver without a monitor.
#
# A row: the provider's name | options of `bellhop up` for it | options of the driver for it (the keys of drive.c)

DRIVERS=(
    'oci|--provider oci|network=none'
    'process|--provider process|'
)

BELLHOP_BUILD=${BELLHOP_BUILD:-$BATS_TEST_DIRNAME/../../build/release}
REPO=$BATS_TEST_DIRNAME/../..
IMAGE_DIR=${IMAGE_DIR:-$(readlink -f "$REPO/build/image/tests")}
AGENT=${AGENT:-$(readlink -f "$BELLHOP_BUILD/bellhopd")}

# build_drive: for setup_file. Sets DRIVE.
build_drive()
{
    DRIVE=$BATS_FILE_TMPDIR/drive
    export DRIVE
    # shellcheck disable=SC2046
    gcc -D_GNU_SOURCE -std=gnu11 -O1 -I"$REPO/guest" -I"$REPO/host-client" \
        -I"$REPO/host-client/include" -o "$DRIVE" "$REPO/tests/providers/drive.c" \
        "$BELLHOP_BUILD/libbellhop.a" \
        $(pkg-config --libs libcurl jansson libarchive sqlite3 nettle) -pthread
}

# each_driver CASE: runs it for each row. Sets PROVIDER, UP and DRIVE_OPTIONS.
each_driver()
{
    local row options

    for row in "${DRIVERS[@]}"; do
        IFS='|' read -r PROVIDER options DRIVE_OPTIONS <<<"$row"
        read -r -a UP <<<"$options"
        echo "provider: $PROVIDER"
        "$1"
        clear_boxes
    done
}
