#!/usr/bin/env python3
"""churn.py SOCKET ADDRESS TOKEN PORT ROUNDS: fifty clients of the daemon connect, read, reset, half-close and vanish at
random bytes, while a box is made, paused, resumed, stopped, started and destroyed ROUNDS times. Then nothing of the clients
must be left. PORT: a web_server.py. Prints the seed (SEED=N for the same again) and the number of connections."""
import json
import os
import random
import re
import socket
import struct
import sys
import threading
import time

SOCKET, ADDRESS, TOKEN, PORT, ROUNDS = sys.argv[1:]
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
RUN = '{"argv":["sh","-c","while echo line; do sleep 0.05; done"],"timeout_ms":3000}'
REQUESTS = [
    ("GET /v1/events", "", ""),
    ("GET /v1/events?since=0", "", ""),
    ("GET /v1/boxes/BOX/events", "", ""),
    ("GET /v1/boxes/BOX/terminal?cmd=echo%20x;sleep%200.2", UPGRADE, "\x81\x85abcd12345"),
    ("GET /v1/boxes", "", ""),
    ("GET /v1/boxes/BOX/files/?list=true", "", ""),
    ("POST /v1/boxes/BOX/rpc/Exec/Start", f"Content-Length: {len(RUN)}\r\n", RUN),
    (f"GET /v1/boxes/BOX/proxy/{PORT}/socket", UPGRADE, "hello"),
    (f"GET /v1/boxes/BOX/proxy/{PORT}/big", "", ""),
    (f"POST /v1/boxes/BOX/proxy/{PORT}/echo", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
]
is_over = False
n_connections = 0


def connect(r):
    if r.random() < 0.5:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(SOCKET)
        return s, ""
    host, port = ADDRESS.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 60), f"Authorization: Bearer {TOKEN}\r\n"


def visit(r):
    line, headers, body = r.choice(REQUESTS)
    s, token = connect(r)
    text = f"{line.replace('BOX', r.choice(('one', 'churn')))} HTTP/1.1\r\nHost: localhost\r\n{token}{headers}\r\n{body}"
    data = text.encode("latin1")
    if r.random() < 0.2:
        data = data[:r.randrange(len(data))]
    s.sendall(data)
    how = r.choice(("close", "reset", "half", "at once"))
    if how != "at once":
        s.settimeout(r.choice((0.01, 0.1, 0.5)))
        left = r.choice((1, 100, 5000, 100000))
        while left > 0 and (piece := s.recv(left)):
            left -= len(piece)
    if how == "half":
        s.shutdown(socket.SHUT_WR)
        s.recv(r.choice((1, 65536)))
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def client(i):
    global n_connections
    r = random.Random(SEED + i)
    while not is_over:
        n_connections += 1
        try:
            visit(r)
        except (OSError, EOFError):
            pass


def ask(verb, path, body=b""):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(120)
    s.connect(SOCKET)
    s.sendall(f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
              + body)
    got = b""
    while piece := s.recv(65536):
        got += piece
    s.close()
    return int(got.split()[1]), got


def metric(name):
    return int(re.search(rb"^%s (\d+)" % name, ask("GET", "/metrics")[1], re.M)[1])


print("seed", SEED, flush=True)
begun = time.monotonic()
threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(50)]
for t in threads:
    t.start()
box = json.dumps({"name": "churn", "provider": "process", "agent": "none", "no_upload": True}).encode()
for _ in range(int(ROUNDS)):
    assert ask("POST", "/v1/boxes", box)[0] in (200, 201)
    for step in "pause", "resume", "stop", "start":
        status, reply = ask("POST", f"/v1/boxes/churn/{step}")
        assert status < 500 or b'"unavailable"' in reply or b'"deadline' in reply, reply
    assert ask("DELETE", "/v1/boxes/churn")[0] in (200, 204)
is_over = True
for t in threads:
    t.join(60)
deadline = time.monotonic() + 60
while (left := (metric(b"bellhop_event_streams"), metric(b"bellhop_connections"))) != (0, 1):
    assert time.monotonic() < deadline, left
    time.sleep(0.1)
print("connections", n_connections, "seconds", round(time.monotonic() - begun, 1))
