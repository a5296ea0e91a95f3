"""E2B's protocol on the wire, for the tests: Connect with JSON over HTTP/1.1, nothing but the standard library."""

import base64
import http.client
import json
import os
import struct
import urllib.parse

URL = urllib.parse.urlparse(os.environ["AGENT_URL"])
DEADLINE_S = 120


def connection():
    return http.client.HTTPConnection(URL.hostname, URL.port, timeout=DEADLINE_S)


def b64(data):
    return base64.b64encode(data).decode()


def request(method, path, body=None, headers=None):
    """Status, headers and body of one plain request."""
    c = connection()
    c.request(method, path, body, headers or {})
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, r.headers, data


def unary(method, message, **headers):
    """The status and the JSON of a unary method of process.Process (or of another service by its whole name)."""
    path = "/" + (method if "/" in method else "process.Process/" + method)
    head = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
    head.update({k.replace("_", "-"): v for k, v in headers.items()})
    status, _, data = request("POST", path, json.dumps(message), head)
    return status, json.loads(data)


def envelope(message, flags=0):
    data = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


class Stream:
    """A server stream: iterate over its messages; `end` is the EndStream's content then."""

    def __init__(self, method, message, **headers):
        path = "/" + (method if "/" in method else "process.Process/" + method)
        head = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        head.update({k.replace("_", "-"): v for k, v in headers.items()})
        self.connection = connection()
        self.connection.request("POST", path, envelope(message), head)
        self.response = self.connection.getresponse()
        self.end = None
        assert self.response.status == 200, self.response.status
        assert self.response.headers["Content-Type"] == "application/connect+json"

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            piece = self.response.read(n - len(data))
            assert piece, "the stream ends within a message"
            data += piece
        return data

    def next(self):
        """The next message, or None at the end."""
        if self.end is not None:
            return None
        flags, n = struct.unpack(">BI", self._exactly(5))
        message = json.loads(self._exactly(n))
        if flags & 2:
            self.end = message
            assert self.response.read() == b"", "something after the end"
            return None
        assert flags == 0
        return message

    def event(self):
        """The next event, as (name, value); (None, end) at the end."""
        message = self.next()
        if message is None:
            return None, self.end
        ((name, value),) = message["event"].items()
        return name, value

    def rest(self):
        """All events to the end: stdout, stderr, end event."""
        out, err, end = b"", b"", None
        while True:
            name, value = self.event()
            if name is None:
                return out, err, end
            if name == "data":
                out += base64.b64decode(value.get("stdout", value.get("pty", "")))
                err += base64.b64decode(value.get("stderr", ""))
            elif name == "end":
                end = value

    def close(self):
        self.response.close()
        self.connection.close()


def start(cmd, *args, tag=None, stdin=False, pty=None, headers=None, **process):
    """A Start, and its pid."""
    message = {"process": {"cmd": cmd, "args": list(args), **process}, "stdin": stdin}
    if tag is not None:
        message["tag"] = tag
    if pty:
        message["pty"] = {"size": {"cols": pty[0], "rows": pty[1]}}
        del message["stdin"]
    s = Stream("Start", message, **(headers or {}))
    name, value = s.event()
    assert name == "start", (name, value)
    return s, value["pid"]


def sh(script, **more):
    return start("/bin/sh", "-c", script, **more)


def same(got, wanted):
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"
