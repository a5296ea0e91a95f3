#!/usr/bin/env python3
"""exec_many.py SOCKET TOKEN DIR N LIMIT: N commands at once, each held at a gate, where the agent allows
LIMIT: all that are allowed run at the same time, each past them is refused at once, and when the gate
opens each gives its own output and code. Prints one JSON line."""
import errno
import json
import os
import select
import socket
import sys
import time

path, token, directory, n, limit = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
gate = os.path.join(directory, "gate")
os.mkfifo(gate)


class Call:
    """One request on a connection of its own."""

    def __init__(self, method, body):
        data = json.dumps(body).encode()
        self.data = b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)
        self.socket.sendall(b"POST /bellhop.v1.Exec/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                            b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                            % (method.encode(), token.encode(), len(data)) + data)

    def reply(self, timeout_s):
        end = time.monotonic() + timeout_s
        while True:
            wait = end - time.monotonic()
            if wait <= 0 or not self.poll.poll(wait * 1000):
                return None
            piece = self.socket.recv(65536)
            if not piece:
                break
            self.data += piece
        head, body = self.data.split(b"\r\n\r\n", 1)
        return int(head.split()[1]), json.loads(body)


def open_gate():
    """Each reader's open returns, and its end of file comes at once. Without a reader nothing is waited for:
    they may all be through, and only their answers on the way."""
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as e:
        if e.errno != errno.ENXIO:
            raise


def running():
    commands = Call("List", {}).reply(60)[1]["commands"]
    return sum(c["state"] == "running" for c in commands)


calls = [Call("Run", {"shell": f": <{gate}; echo {i}; exit {i % 200}"}) for i in range(n)]
deadline = time.monotonic() + 180
while running() < min(n, limit) and time.monotonic() < deadline:
    time.sleep(0.05)
most = running()
begin = time.monotonic()
late = Call("Run", {"argv": ["true"]}).reply(60)
late_ms = (time.monotonic() - begin) * 1000
open_gate()
deadline = time.monotonic() + 180
results = []
for i, call in enumerate(calls):
    answer = call.reply(1)
    while answer is None and time.monotonic() < deadline:
        open_gate()  # for one that came to the gate after it had been open
        answer = call.reply(1)
    results.append(answer)
good = sum(r is not None and r[0] == 200 and r[1]["stdout"]["text"] == f"{i}\n" and r[1]["exit"]["code"] == i % 200
           for i, r in enumerate(results))
refused = sum(r is not None and r[0] == 429 and r[1]["code"] == "resource_exhausted" for r in results)
print(json.dumps({"at_once": most, "good": good, "refused": refused, "late": late[1].get("code"), "late_ms": int(late_ms)}))
