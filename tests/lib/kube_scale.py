#!/usr/bin/env python3
"""kube_scale.py DAEMON_SOCKET DAEMON_PID CALLS N: makes N boxes by the daemon, one after the other, then removes them.

CALLS has a line "METHOD PATH" for each call of the API server (engine_proxy.py). Prints rates, calls a box and memory.
Fails if the last third of the boxes needs more calls or memory a box than the first third, or the boxes that are there
meanwhile need more calls, beyond the bounds below.
Times are printed and not judged."""
import http.client
import json
import os
import re
import socket
import sys
import time

DAEMON, PID, CALLS, N = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
PART = N // 3
MOST_RATIO = 1.5  # of calls a box: the last third beside the first
LEAST_CALLS = 3  # of a box: fewer are a record of calls that is not one
MOST_REST = 12  # calls a minute of a box while others are made or removed; 5 to 6 at rest (docs/kubernetes.md)
MOST_DAEMON_KIB = 64  # of the daemon's own memory, for each box more
BOX = re.compile("bellhop-([0-9a-f]{16})")
TRIAL = "0" * 16


class Unix(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("bellhop", timeout=300)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(300)
        self.sock.connect(DAEMON)


def ask(verb, path, body=None):
    c = Unix()
    try:
        c.request(verb, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
        reply = c.getresponse()
        data = reply.read()
        assert reply.status in (200, 201, 204), f"{verb} {path}: {reply.status} {data[:600]}"
        return json.loads(data) if data else None
    finally:
        c.close()


class Calls:
    """The calls since the last question: of a box, of the others by name, and the ones that name none."""

    def __init__(self):
        self.file = open(CALLS)
        self.rest = ""

    def take(self):
        text = self.rest + self.file.read()
        lines = text.split("\n")
        self.rest = lines.pop()
        return lines

    def of_step(self, box):
        mine, others = [], 0
        for line in self.take():
            named = BOX.search(line)
            if named and named.group(1) not in (box, TRIAL):
                others += 1
            else:
                mine.append(line)
        return mine, others


def own_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_"))


def processes_of_boxes():
    """The monitors and their guards: their command lines end with the box's id, in this daemon's state directory."""
    state = os.environ["BELLHOP_STATE_DIR"].encode()
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
            with open(f"/proc/{pid}/comm") as f:
                name = f.read().strip()
            if state in line and name.startswith("bellhop-") and int(pid) != PID:
                found.setdefault(name, []).append(own_kib(pid))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def mean(values):
    return sum(values) / len(values)


def kinds(steps):
    """How often a box is the cause of each kind of call."""
    counts = {}
    for line in (line for step in steps for line in step):
        method, path = line.split(" ", 1)
        what = "trial" if "dryRun" in path else "watch" if "watch=1" in path else method
        key = f"{what} {re.search('/namespaces/[^/]*/([a-z]*)', path).group(1)}"
        counts[key] = counts.get(key, 0) + 1
    return ", ".join(f"{k} {n / len(steps):.1f}" for k, n in sorted(counts.items()))


def run(what, step):
    """step(i) for each box, and the calls for each; of the other boxes' calls, how many come in a minute of one box."""
    calls.take()
    begun = time.monotonic()
    steps, others, box_minutes, last = [], 0, 0.0, begun
    for i in range(N):
        mine, more = calls.of_step(step(i))
        now = time.monotonic()
        steps.append(mine)
        others += more
        box_minutes += (i if what == "create" else N - i) * (now - last) / 60
        last = now
        if what == "create" and (i + 1) % PART == 0:
            daemon_kib.append(own_kib(PID))
    seconds = time.monotonic() - begun
    first, end = mean([len(s) for s in steps[:PART]]), mean([len(s) for s in steps[-PART:]])
    rest = others / box_minutes
    print(f"{what}: {N / seconds:.1f} boxes a second; calls a box: first {PART}: {first:.1f}, last {PART}: {end:.1f}"
          f" ({kinds(steps)}); of each other box {rest:.2f} a minute meanwhile", flush=True)
    assert first >= LEAST_CALLS, f"{what}: {first} calls a box"
    assert end <= first * MOST_RATIO, f"{what}: the cost of a box is not flat: {first} calls, then {end}"
    assert rest <= MOST_REST, f"{what}: each other box needs {rest} calls a minute"


def create(i):
    return ask("POST", "/v1/boxes", {"name": f"many-{i}", "provider": "kubernetes", "agent": "none",
                                     "timeout_ms": 4 * 3600 * 1000, "on_idle": "keep"})["id"]


def remove(i):
    box = ask("GET", f"/v1/boxes/many-{i}")["id"]
    ask("DELETE", f"/v1/boxes/many-{i}")
    return box


calls, daemon_kib = Calls(), [own_kib(PID)]
run("create", create)
states = {}
for i in range(N):
    state = ask("GET", f"/v1/boxes/many-{i}")["state"]
    states[state] = states.get(state, 0) + 1
assert states == {"running": N}, states
found = processes_of_boxes()
with_boxes = ", ".join(f"{PART * (i + 1)} boxes: {kib}" for i, kib in enumerate(daemon_kib[1:]))
print(f"memory of its own: daemon {daemon_kib[0]} KiB, with {with_boxes}; "
      + "; ".join(f"{len(v)} {k}: {mean(v):.0f} KiB each" for k, v in sorted(found.items())), flush=True)
assert len(found["bellhop-monitor"]) == N, found
assert (daemon_kib[-1] - daemon_kib[1]) / (N - PART) < MOST_DAEMON_KIB, daemon_kib
run("remove", remove)
