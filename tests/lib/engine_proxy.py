"""Stands between bellhop and a container engine or a guest agent, and does one thing wrong.

    engine_proxy.py LISTEN ENGINE CONTROL

LISTEN and ENGINE are unix sockets. Bytes go both ways, also after an upgrade. CONTROL is a file, read anew for each
request: one JSON document, or no file for no fault:

    {"match": "^POST /containers/create", "fault": "hang", "nth": 1, "times": 1}

match   a regular expression for "METHOD PATH", the path without "/v1.NN" and with its query
nth     the first request that goes wrong, 1 by default; times: how many do, all by default
fault   500         answers with that status and a message as engines and guest agents have it, and does not pass the
                    request on
        429, 503    the same with an error as guest agents have it
        writer      answers as a guest agent that does not know that field
        409         an answer as Podman's for a runtime that ended early
        hang        passes nothing on and never answers
        cut         closes before the request is passed on
        lost        passes it on, and closes in place of the answer
        half        passes the first megabyte of its body on, and closes both connections
        mute        passes it on, and keeps the answer
        nonsense    answers bytes that are no HTTP
        endless     answers a body without an end
        header      answers a header of ten megabytes
        shape       answers JSON of another shape
        other       passes it on, and puts the container id of zeroes into the answer
        words       a refusal with control sequences
        kill_before kills the process that sends it, and does not pass it on
        kill_after  passes it on, and kills the process in place of the answer
        set         passes it on, and replaces in the answer's body: "from" and "to" are texts

LISTEN.log gets a line "METHOD PATH" for each request, LISTEN.hits one for each that went wrong, before it does.
The numbers count from the last change of CONTROL.
"""

import json
import os
import re
import signal
import socket
import struct
import sys
import threading

LISTEN, ENGINE, CONTROL = sys.argv[1:4]
HEX_ID = re.compile(rb"[0-9a-f]{64}")
lock = threading.Lock()
seen = {"key": None, "matches": 0}


def note(suffix, line):
    with lock, open(LISTEN + suffix, "a") as f:
        f.write(line + "\n")


def fault_of(line):
    """The fault of a request, or None."""
    try:
        st = os.stat(CONTROL)
        with open(CONTROL) as f:
            fault = json.load(f)
    except (FileNotFoundError, ValueError):
        return None
    with lock:
        key = (st.st_ino, st.st_mtime_ns)
        if seen["key"] != key:
            seen.update(key=key, matches=0)
        if not re.search(fault["match"], line):
            return None
        seen["matches"] += 1
        first = fault.get("nth", 1)
        if not first <= seen["matches"] < first + fault.get("times", 1 << 30):
            return None
    return fault


class Ended(Exception):
    pass


HALF_BYTES = 1 << 20


def first_half(to):
    """A take() for pass_body() that ends the connection after some of the body."""
    left = HALF_BYTES

    def take(piece):
        nonlocal left
        to.sendall(piece[:left])
        left -= len(piece)
        if left <= 0:
            raise Ended

    return take


class Reader:
    def __init__(self, sock):
        self.sock, self.data = sock, b""

    def more(self):
        piece = self.sock.recv(65536)
        if not piece:
            raise Ended
        self.data += piece

    def until(self, end):
        while end not in self.data:
            self.more()
        n = self.data.index(end) + len(end)
        got, self.data = self.data[:n], self.data[n:]
        return got

    def some(self, most):
        if not self.data:
            self.more()
        got, self.data = self.data[:most], self.data[most:]
        return got


def header(head, name):
    m = re.search(rb"\r\n" + name + rb":[ \t]*([^\r\n]*)", head, re.I)
    return m.group(1) if m else None


def pass_body(head, reader, take):
    """Gives take() the raw bytes of a body; returns whether the connection goes on."""
    if (header(head, b"transfer-encoding") or b"").lower() == b"chunked":
        while True:
            size = reader.until(b"\r\n")
            take(size)
            n = int(size.split(b";")[0], 16) + 2
            while n:
                piece = reader.some(n)
                take(piece)
                n -= len(piece)
            if int(size.split(b";")[0], 16) == 0:
                return
    n = int(header(head, b"content-length") or 0)
    while n:
        piece = reader.some(n)
        take(piece)
        n -= len(piece)


def pump(reader, to):
    """Until the end of the one side, which reaches the other."""
    try:
        if reader.data:
            to.sendall(reader.data)
        while piece := reader.sock.recv(65536):
            to.sendall(piece)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def answer(client, status, body, kind=b"application/json"):
    client.sendall(b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (status, kind, len(body), body))


