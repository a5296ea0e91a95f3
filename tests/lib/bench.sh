# shellcheck shell=sh
# bench.sh: the time of whole commands, in rows. Used by tests/bench; $dir is the bench's own directory:
#
#   timed ROW COMMAND...      runs it and adds its time to the row; what it says is shown if it fails
#   ratio ROW TEXT [PEER]     prints the median of a row and its ratio to the median of the row PEER
#
# A row that has no times is not printed.

# shellcheck disable=SC2154 # dir: set by the bench
timed()
{
    row=$1
    shift
    began=$(date +%s%N)
    "$@" >"$dir/said" 2>&1 </dev/null || { cat "$dir/said" >&2; return 1; }
    echo $((($(date +%s%N) - began) / 1000)) >>"$dir/row.$row"
}

median() { sort -n "$dir/row.$1" 2>/dev/null | awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'; }

ratio()
{
    [ -s "$dir/row.$1" ] || return 0
    sort -n "$dir/row.$1" | awk -v text="$2" -v peer="$(median "${3:-$1}")" '{ t[NR] = $1 } END {
        p50 = t[int((NR + 1) / 2)]
        ratio = !peer || peer == p50 ? "" : sprintf("   %.2f times", p50 / peer)
        printf "%-44s p50 %8.1f ms   least %8.1f ms   (%d runs)%s\n", text, p50 / 1000, t[1] / 1000, NR, ratio }'
}
