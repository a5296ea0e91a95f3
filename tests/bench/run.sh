#!/bin/sh
# Sizes and latencies, measured here and now, then each area's ratios: tests/bench/AREA.sh measures
# ours and the peer's alternating in one run. There is no verdict: the figures depend on the machine.
# Arguments: areas (default: all). BELLHOP_BENCH_BOX names a running box for one more line.
set -eu

cd "$(dirname "$0")/../.."
built=build/release

areas()
{
    for script in tests/bench/*.sh; do
        area=$(basename "$script" .sh)
        [ "$area" = run ] || echo "$area"
    done
}

# A failed bench does not hide the others; it is reported at the end.
run_areas()
{
    failed=
    for area in "$@"; do
        printf '\n== %s\n' "$area"
        "tests/bench/$area.sh" || failed="$failed $area"
    done
    [ -z "$failed" ] || {
        echo "failed:$failed" >&2
        exit 1
    }
}

if [ $# -gt 0 ]; then
    run_areas "$@"
    exit 0
fi
echo "== sizes and latencies"
printf '%-44s %s bytes\n' "bellhopd" "$(stat -c %s $built/bellhopd)"
$built/bench/agent_bench "$PWD/$built/bellhopd" "${N:-50}"

if [ -n "${BELLHOP_BENCH_BOX:-}" ]; then
    for _ in $(seq 30); do
        start=$(date +%s%N)
        $built/bellhop exec "$BELLHOP_BENCH_BOX" -- true
        echo $((($(date +%s%N) - start) / 1000))
    done | sort -n | awk '{ t[NR] = $1 } END {
        printf "%-44s p50 %8.3f ms   p95 %8.3f ms   (%d runs)\n", "bellhop exec BOX -- true",
            t[int(NR / 2) + 1] / 1000, t[int(NR * 0.95) + 1] / 1000, NR }'
fi

# shellcheck disable=SC2046 # one word an area
run_areas $(areas)