def answer_wrongly(client, kind):
    """A fault for which the engine is not asked."""
    if kind == "500":
        answer(client, b"500 Internal Server Error", b'{"code":"internal","message":"the injected failure"}\n')
    elif kind == "429":
        answer(client, b"429 Too Many Requests", b'{"code":"resource_exhausted","message":"the injected refusal"}')
    elif kind == "503":
        answer(client, b"503 Service Unavailable", b'{"code":"unavailable","message":"the injected refusal"}')
    elif kind == "writer":
        answer(client, b"400 Bad Request",
               b'{"code":"invalid_argument","message":"unknown field \'writer\'","field":"writer"}')
    elif kind == "409":
        answer(client, b"409 Conflict", b'{"message":"OCI runtime error: can\'t get final child\'s PID from pipe: EOF"}\n')
    elif kind == "words":
        answer(client, b"500 Internal Server Error", json.dumps({"message": "a\x1b[2J\u202eb\nc"}).encode())
    elif kind == "nonsense":
        client.sendall(os.urandom(4096))
    elif kind == "shape":
        answer(client, b"200 OK", b'[{"Id":["x"],"State":7,"Config":"y"},null]')
    elif kind == "header":
        client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
        for _ in range(160):
            client.sendall(b"x" * 65536)
    elif kind == "endless":
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        while True:
            client.sendall(b"1," * 32768)
    elif kind == "hang":
        while client.recv(65536):
            pass
    else:
        assert kind == "cut", kind


def changed(body, fault):
    if fault["fault"] == "other":
        return HEX_ID.sub(b"0" * 64, body, 1)
    return body.replace(fault["from"].encode(), fault["to"].encode())


def change_answer(head, reader, client, fault):
    raw = b""

    def take(piece):
        nonlocal raw
        raw += piece

    pass_body(head, reader, take)
    if (header(head, b"transfer-encoding") or b"").lower() == b"chunked":
        body = b""
        while raw:
            size, _, raw = raw.partition(b"\r\n")
            n = int(size.split(b";")[0], 16)
            body += raw[:n]
            raw = raw[n + 2 :]
    else:
        body = raw
    body = changed(body, fault)
    answer(client, head.split(b"\r\n")[0].split(b" ", 1)[1], body)


def kill_peer(client):
    """The process that connected."""
    pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    os.kill(pid, signal.SIGKILL)


def serve_request(client, reader):
    """False: the connection ends."""
    head = reader.until(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n")[0].decode().split(" ", 2)
    line = f"{method} {re.sub('^/v[0-9.]+', '', path)}"
    note(".log", line)
    fault = fault_of(line)
    kind = fault["fault"] if fault else None
    if fault:
        note(".hits", f"{kind} {line}")
    if kind == "kill_before":
        kill_peer(client)
        return False
    if fault and kind not in ("lost", "half", "mute", "other", "set", "kill_after"):
        # A client that sends its body still reads the answer.
        if kind not in ("cut", "hang"):
            pass_body(head, reader, lambda piece: None)
        answer_wrongly(client, kind)
        return False
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect(ENGINE)
        engine.sendall(head)
        pass_body(head, reader, first_half(engine) if kind == "half" else engine.sendall)
        back = Reader(engine)
        reply = back.until(b"\r\n\r\n")
        while reply.split(b" ")[1] == b"100":
            reply = back.until(b"\r\n\r\n")
        if kind == "kill_after":
            kill_peer(client)
        if kind == "mute":
            answer_wrongly(client, "hang")
        if kind in ("lost", "mute", "kill_after"):
            return False
        if fault:
            change_answer(reply, back, client, fault)
            return True
        client.sendall(reply)
        status = reply.split(b" ")[1]
        has_length = header(reply, b"content-length") or header(reply, b"transfer-encoding")
        is_stream = "/events" in path or not has_length
        if status in (b"204", b"304") or method == "HEAD":
            return True
        if status == b"101" or is_stream:
            up = threading.Thread(target=pump, args=(reader, engine), daemon=True)
            up.start()
            pump(back, client)
            if status == b"101":
                up.join()
            return False
        pass_body(reply, back, client.sendall)
        return True


def serve(client):
    reader = Reader(client)
    with client:
        try:
            while serve_request(client, reader):
                pass
        except (Ended, OSError):
            pass
        try:
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(LISTEN)
    listener.listen(128)
    print("ready", flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
