#!/bin/sh
# The daemon's own figures: memory while it is idle, the list of 1,000 boxes and the memory after it, and the memory of
# 2,000 idle clients of a stream of events. Private: pages that no other process shares; RSS also counts pages of
# libraries and of the program's file.
# Usage: tests/bench/daemon.sh [BOXES [CLIENTS]]
set -eu

boxes=${1:-1000}
clients=${2:-2000}
top=$(cd "$(dirname "$0")/../.." && pwd)
bin=$top/build/release
dir=$(mktemp -d "${BENCH_DIR:-/dev/shm}/bellhop-bench-XXXXXX")
export BELLHOP_STATE_DIR="$dir/state" BELLHOP_CACHE_DIR="$dir/cache" HOME="$dir/home"
daemon=''
cleanup()
{
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait 2>/dev/null || true
    for name in one two; do
        "$bin/bellhop" rm "$name" >/dev/null 2>&1 || true
    done
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

start_daemon()
{
    "$bin/bellhop-daemon" --state-dir "$dir/state" --cache-dir "$dir/cache" --socket "$dir/sock" \
        --ready-fd 3 3>"$dir/ready" &
    daemon=$!
    read -r _ <"$dir/ready"
}

stop_daemon()
{
    kill "$daemon"
    wait "$daemon" || true
    daemon=''
}

memory() # TEXT
{
    awk -v t="$1" '/^Rss:/ { rss = $2 } /^Pss:/ { pss = $2 } /^Private_(Clean|Dirty):/ { private += $2 }
        END {
            printf "%-42s RSS %6.1f MB   PSS %5.1f MB   private %5.1f MB\n", t, rss / 1024, pss / 1024, private / 1024
        }' \
        "/proc/$daemon/smaps_rollup"
}

mkdir "$dir/home"
mkfifo "$dir/ready"
start_daemon
sleep 2
memory "idle, no boxes"
stop_daemon

"$bin/bellhop" up --empty --provider process --agent none --name one >/dev/null 2>&1
"$bin/bellhop" stop one >/dev/null 2>&1
python3 "$top/tests/lib/many_boxes.py" "$dir/state" one "$((boxes - 1))"
start_daemon
python3 - "$dir/sock" "$daemon" "$boxes" <<'P'
import http.client, socket, statistics, sys, time
c = http.client.HTTPConnection("x")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(sys.argv[1])
def cpu():
    f = open(f"/proc/{sys.argv[2]}/schedstat").read().split()
    return sum(int(open(f"/proc/{sys.argv[2]}/task/{t}/schedstat").read().split()[0])
               for t in __import__("os").listdir(f"/proc/{sys.argv[2]}/task")) / 1e6
times, work = [], []
for _ in range(50):
    before, begin = cpu(), time.perf_counter()
    c.request("GET", "/v1/boxes")
    size = len(c.getresponse().read())
    times.append((time.perf_counter() - begin) * 1000)
    work.append(cpu() - before)
title = f"list of {sys.argv[3]} boxes, {size // 1024} KiB"
print(f"{title:42} p50 {statistics.median(times):5.1f} ms   "
      f"least {min(times):5.1f} ms   processor p50 {statistics.median(work):5.1f} ms")
P
sleep 2
memory "after 50 lists of $boxes boxes"
stop_daemon

"$bin/bellhop" up --empty --provider process --agent none --name two >/dev/null 2>&1
sqlite3=$(command -v sqlite3 || true)
[ -z "$sqlite3" ] || "$sqlite3" "$dir/state/store.db" "DELETE FROM boxes WHERE name LIKE 'z-%'" || true
start_daemon
sleep 1
python3 - "$dir/sock" "$daemon" "$clients" <<'P'
import resource, socket, sys, time
n, pid = int(sys.argv[3]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_NOFILE, (n + 100, max(n + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
def memory():
    rows = [l.split() for l in open(f"/proc/{pid}/smaps_rollup")][1:]
    return {k: sum(int(r[1]) for r in rows if r[0].startswith(k)) for k in ("Rss:", "Private")}
def grow(kind, text):
    before, open_ = memory(), []
    for _ in range(n):
        s = socket.socket(socket.AF_UNIX)
        s.connect(sys.argv[1])
        s.sendall(text)
        open_.append(s)
    for s in open_:
        s.settimeout(60)
        data = b""
        while kind not in data:
            data += s.recv(65536)
    time.sleep(3)
    after = memory()
    print(f"{str(n) + ' idle clients of /v1/events, each':42} RSS {(after['Rss:'] - before['Rss:']) / n:6.1f} KiB   "
          f"private {(after['Private'] - before['Private']) / n:5.1f} KiB")
    return open_
keep = grow(b"event: box", b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
P
memory "when they have left"
