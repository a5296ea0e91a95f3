"""An engine without containers: says its name as its default runtime. NAME SOCKET, or NAME tcp CERT KEY CA: then it
wants a client certificate and prints its port."""
import http.server
import json
import os
import socketserver
import ssl
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        body = {}
        if path.endswith("/info"):
            body = {"DefaultRuntime": sys.argv[1], "Name": sys.argv[1], "SecurityOptions": [], "NCPU": 2, "MemTotal": 1 << 30}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self):
        return "client"

    def log_message(self, *args):
        pass


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


if sys.argv[2] != "tcp":
    server = UnixServer(sys.argv[2], Handler)
else:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    context.load_verify_locations(sys.argv[5])
    context.verify_mode = ssl.CERT_REQUIRED
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
server.serve_forever()
