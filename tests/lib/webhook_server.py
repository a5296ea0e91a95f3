"""A receiver of webhooks for tests: prints its port, then appends each post as a line of JSON to FILE. While the file
FILE.fail is there it answers 500."""

import http.server
import json
import os
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        failing = os.path.exists(sys.argv[1] + ".fail")
        with open(sys.argv[1] + (".failed" if failing else ""), "a", encoding="utf-8") as out:
            out.write(json.dumps({"body": body, "headers": dict(self.headers)}) + "\n")
        self.send_response(500 if failing else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
