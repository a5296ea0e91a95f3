"""A receiver of webhooks for tests: prints its port, then appends each post as a line of JSON to FILE. While the file
FILE.fail is there it answers 500. The path of the URL makes it hostile: /redirect sends the post to /hook, /endless
answers 200 with a body that never ends, /slow answers with one byte of a header at a time, /huge with headers without
end, /junk with no HTTP."""

import http.server
import json
import os
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        failing = os.path.exists(sys.argv[1] + ".fail")
        with open(sys.argv[1] + (".failed" if failing else ""), "a", encoding="utf-8") as out:
            out.write(json.dumps({"body": body, "headers": dict(self.headers), "path": self.path}) + "\n")
        hostile = getattr(self, "send_" + self.path[1:], None)
        if hostile:
            self.close_connection = True
            try:
                hostile()
            except OSError:
                pass
            return
        self.send_response(500 if failing else 204)
        self.end_headers()

    def send_redirect(self):
        self.send_response(307)
        self.send_header("Location", "/hook")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_endless(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            self.wfile.write(b"10000\r\n" + b"z" * 65536 + b"\r\n")

    def send_slow(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.server.stopped.wait(0.2):
            self.wfile.write(b"y")
            self.wfile.flush()

    def send_huge(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for i in range(1000000):
            self.wfile.write(b"X-%d: y\r\n" % i)

    def send_junk(self):
        self.wfile.write(b"\0\xff junk\r\n\r\n")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
server.daemon_threads = True
server.stopped = threading.Event()
print(server.server_port, flush=True)
server.serve_forever()
