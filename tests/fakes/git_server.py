#!/usr/bin/env python3
"""A private git repository over HTTP for tests: git's own http-backend behind Basic authentication.

  git_server.py --root DIR --token-file FILE --ready FILE --seen FILE

Serves the repositories below DIR to those who send the token as the password (of any user); all others get 401.
While a request with the token is open, the clone that sent it runs: the command lines and environments of all
processes of this machine are looked through then. One line of JSON for each request is appended to --seen:
{"path", "authorized", "shown": ["cmdline of PID: ...", ...]}. --ready gets the port once it listens.
"""

import argparse
import base64
import glob
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def processes_that_show(text):
    """Each process with the text, plain or as Basic authentication has it, in what others can read of it."""
    shown = []
    for kind in ("cmdline", "environ"):
        for name in glob.glob(f"/proc/[0-9]*/{kind}"):
            try:
                with open(name, "rb") as f:
                    data = f.read()
            except OSError:  # it has ended
                continue
            if any(form in data for form in text):
                shown.append(f"{kind} of {name.split('/')[2]}")
    return shown


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def authorized(self):
        scheme, _, word = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            return base64.b64decode(word).partition(b":")[2] == self.server.token
        except ValueError:
            return False

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def note(self, authorized):
        basic = base64.b64encode(b"x-access-token:" + self.server.token)
        shown = processes_that_show((self.server.token, basic)) if authorized else []
        with self.server.lock, open(self.server.seen, "a", encoding="utf-8") as f:
            f.write(json.dumps({"path": self.path, "authorized": authorized, "shown": shown}) + "\n")

    def refuse(self):
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="private"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def serve(self):
        body = self.read_body()
        authorized = self.authorized()
        self.note(authorized)
        if not authorized:
            self.refuse()
            return
        path, _, query = self.path.partition("?")
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            stdout=subprocess.PIPE,
            check=True,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": self.server.root,
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "REMOTE_USER": "x-access-token",
                "REMOTE_ADDR": "127.0.0.1",
            },
        ).stdout
        head, _, answer = done.partition(b"\r\n\r\n")
        headers = [line.decode().split(": ", 1) for line in head.split(b"\r\n")]
        status = next((int(v.split()[0]) for k, v in headers if k == "Status"), 200)
        self.send_response(status)
        for key, value in headers:
            if key != "Status":
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = serve


def main():
    args = argparse.ArgumentParser()
    for name in ("root", "token-file", "ready", "seen"):
        args.add_argument(f"--{name}", required=True)
    given = args.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.root, server.seen, server.lock = given.root, given.seen, threading.Lock()
    with open(given.token_file, "rb") as f:
        server.token = f.read().strip()
    with open(given.ready + ".new", "w", encoding="utf-8") as f:
        f.write(str(server.server_port))
    os.rename(given.ready + ".new", given.ready)
    server.serve_forever()


main()
