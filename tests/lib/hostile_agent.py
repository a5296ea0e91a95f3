#!/usr/bin/python3
"""A guest agent that attacks the host's client. It stands in for bellhopd in a box of the process provider
(BELLHOP_AGENT=this file), and answers as one should until there is a file `attack` in the box's
directory (or from the start, with --attack NAME). Then every request but those that the monitor lives by is answered by the attack that is
named in it: see ATTACKS. What each connection was given is nobody's business but the client's; what it
has sent goes to the file `requests`.
"""
import base64
import io
import json
import os
import random
import re
import socket
import sys
import tarfile
import threading
import time

INT64_MAX = (1 << 63) - 1
# A title, a clipboard, a cursor, a line of its own, C1 in both forms, DEL, and bytes that are no UTF-8.
EVIL = "evil\x1b]0;title\x07\x1b]52;c;AAAA\x07\x1b[2J\nbellhop: forged\r\t\x7f\u009b31m\u0085end"
EVIL_B64 = base64.b64encode(b"evil\x1b[2J\nbellhop: forged\r\x7f\x9b\xff\xc3end").decode()
STREAMS = ("Exec/Start", "Exec/Attach", "Fs/Watch", "Search/Glob", "Search/Grep", "Archive/Manifest")


def options(argv):
    return {argv[i]: argv[i + 1] for i in range(1, len(argv) - 1) if argv[i].startswith("--")}


OPTIONS = options(sys.argv)


