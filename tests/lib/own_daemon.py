#!/usr/bin/env python3
"""A server in the place of a state directory's own daemon: own_daemon.py STATE_DIR SOCKET CASE [UID]. Holds the lock there,
says the socket, prints "ready", and then what it was asked. Cases:
other: it says another instance; gone: it is gone after its health; restart: it is gone for half a second after it has
shown the box 'one'; silent: it never answers; stolen: it answers as UID, another user."""
import fcntl
import json
import os
import socket
import sys
import time

STATE, PATH, CASE = sys.argv[1:4]
INSTANCE = "0123456789abcdef" * 2
BOX = {"name": "one", "id": "0123456789abcdef", "provider": "process", "image": "", "state": "running", "cause": "",
       "workdir": "/w", "created_ms": 1, "state_since_ms": 1, "deadline_ms": 0, "updated_ms": 1, "paused_ms": 0,
       "resumed_ms": 0, "used_ms": 1, "agent": {"name": "none", "version": "", "url": "", "username": "", "exec_id": "",
       "port": 0}, "guest": {"url": "", "socket": "/s", "token_file": "/t"}, "ports": {}, "labels": {},
       "options": {"network": "host", "privilege": "sudo", "runtime": "", "on_timeout": "stop", "on_idle": "stop",
                   "on_gone": "destroy", "timeout_ms": 1, "idle_ms": 1, "cpu_millis": 0, "memory_bytes": 0,
                   "disk_bytes": 0, "pids": 0},
       "project": None, "keys": [], "transcript": None, "sources": {}, "snapshot": None}


def listen():
    s = socket.socket(socket.AF_UNIX)
    s.bind(PATH)
    s.listen(8)
    return s


def read_request(c):
    data = b""
    while b"\r\n\r\n" not in data:
        more = c.recv(65536)
        if not more:
            return None
        data += more
    return data.split(b" HTTP/")[0].decode()


lock = open(os.path.join(STATE, "daemon.lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)
json.dump({"pid": os.getpid(), "socket": PATH, "instance": INSTANCE}, lock)
lock.flush()
if CASE == "stolen":
    os.setuid(int(sys.argv[4]))
server = listen()
print("ready", flush=True)
while True:
    c, _ = server.accept()
    while request := read_request(c):
        print(request, flush=True)
        if CASE == "silent":
            time.sleep(60)
        if request.endswith("/v1/health"):
            said = INSTANCE if CASE != "other" else INSTANCE[::-1]
            c.sendall(b"HTTP/1.1 204 No Content\r\nBellhop-Daemon: " + said.encode() + b"\r\n\r\n")
            if CASE == "gone":
                os.unlink(PATH)
                sys.exit(0)
            continue
        body = json.dumps(dict(BOX, state="stopped" if "stop" in request else "running")).encode()
        ends = CASE == "restart" and request == "GET /v1/boxes/one"
        if ends:
            os.unlink(PATH)
            server.close()
        c.sendall(b"HTTP/1.1 200 OK\r\n" + ends * b"Connection: close\r\n" +
                  b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if ends:
            c.close()
            time.sleep(0.5)
            server = listen()
            break
    c.close()
