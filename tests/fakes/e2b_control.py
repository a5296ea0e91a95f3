#!/usr/bin/env python3
"""A control plane of E2B's kind, for one guest: creates, connects to and kills "sandboxes", which are all the same agent.

--guest URL      where the agent answers
--token TOKEN    the secret that clients get; an open agent is closed with it by the first create
--ready FILE     gets the port once it listens
Each create gives the guest its variables, default user and time by POST /init, as E2B does.
Needs nothing but Python's standard library.
"""

import argparse
import datetime
import json
import re
import threading
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Control(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fake-e2b"
    guest = token = None
    sandboxes = {}
    lock = threading.Lock()

    def log_message(self, *args):
        pass

    def reply(self, status, value=None):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        text = b""
        if self.headers.get("Transfer-Encoding") == "chunked":  # as node's fetch sends all of them
            while n := int(self.rfile.readline(), 16):
                text += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
        else:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(text) if text else {}

    def init_guest(self, wanted):
        """E2B's handshake. One at a time: it replaces all variables."""
        message = {
            "defaultUser": "user",
            "envVars": wanted.get("envVars") or {},
            "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "hyperloopIP": "127.0.0.1",
            "lifecycleID": str(uuid.uuid4()),
        }
        if self.token:
            message["accessToken"] = self.token
        request = urllib.request.Request(self.guest + "/init", json.dumps(message).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as r:
            assert r.status == 204 and r.headers["X-Envd-Version"]

    def sandbox(self, name):
        return {"sandboxID": name, "templateID": self.sandboxes[name], "clientID": "x", "alias": None,
                "envdVersion": "0.6.13", "envdAccessToken": self.token, "domain": None}

    def do_POST(self):
        path = self.path.partition("?")[0]
        body = self.body()
        connect = re.fullmatch(r"(?:/v2)?/sandboxes/([^/]+)/connect", path)
        with self.lock:
            if path in ("/sandboxes", "/v2/sandboxes"):
                self.init_guest(body)
                name = "i" + uuid.uuid4().hex[:19]
                self.sandboxes[name] = body.get("templateID", "base")
                self.reply(201, self.sandbox(name))
            elif connect and connect[1] in self.sandboxes:
                self.reply(200, self.sandbox(connect[1]))
            elif re.fullmatch(r"/sandboxes/[^/]+/timeout", path):
                self.reply(204)
            else:
                self.reply(404, {"code": 404, "message": f"no {path} here"})

    def do_DELETE(self):
        m = re.fullmatch(r"/sandboxes/([^/]+)", self.path.partition("?")[0])
        with self.lock:
            if m and self.sandboxes.pop(m[1], None) is not None:
                self.reply(204)
            else:
                self.reply(404, {"code": 404, "message": "no such sandbox"})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--guest", required=True)
    p.add_argument("--token")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--ready")
    a = p.parse_args()
    Control.guest, Control.token = a.guest, a.token
    server = ThreadingHTTPServer(("127.0.0.1", a.port), Control)
    if a.ready:
        with open(a.ready, "w", encoding="ascii") as f:
            f.write(f"{server.server_port}\n")
    server.serve_forever()


main()
