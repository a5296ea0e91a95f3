"""A small HTTP/1.1 server for the tests of the proxy: prints its port, then serves until killed.

/echo     the request's body back, its headers as JSON in X-Headers, two cookies
/path     the request's target
/big      8 MB in pieces, chunked
/close    a body without a length, ended by closing
/status   418 with an odd header
/origin   headers that hold for the whole origin
/cut      says 100 bytes, sends 10
/silent   closes without an answer
/sha      the SHA-256 of the request's body, which is read as it comes
/bytes/N  N bytes, of blocks of 64 KB of zeros with their number in front
/trailer  a chunked body with a trailer; the request's own trailer in X-Trailer
/204 /304 no body, and a Content-Length that says otherwise for 304
/head     the length of a body that HEAD does not get
/sse      two events; the second after a request for /go
Upgrade   101, then "hello:" and an echo; for /frames/HEX these bytes in the place of both, and what comes is dropped;
          /ended sends 300,000 bytes more and closes
"""
import hashlib
import json
import socket
import socketserver
import sys
import threading

GO = threading.Event()


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
                if not size:
                    self.trailer = self.read_head()
                    return body
                body += self.rfile.read(size)
                self.rfile.readline()
        return self.rfile.read(int(headers.get("content-length", 0)))

    def reply(self, status, headers, body):
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.wfile.write(f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def read_sha(self, length):
        sha = hashlib.sha256()
        while length:
            piece = self.rfile.read(min(length, 65536))
            sha.update(piece)
            length -= len(piece)
        return sha.hexdigest().encode()

    def send_blocks(self, length):
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode())
        for i in range(0, length, 65536):
            self.wfile.write((b"%d" % i).ljust(65536, b"\0")[:length - i])

    def handle_corner(self, method, target, headers):
        if target.startswith("/sha"):
            if headers.get("expect") == "100-continue":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.reply("200 OK", [], self.read_sha(int(headers["content-length"])))
        elif target.startswith("/bytes/"):
            self.send_blocks(int(target[7:]))
        elif target.startswith("/trailer"):
            body, trailer = self.read_body(headers), ", ".join(getattr(self, "trailer", []))
            self.wfile.write(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\nX-Trailer: {trailer}\r\n"
                             f"\r\n{len(body):x}\r\n".encode() + body + b"\r\n0\r\nX-End: yes\r\n\r\n")
        elif target.startswith("/204"):
            self.wfile.write(b"HTTP/1.1 204 No Content\r\nX-Kept: yes\r\n\r\n")
        elif target.startswith("/304"):
            self.wfile.write(b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 1000\r\n\r\n')
        elif target.startswith("/head"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + (b"" if method == "HEAD" else b"whole"))
        elif target.startswith("/sse"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n")
            GO.wait(60)
            self.wfile.write(b"data: two\n\n")
        elif target.startswith("/go"):
            GO.set()
            self.reply("200 OK", [], b"")
        else:
            return False
        return True

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
                             b"\r\nConnection: Upgrade\r\nX-Accept: yes\r\n\r\n" +
                             (bytes.fromhex(target[8:]) if target.startswith("/frames/") else b"hello:"))
            if target.startswith("/ended"):
                self.wfile.write(b"x" * 300000)
                return
            while True:
                piece = self.connection.recv(65536)
                if not piece:
                    return
                if not target.startswith("/frames/"):
                    self.wfile.write(piece)
        if self.handle_corner(method, target, headers):
            return
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
