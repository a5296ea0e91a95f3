"""A small HTTP/1.1 server for the tests of the proxy: prints its port, then serves until killed.

/echo     the request's body back, its headers as JSON in X-Headers, two cookies
/path     the request's target
/big      8 MB in pieces, chunked
/close    a body without a length, ended by closing
/status   418 with an odd header
/origin   headers that hold for the whole origin
/cut      says 100 bytes, sends 10
/silent   closes without an answer
Upgrade   101, then "hello:" and an echo
"""
import json
import socket
import socketserver
import sys


class Handler(socketserver.StreamRequestHandler):
    def read_head(self):
        lines = []
        while True:
            line = self.rfile.readline().rstrip(b"\r\n").decode("latin1")
            if not line:
                return lines
            lines.append(line)

    def read_body(self, headers):
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if not size:
                    return body
        return self.rfile.read(int(headers.get("content-length", 0)))

    def reply(self, status, headers, body):
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.wfile.write(f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def handle(self):
        lines = self.read_head()
        if not lines:
            return
        method, target, _ = lines[0].split(" ", 2)
        headers = {}
        for line in lines[1:]:
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        if headers.get("upgrade"):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + headers["upgrade"].encode() +
                             b"\r\nConnection: Upgrade\r\nX-Accept: yes\r\n\r\nhello:")
            while True:
                piece = self.connection.recv(65536)
                if not piece:
                    return
                self.wfile.write(piece)
        if target.startswith("/echo"):
            body = self.read_body(headers)
            self.reply("200 OK", [("X-Headers", json.dumps(headers)), ("X-Method", method),
                                  ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")], body)
        elif target.startswith("/big"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(128):
                self.wfile.write(b"10000\r\n" + b"b" * 65536 + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif target.startswith("/close"):
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/x-odd\r\n\r\nuntil the end")
        elif target.startswith("/status"):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.reply("418 I'm a teapot", [("X-Odd", "yes")], b"short and stout")
        elif target.startswith("/origin"):
            self.reply("200 OK", [("Clear-Site-Data", '"*"'), ("Strict-Transport-Security", "max-age=9"),
                                  ("X-Kept", "yes")], b"")
        elif target.startswith("/cut"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
        elif target.startswith("/silent"):
            pass
        else:
            self.reply("200 OK", [], target.encode())


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    address_family = socket.AF_INET6 if sys.argv[1:] == ["6"] else socket.AF_INET


with Server(("::1" if sys.argv[1:] == ["6"] else "127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
