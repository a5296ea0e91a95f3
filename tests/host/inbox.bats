# time-limit: 280
# The integration tests once more, inside a box as `up` makes it: the shipped agent started by them
# there, on this machine's programs. Its cgroup can't be seen or written there, so that what the agent can't
# know it has to call unknown. Each inner failure is told by its name.

load ../lib/oci

setup_file()
{
    oci_setup_file
    oci_setup
    export OCI_TMP STATE
    drive prepare "$B" image=host pids=4000 memory=2147483648
    drive start "$B" image=host pids=4000 memory=2147483648 >/dev/null
    wait_until 10 box_answers "$B"
    # What is skipped is printed, and counted below.
    tar -C "$REPO" --exclude=tests/fuzz/corpus -cf - tests -C "$(dirname "$AGENT")" bellhopd |
        box_curl "$B" "/v1/archive?path=/tmp/inbox" -f -o /dev/null -T -
}
setup() { BOXES=("$B"); }
teardown_file()
{
    BOXES=("$B")
    oci_teardown
}

B=00000000000000b0

# inner FILE [FILTER]: runs tests/integration/FILE in the box; the names of what failed on failure.
inner()
{
    jq -n --arg f "/tmp/inbox/tests/integration/$1" --arg only "${2:-.}" \
        '{shell: "exec bats --tap -f \"$only\" \"$file\"", env: {file: $f, only: $only, BELLHOPD: "/tmp/inbox/bellhopd",
          BELLHOP_IN_BOX: "1", LC_ALL: "C.UTF-8"}, user: "root", cwd: "/tmp", timeout_ms: 250000}' >"$BATS_TEST_TMPDIR/request"
    box_curl "$B" /bellhop.v1.Exec/Run -H 'Content-Type: application/json' --max-time 260 \
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

@test "inbox_the_agent_in_a_box_cannot_see_its_cgroup_and_says_unknown" {
    [ "$(jq -n '{shell: "kill -9 $$"}' | box_curl "$B" /bellhop.v1.Exec/Run -H 'Content-Type: application/json' --data-binary @- |
        jq -c '[.exit.reason, .exit.oom, .usage.tree_peak_bytes]')" = '["signaled","unknown",null]' ]
    jq -n '{argv: ["true"], limits: {memory_bytes: 1000000000}}' |
        box_curl "$B" /bellhop.v1.Exec/Run -H 'Content-Type: application/json' --data-binary @- |
        jq -e '.code == "unimplemented" and .field == "limits.memory_bytes"'
}

@test "inbox_exec" { inner exec.bats; }
@test "inbox_exec_matrix" { inner exec-matrix.bats "all groups|three descriptors|told the same|working directory"; }
@test "inbox_exec_cgroup" { inner exec-cgroup.bats; }
@test "inbox_files" { inner files.bats; }
@test "inbox_fs" { inner fs.bats; }
@test "inbox_archive" { inner archive.bats; }
@test "inbox_search" { inner search.bats; }
