# inbox.bash: the integration tests once more, inside a box as `up` makes it: the shipped agent started
# by them there, on this machine's programs. Used by bats files, after oci.bash:
#
#   setup_file() { inbox_setup_file; }    setup() { inbox_setup; }    teardown_file() { inbox_teardown_file; }
#   @test "..." { inner FILE [FILTER]; }
#
# Each inner failure is reported by its name. The recorded answers are copied out of the box at the end.

B=00000000000000b0 # the same in each file: their state directories differ

inbox_setup_file()
{
    oci_setup_file
    oci_setup
    export OCI_TMP STATE
    drive prepare "$B" image=host pids=4000 memory=2147483648
    drive start "$B" image=host pids=4000 memory=2147483648 >/dev/null
    wait_until 10 box_answers "$B"
    mkdir -p "$OCI_TMP/in/bin" "$OCI_TMP/in/wire"
    ln -s "$AGENT" "$OCI_TMP/in/bellhopd"
    [ -z "${WIRE_BIN:-}" ] || cp -a "$WIRE_BIN/." "$OCI_TMP/in/bin/"
    tar -C "$REPO" --exclude=tests/fuzz/corpus -cf "$OCI_TMP/in.tar" tests
    tar -C "$OCI_TMP/in" -rhf "$OCI_TMP/in.tar" bellhopd wire
    tar -C "$OCI_TMP/in" -rf "$OCI_TMP/in.tar" bin
    box_curl "$B" "/v1/archive?path=/tmp/inbox" -f -o /dev/null -T "$OCI_TMP/in.tar"
    rm "$OCI_TMP/in.tar"
}

inbox_setup() { BOXES=("$B"); }

inbox_teardown_file()
{
    if [ -n "${WIRE_DIR:-}" ]; then
        box_curl "$B" "/v1/archive?path=/tmp/inbox/wire" -f | tar -xf - -C "$WIRE_DIR" --no-same-owner
    fi
    BOXES=("$B")
    oci_teardown
}

# inner FILE [FILTER]: runs tests/integration/FILE in the box; prints the failed tests, if any.
inner()
{
    jq -n --arg f "/tmp/inbox/tests/integration/$1" --arg only "${2:-.}" --arg wire "${WIRE_BIN:+/tmp/inbox/wire}" \
        '{shell: "PATH=/tmp/inbox/bin:$PATH; exec bats --tap -f \"$only\" \"$file\"",
          env: ({file: $f, only: $only, BELLHOPD: "/tmp/inbox/bellhopd", BELLHOP_IN_BOX: "1", LC_ALL: "C.UTF-8"} +
            if $wire == "" then {} else {WIRE_DIR: $wire} end),
          user: "root", cwd: "/tmp", timeout_ms: 1500000}' >"$BATS_TEST_TMPDIR/request"
    box_curl "$B" /bellhop.v1.Exec/Run -H 'Content-Type: application/json' --max-time 1560 \
        --data-binary "@$BATS_TEST_TMPDIR/request" >"$BATS_TEST_TMPDIR/reply"
    jq -r '.stdout.text, .stderr.text' "$BATS_TEST_TMPDIR/reply" >"$BATS_TEST_TMPDIR/tap"
    sed -n 's/^ok [0-9]* \(.* # skip.*\)/# in the box: \1/p' "$BATS_TEST_TMPDIR/tap" >&3
    if ! jq -e '.exit.code == 0' "$BATS_TEST_TMPDIR/reply" >/dev/null; then
        echo "in the box, $1:"
        grep -A 12 '^not ok' "$BATS_TEST_TMPDIR/tap" || cat "$BATS_TEST_TMPDIR/reply"
        return 1
    fi
    grep -q '^ok ' "$BATS_TEST_TMPDIR/tap"
}
