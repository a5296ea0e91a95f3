"""A reverse proxy as Kubernetes' API server is one: it decodes and cleans paths ("//" and "%2F%2F" become "/"), drops
Authorization, and says so with X-Forwarded-For. Usage: collapse_proxy.py PORT [quiet] prints its port; quiet: it tells
nobody that it is there."""
import http.client
import posixpath
import re
import socketserver
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler

TARGET, QUIET = int(sys.argv[1]), "quiet" in sys.argv[2:]
HOP = {"connection", "transfer-encoding", "host", "authorization", "content-length"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def forward(self):
        path, mark, query = self.path.partition("?")
        path = urllib.parse.unquote_to_bytes(path).decode("latin1")
        path = posixpath.normpath(re.sub("//+", "/", path)) + ("/" if path.endswith("/") and path != "/" else "")
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        if not QUIET:
            headers["X-Forwarded-For"] = "127.0.0.1"
        there = http.client.HTTPConnection("127.0.0.1", TARGET, timeout=60)
        body = self.body()
        there.request(self.command, urllib.parse.quote(path, safe="/", encoding="latin1") + mark + query,
                      body or None, headers)
        answer = there.getresponse()
        data = answer.read()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        if answer.status not in (204, 304):
            self.send_header("Content-Length",
                             answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = do_OPTIONS = forward


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


with Server(("127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
