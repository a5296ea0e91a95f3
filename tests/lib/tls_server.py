#!/usr/bin/env python3
"""tls_server.py PORT_FILE CERTIFICATE KEY LOG: HTTPS on 127.0.0.1 that refuses every request as an API server does.

It speaks HTTP/1.1 and says that it could speak HTTP/2. LOG gets a line for each request: the protocol that was agreed on
in the handshake, and the request. PORT_FILE gets the port once it listens.
"""

import http.server
import json
import os
import ssl
import sys

port_file, certificate, key, log = sys.argv[1:]


class Refusal(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(log, "a", encoding="ascii") as f:
            f.write(f"{self.connection.selected_alpn_protocol()} {self.command} {self.path}\n")
        body = json.dumps({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                           "message": "the server has seen the request"}).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that refuses our certificate


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
context.set_alpn_protocols(["h2", "http/1.1"])
server = Server(("127.0.0.1", 0), Refusal)
server.socket = context.wrap_socket(server.socket, server_side=True)
with open(port_file + ".new", "w", encoding="ascii") as f:
    f.write(str(server.server_address[1]))
os.rename(port_file + ".new", port_file)
server.serve_forever()
