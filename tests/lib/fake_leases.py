#!/usr/bin/env python3
"""fake_leases.py SOCKET DIR: the Leases of an API server, on a unix socket. DIR/NAME.json is the Lease: a test reads and
writes it, which counts as a write of another client: its version is that of the content. Each write of a client appends
its holder to DIR/holders."""
import http.server
import json
import os
import socketserver
import sys
import zlib

PREFIX = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
path, place = sys.argv[1:]


class Leases(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, obj):
        data = json.dumps(obj).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, reason):
        self.answer(status, {"kind": "Status", "reason": reason, "message": reason})

    def read_lease(self, name):
        try:
            with open(f"{place}/{name}.json", "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        lease = json.loads(data)
        lease["metadata"]["resourceVersion"] = str(zlib.crc32(data))
        return lease

    def write_lease(self, name, lease):
        with open(f"{place}/.new", "w") as file:
            json.dump(lease, file)
        os.rename(f"{place}/.new", f"{place}/{name}.json")
        with open(f"{place}/holders", "a") as file:
            file.write(lease["spec"]["holderIdentity"] + "\n")
        return self.read_lease(name)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self):
        lease = self.read_lease(self.path[len(PREFIX) + 1 :])
        self.answer(200, lease) if lease else self.refuse(404, "NotFound")

    def do_POST(self):
        lease = self.body()
        name = lease["metadata"]["name"]
        if self.read_lease(name):
            self.refuse(409, "AlreadyExists")
        else:
            self.answer(201, self.write_lease(name, lease))

    def do_PUT(self):
        lease = self.body()
        name = self.path[len(PREFIX) + 1 :]
        before = self.read_lease(name)
        if not before:
            self.refuse(404, "NotFound")
        elif before["metadata"]["resourceVersion"] != lease["metadata"].get("resourceVersion"):
            self.refuse(409, "Conflict")
        else:
            self.answer(200, self.write_lease(name, lease))


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


Server(path, Leases).serve_forever()
