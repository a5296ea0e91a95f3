#!/usr/bin/env python3
"""A server in a daemon's place that answers with what it should not: false_daemon.py CASE. Prints its port."""
import http.server
import json
import sys

BOX = {"name": "one", "id": "0123456789abcdef", "provider": "process", "image": "", "state": "running", "cause": "",
       "workdir": "/w", "created_ms": 1, "state_since_ms": 1, "deadline_ms": 0, "updated_ms": 1, "paused_ms": 0,
       "resumed_ms": 0, "used_ms": 1, "agent": {"name": "none"}, "guest": {}}


def answer(case, path):
    """Status and body."""
    if case == "web":
        return 404, b"<html>nothing here</html>"
    if case == "html":
        return 200, b"<html>hello</html>"
    if case == "large":
        return 200, b" " * (17 << 20)
    if case == "deep":
        return 200, b"[" * 100000
    if case == "many":
        return 200, b'{"boxes":[' + b"{}," * 4000000 + b"{}]}"
    if case == "pages":
        return 200, json.dumps({"boxes": [BOX], "next_cursor": "one"}).encode()
    if case == "list":
        return 200, json.dumps({"boxes": 7}).encode()
    if case == "redirect":
        return 302, b""
    box = dict(BOX)
    box.update({"name": {"name": "../x"}, "id": {"id": "../../../etc"}, "workdir": {"workdir": "x"},
                "state": {"state": "ruined"}, "time": {"created_ms": "x"}}.get(case, {}))
    if case == "missing":
        del box["agent"]
    return 200, json.dumps(box if "?" not in path else {"boxes": [box], "next_cursor": None}).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, body = answer(sys.argv[1], self.path)
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    do_POST = do_GET

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
