#!/usr/bin/env python3
"""soak_daemon.py SOCKET PID MINUTES: load for tests/long/soak-daemon.sh, and its judgement."""
import base64
import http.client
import itertools
import json
import os
import socket
import sys
import threading
import time

SOCKET, PID, MINUTES = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
BOXES = 4
STREAMS = 20
SETTLE_S = 15  # longer than the daemon keeps an agent (5 s) and an idle thread (10 s)

go = threading.Event()
stop = threading.Event()
lock = threading.Lock()
counts, failures = {}, []
n_busy = 0


class Unix(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("bellhop", timeout=120)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(SOCKET)


def ask(verb, path, body=None, good=(200, 201, 204), **headers):
    """A connection of its own, as curl makes one."""
    c = Unix()
    try:
        if isinstance(body, dict):
            body = json.dumps(body)
            headers["Content-Type"] = "application/json"
        c.request(verb, path, body, headers)
        reply = c.getresponse()
        data = reply.read()
        if reply.status not in good:
            raise RuntimeError(f"{verb} {path}: {reply.status} {data[:300]}")
        return data
    finally:
        c.close()


def calls(n):
    c = Unix()  # one connection for all of a round
    for path in ("/v1/boxes", "/v1/info", f"/v1/boxes/box-{n % BOXES}", f"/v1/boxes/box-{n % BOXES}/activity",
                 "/v1/history?limit=100", "/metrics", "/v1/boxes/none", "/v1/nothing"):
        c.request("GET", path)
        reply = c.getresponse()
        reply.read()
        assert reply.status in (200, 404), (path, reply.status)
    c.close()


def gateway(n):
    box, data = f"/v1/boxes/box-{n % BOXES}", os.urandom(300000)
    file = f"{box}/files/f-{threading.get_ident()}-{n % 7}"
    ask("PUT", file, data)
    assert ask("GET", file) == data
    assert b"Linux" in ask("POST", f"{box}/rpc/Exec/Run", {"argv": ["uname"]})
    ask("GET", f"{box}/proxy/1/", good=(502,))
    ask("GET", f"{box}/archive?path=.")


def terminal(n):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(SOCKET)
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall((f"GET /v1/boxes/box-{n % BOXES}/terminal?cmd=echo%20soaked HTTP/1.1\r\nHost: bellhop\r\nUpgrade: websocket\r\n"
               f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode())
    data = b""
    if n % 3:  # every third client leaves at once
        while b'"exit"' not in data:
            piece = s.recv(65536)
            assert piece, data
            data += piece
        assert b"soaked" in data, data
    s.close()


def streams(n):
    """Clients come, read a little, and go."""
    c = Unix()
    path = "/v1/events" if n % 2 else f"/v1/boxes/box-{n % BOXES}/events"
    c.request("GET", path, headers={"Last-Event-ID": "1"} if n % 3 == 0 else {})
    reply = c.getresponse()
    assert reply.status == 200
    if n % 3:
        assert b"event: box" in reply.read1(4096)
    c.close()


def lives(n):
    name = f"life-{n}"
    ask("POST", "/v1/boxes", {"name": name, "provider": "process", "agent": "none"})
    ask("POST", f"/v1/boxes/{name}/rpc/Exec/Run", {"argv": ["true"]})
    if n % 2:
        ask("POST", f"/v1/boxes/{name}/stop", {})
        ask("POST", f"/v1/boxes/{name}/start", {})
    ask("DELETE", f"/v1/boxes/{name}")


def follow_for_ever():
    """A client that stays; one that the daemon cut comes back."""
    while not stop.is_set():
        c = Unix()
        try:
            c.request("GET", "/v1/events")
            reply = c.getresponse()
            while reply.read1(65536) and not stop.is_set():
                pass
        except OSError:
            pass
        finally:
            c.close()


def work(task, pause_s):
    global n_busy
    for n in itertools.count():
        go.wait()
        if stop.is_set():
            return
        with lock:
            n_busy += 1
        try:
            task(n)
            with lock:
                counts[task.__name__] = counts.get(task.__name__, 0) + 1
        except Exception as e:  # noqa: BLE001
            with lock:
                failures.append(f"{task.__name__}: {e!r}")
        finally:
            with lock:
                n_busy -= 1
        stop.wait(pause_s)


def sample(minute):
    status = dict(line.split(":", 1) for line in open(f"/proc/{PID}/status") if ":" in line)
    smaps = dict(line.split(":", 1) for line in open(f"/proc/{PID}/smaps_rollup") if line.count(":") == 1)
    private = sum(int(smaps[k].split()[0]) for k in ("Private_Dirty", "Private_Clean"))
    row = {"fds": len(os.listdir(f"/proc/{PID}/fd")), "threads": int(status["Threads"]), "private": private,
           "rss": int(status["VmRSS"].split()[0])}
    print(f"minute {minute:5.1f}: {row['fds']:4d} descriptors {row['threads']:3d} threads {row['private']:6d} KiB private "
          f"{row['rss']:6d} KiB RSS   {' '.join(f'{k} {v}' for k, v in sorted(counts.items()))}", flush=True)
    return row


def settle():
    """The load pauses, and what lingers goes."""
    go.clear()
    deadline = time.monotonic() + 120
    while n_busy and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not n_busy, "a call does not end"
    time.sleep(SETTLE_S)


def judge(rows):
    """Later is flat against earlier: less than a megabyte or a tenth more; 8 contexts of the library are kept, of 2
    descriptors each, once so many calls ran at once."""
    early, late = rows[len(rows) // 4: len(rows) // 2 + 1], rows[-max(1, len(rows) // 4):]
    bad = []
    for key, slack in (("fds", 6), ("threads", 2), ("private", 1024)):
        was, now = max(r[key] for r in early), min(r[key] for r in late)
        slack = max(slack, was // 10) if key == "private" else slack
        print(f"{key}: at most {was} early, at least {now} late")
        if now > was + slack:
            bad.append(f"{key} grew from {was} to {now}")
    return bad


for i in range(BOXES):
    ask("POST", "/v1/boxes", {"name": f"box-{i}", "provider": "process", "agent": "none", "timeout_ms": 24 * 3600 * 1000,
                              "on_idle": "keep"})
threads = [threading.Thread(target=work, args=a, daemon=True) for a in (
    (calls, 0.3), (calls, 0.5), (gateway, 0.5), (gateway, 0.9), (terminal, 1), (streams, 0.2), (streams, 0.4), (lives, 3))]
threads += [threading.Thread(target=follow_for_ever, daemon=True) for _ in range(STREAMS)]
for t in threads:
    t.start()
rows, begun = [], time.monotonic()
while time.monotonic() - begun < MINUTES * 60:
    go.set()
    stop.wait(60 - SETTLE_S)
    settle()
    rows.append(sample((time.monotonic() - begun) / 60))
stop.set()
go.set()
for f in failures[:10]:
    print("failed:", f)
bad = judge(rows)
if failures:
    bad.append(f"{len(failures)} calls failed")
print("not flat: " + ", ".join(bad) if bad else f"flat over {len(rows)} samples")
sys.exit(bool(bad))