def attack():
    if "--attack" in OPTIONS:
        return OPTIONS["--attack"]
    try:
        with open("attack", encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


# ---- requests ----

class Request:
    def __init__(self, head, body):
        self.method, self.target = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")[:2]
        self.path = self.target.partition("?")[0]
        self.body = body
        self.rpc = self.path[len("/bellhop.v1."):] if self.path.startswith("/bellhop.v1.") else ""
        try:
            self.params = json.loads(body) if self.rpc and body else {}
        except ValueError:
            self.params = {}

    @property
    def is_stream(self):
        return self.rpc in STREAMS


def read_request(f, conn):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = f.readline(65536)
        if not line:
            return None
        head += line
    if re.search(rb"(?i)\r\nexpect: *100-continue", head) and attack() not in ("silent", "interim"):
        conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if length:
        body = f.read(int(length.group(1)))
    elif re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
        body = b""
        while True:
            n = int(f.readline(100) or b"0", 16)
            body += f.read(n)
            f.readline(100)
            if n == 0:
                break
    else:
        body = b""
    with open("requests", "ab") as log:
        log.write(head)
    return Request(head, body)


# ---- answers ----

def whole(status, body, kind="application/json"):
    if isinstance(body, str):
        body = body.encode()
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def lines(*messages):
    text = "".join((m if isinstance(m, str) else json.dumps(m)) + "\n" for m in messages)
    return whole(200, text, "application/x-ndjson")


OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"
EXIT = {"exit": {"reason": "exited", "code": 0, "signal": None, "oom": False, "tree": "gone"},
        "usage": {"wall_ms": 1}, "stdout": {"text": "", "bytes": 0}, "stderr": {"text": "", "bytes": 0}}


def polite(q):
    """As a box with nothing in it."""
    if q.is_stream:
        if q.rpc == "Exec/Start":
            return lines({"start": {"id": q.params.get("id"), "pid": 7}}, {"end": EXIT})
        return lines({"end": EXIT if q.rpc == "Exec/Attach" else {}})
    if q.rpc in ("Exec/Run", "Exec/Wait", "Exec/Get"):
        return whole(200, json.dumps({"id": q.params.get("id", "x"), "state": "ended", "argv": ["true"], "pid": 7, **EXIT}))
    if q.rpc == "System/Activity":
        return whole(200, json.dumps({"busy": False, "reasons": [], "idle_ms": 1, "holds": [],
                                      "cpu": {"recent_ms": 0, "window_ms": 1000}}))
    if q.rpc == "Fs/Stat":
        return whole(200, json.dumps({"path": q.params.get("path"), "name": "x", "type": "file", "size": 3}))
    if q.method == "GET" and q.path.startswith("/v1/archive"):
        return whole(200, tar(member("x", b"x")), "application/x-tar")
    return whole(200, "{}")


def member(name, data=b"", **more):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mtime = 1
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def evil_tar(q):
    """The requested entries, and many others, in and around the destination."""
    outside = os.getcwd()
    link = {"type": tarfile.SYMTYPE, "linkname": ".."}
    return whole(200, tar(
        member("file.txt", b"asked for\n"), member("x", b"x"), member(".bashrc", b"evil\n"),
        member(".ssh", type=tarfile.DIRTYPE, mode=0o755), member(".ssh/authorized_keys", b"evil\n"),
        member(".git/config", b"[core]\nfsmonitor = touch evil\n"), member(".GIT/hooks/post-checkout", b"evil\n", mode=0o755),
        member("../sibling", b"evil\n"), member("a/../../sibling", b"evil\n"), member("/tmp/../" + outside + "/absolute", b"evil\n"),
        member("up", **link), member("up/through-a-link", b"evil\n"),
        member("hard", type=tarfile.LNKTYPE, linkname="../sentinel"), member("hard", b"evil\n"),
        member("device", type=tarfile.CHRTYPE, devmajor=1, devminor=3), member("setuid", b"evil\n", mode=0o6777),
        member(EVIL, b"evil\n"), member("sentinel", b"evil\n")), "application/x-tar")


def entry(path, **more):
    return {"entry": {"path": path, "type": "file", "size": 5, "mode": "0644", "mtime": "2026-01-01T00:00:00.000000000Z",
                      "sha256": "0" * 64, **more}}


def evil_manifest():
    return lines(*[entry(p) for p in (".git/config", ".GIT/config", "../sibling", "/etc/absolute", "", ".", "..", "a/../../sibling",
                                      "a//b", "./a", "a", ".bashrc", EVIL)],
                 entry("up", type="symlink", target="..", size=0), entry("up/through-a-link"),
                 entry("sentinel", mode="6777"), {"end": {"incomplete": [{"path": EVIL, "error": EVIL}]}})


def evil_names(q):
    """Well-formed answers, with control sequences of terminals in every string."""
    match = {"path": EVIL, "line": 1, "column": 1, "offset": 0, "text": EVIL, "submatches": [[0, 4], [5, 9]],
             "before": [{"line": 1, "text": EVIL}], "after": [{"line": 3, "text": EVIL}]}
    raw = {"path": {"b64": EVIL_B64}, "line": 9, "b64": EVIL_B64, "submatches": []}
    incomplete = [{"path": EVIL, "error": EVIL}]
    command = {"id": EVIL, "state": "running", "argv": [EVIL, {"b64": EVIL_B64}], "pid": 7, "started": EVIL, **EXIT}
    data = [{"data": {"stream": s, "offset": 0, "text": EVIL}} for s in ("stdout", "stderr")]
    answers = {
        "Exec/Start": lambda: lines({"start": {"id": EVIL, "pid": 7}}, *data,
                                    {"end": {**EXIT, "exit": {"reason": "signaled", "signal": EVIL, "tree": EVIL}}}),
        "Exec/Attach": lambda: lines(*data, {"end": EXIT}),
        "Exec/List": lambda: whole(200, json.dumps({"commands": [command, {**command, "state": EVIL}]})),
        "Exec/Get": lambda: whole(200, json.dumps({**command, "stdout": {"text": EVIL, "bytes": 9},
                                                   "stderr": {"b64": EVIL_B64, "bytes": 9}})),
        "Fs/Edit": lambda: whole(200, json.dumps({"replaced": 1, "etag": EVIL, "diff": {"text": EVIL}})),
        "Fs/Watch": lambda: lines({"started": {"path": EVIL}}, {"event": {"type": EVIL, "path": EVIL}},
                                  {"event": {"type": "renamed", "from": EVIL, "path": {"b64": EVIL_B64}}}, {"end": {}}),
        "Search/Glob": lambda: lines({"file": {"path": EVIL, "type": EVIL}}, {"file": {"path": {"b64": EVIL_B64}}},
                                     {"end": {"incomplete": incomplete}}),
        "Search/Grep": lambda: lines({"match": match}, {"match": raw}, {"match": {"path": EVIL, "binary": True, "offset": 1}},
                                     {"match": {"path": EVIL, "count": 3}}, {"end": {"incomplete": incomplete}}),
        "Archive/Manifest": evil_manifest,
        "System/Activity": lambda: whole(200, json.dumps({
            "busy": True, "reasons": [EVIL], "holds": [{"id": EVIL, "reason": EVIL, "expires_in_ms": 9}]})),
        "System/Hold": lambda: whole(200, json.dumps({"id": EVIL})),
        "System/Ports": lambda: whole(200, json.dumps({"ports": [{
            "port": 80, "protocol": EVIL, "address": EVIL, "reachable": True,
            "process": {"pid": 7, "name": EVIL, "command": EVIL}}]})),
        "System/Ready": lambda: whole(200, json.dumps({"ready": False, "tools": [
            {"name": EVIL, "ok": False, "required": True, "error": EVIL}, {"name": EVIL, "ok": True, "version": EVIL}]})),
    }
    if q.rpc in answers:
        return answers[q.rpc]()
    if q.path.startswith("/v1/archive") and q.method != "PUT":
        return evil_tar(q)
    if q.path.startswith("/v1/files") and q.method == "GET":
        return whole(200, EVIL, "application/octet-stream")
    return polite(q)


def wrong_numbers(q):
    n = random.choice((INT64_MAX, -INT64_MAX - 1, -1, 1e308))
    match = {"path": "f", "line": INT64_MAX, "column": -5, "offset": INT64_MAX, "text": "a\nb\nc",
             "submatches": [[-1, INT64_MAX], [INT64_MAX, -INT64_MAX], [2, 1], []],
             "before": [{"line": INT64_MAX, "text": "x\ny"}], "after": [{"line": -INT64_MAX - 1, "text": "z"}]}
    if q.rpc == "Search/Grep":
        return lines({"match": match}, {"match": {"path": "f", "count": -3}},
                     {"end": {"incomplete_more": INT64_MAX, "limit_reached": 7}})
    if q.rpc in ("Exec/Start", "Exec/Attach"):
        return lines({"start": {"pid": n}}, {"gap": {"stream": "stdout", "bytes": n}},
                     {"end": {"exit": {"reason": "exited", "code": INT64_MAX}, "usage": {"wall_ms": n}}})
    if q.is_stream:
        return lines({"entry": {"path": "a", "type": "file", "size": n, "mode": "7" * 30, "mtime": "9" * 30}},
                     {"event": {"type": "created", "path": "a", "directory": 5}}, {"file": {"path": "a"}},
                     {"end": {"incomplete_more": n}})
    return whole(200, json.dumps({
        "id": "x", "pid": n, "size": n, "mode": "9" * 30, "status": n, "offset": n, "replaced": n, "idle_ms": n,
        "commands": [{"id": "x", "state": "ended", "pid": n, "started": "9999-99-99T99:99:99.999Z", "stdout": {"bytes": n}}],
        "ports": [{"port": n, "connections": n, "process": {"pid": n}}], "exit": {"code": n}, "usage": {"wall_ms": n},
        "holds": [{"id": "x", "expires_in_ms": n}], "cpu": {"recent_ms": n, "window_ms": n}, "stdout": {"bytes": n, "text": ""}}))


def wrong_types(q):
    if q.is_stream:
        return lines("5", "[]", "null", {"start": 5}, {"data": []}, {"data": {"text": 5, "b64": {}}}, {"match": [{}]}, {"match": {}},
                     {"file": "x"}, {"file": {"path": {}}}, {"entry": 7}, {"event": None}, {"event": {"path": 5}}, {"gap": {}},
                     {"started": 5}, {"end": []})
    return whole(200, random.choice(("5", "[]", "null", '""', '{"exit":[],"commands":5,"ports":[1,[],{"port":"x"}],"holds":{},'
                                     '"tools":[[],5,{"name":5}],"reasons":[5,{}],"missing":{},"stdout":7,"diff":[],"id":{},"cpu":""}')))


def wrong_sequence(q):
    """Messages twice, out of order, and after the end."""
    if q.is_stream:
        end = {"end": {**EXIT, "cursor": "c", "incomplete": [{"path": "a", "error": "b"}]}}
        return lines({"end": EXIT}, {"start": {"pid": 7}}, *[end] * 1000, {"data": {"text": "late"}}, {"file": {"path": "late"}},
                     {"match": {"path": "late", "line": 1, "text": "late"}}, end)
    return whole(200, '{"a":1}{"a":2}')


def error(q):
    return whole(random.choice((400, 404, 409, 500, 503)), json.dumps({
        "code": random.choice(("internal", "invalid_argument", "not_found", "data_loss", "permission_denied")),
        "message": EVIL, "field": EVIL, "detail": {EVIL: EVIL}}))


def many_objects(q):
    """6 MiB that were 950."""
    body = "[" + ",".join(["{}"] * 2100000) + "]"
    return lines('{"match":%s}' % body) if q.is_stream else whole(200, '{"a":%s}' % body)


def deep(q):
    body = "[" * 500000 + "]" * 500000
    return lines(body) if q.is_stream else whole(200, body)


def large_text(q):
    text = "\\u0001" * 800000
    body = '{"id":"x","text":"%s","diff":{"text":"%s"},"stdout":{"text":"%s","bytes":1}}' % (text, text, text)
    return lines('{"data":%s}' % body, '{"match":{"path":"a","line":1,"text":"%s"}}' % text) if q.is_stream else whole(200, body)


# Replies without an end: (the head, the piece that repeats, the pause between pieces).

def endless(head, piece, pause=0.0):
    def send(q, s):
        s.sendall(head)
        while True:
            s.sendall(piece)
            if pause:
                time.sleep(pause)
    return send


def messages(make):
    return b"".join(json.dumps(make(i)).encode() + b"\n" for i in range(5000))


def silence(q, s):
    while s.recv(65536):
        pass


def close(q, s):
    pass


def half(q, s):
    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{\"start\":{}}\n{\"da")


def noise(q, s):
    s.sendall(random.randbytes(100000))


ANSWERS = {"names": evil_names, "numbers": wrong_numbers, "types": wrong_types, "sequence": wrong_sequence, "error": error,
           "objects": many_objects, "deep": deep, "text": large_text, "archive": lambda q: evil_names(q),
           "redirect": lambda q: b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
           "upgrade": lambda q: b"HTTP/1.1 101 X\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n" + b"x" * 10000,
           "nothing": lambda q: b"HTTP/1.1 204 X\r\n\r\n"}
SENDERS = {"silent": silence, "close": close, "half": half, "noise": noise,
           "head": endless(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", 0.1), "interim": endless(b"", b"HTTP/1.1 102 X\r\n\r\n", 0.01),
           "headers": endless(b"HTTP/1.1 200 OK\r\n", b"A: " + b"b" * 1000 + b"\r\n"),
           "trickle": endless(OPEN, b" ", 0.2), "flood": endless(OPEN, b"x" * 65536),
           "matches": endless(OPEN, messages(lambda n: {"match": {"path": f"p{n}", "line": n, "text": "x" * 50}})),
           "files": endless(OPEN, messages(lambda n: {"file": {"path": f"d/p{n}", "type": "file"}})),
           "entries": endless(OPEN, messages(lambda n: {"entry": {"path": f"d/p{n}", "type": "file", "size": 1, "mode": "0644",
                                                                  "mtime": "2026-01-01T00:00:00Z"}})),
           "left-alone": endless(OPEN, messages(lambda n: {"entry": {"path": ".bellhop-tmp-x", "type": "file"}})),
           "output": endless(OPEN + b'{"start":{"pid":7}}\n', messages(lambda n: {"data": {"stream": "stdout", "text": "x" * 100}}))}
ATTACKS = [*ANSWERS, *SENDERS]


def serve(conn):
    f = conn.makefile("rb")
    try:
        while True:
            q = read_request(f, conn)
            if q is None:
                return
            name = attack()
            # The monitor's own call: no test is about a box whose lease can't be set.
            if q.path == "/v1/health" or q.rpc == "System/Lease":
                name = ""
            if name in SENDERS:
                SENDERS[name](q, conn)
                return
            conn.sendall(ANSWERS[name](q) if name else polite(q))
    except (OSError, ValueError):
        pass
    finally:
        f.close()
        conn.close()


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--attacks":
        print("\n".join(ATTACKS))
        return
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(OPTIONS["--unix"])
    listener.listen(64)
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=serve, args=(conn,), daemon=True).start()


main()
