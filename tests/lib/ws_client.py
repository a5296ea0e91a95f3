#!/usr/bin/env python3
"""ws_client.py SOCKET PATH < SCRIPT: a small WebSocket client (RFC 6455) for tests. Each line of the script is one step:

  text T | bytes T      send a message (T with Python's escapes)
  frame HEX             send raw bytes, and no more
  ping T                send a ping; the pong is awaited
  until T               read messages until the bytes of binary ones have T
  wait TYPE             read messages until a text one has this member; prints it
  close                 send a close frame; the reply is awaited
  end                   read until the close frame; prints its code

Headers of the environment's WS_PROTOCOL, WS_KEY and WS_HOST are sent. A status other than 101 is printed with the body."""
import base64
import hashlib
import json
import os
import socket
import struct
import sys

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Client:
    def __init__(self, path, target):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(path)
        self.data, self.got = b"", b""
        key = os.environ.get("WS_KEY", base64.b64encode(os.urandom(16)).decode())
        protocol = os.environ.get("WS_PROTOCOL")
        host = os.environ.get("WS_HOST", "bellhop")
        head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" \
            f"Sec-WebSocket-Version: {os.environ.get('WS_VERSION', '13')}\r\nSec-WebSocket-Key: {key}\r\n"
        if protocol:
            head += f"Sec-WebSocket-Protocol: {protocol}\r\n"
        self.sock.sendall((head + "\r\n").encode())
        while b"\r\n\r\n" not in self.data:
            self.more()
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            length = int([l for l in head.lower().split(b"\r\n") if l.startswith(b"content-length:")][0].split(b":")[1])
            while len(self.data) < length:
                self.more()
            print(status, self.data.decode())
            sys.exit(1)
        want = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest())
        assert b"sec-websocket-accept: " + want.lower() in head.lower(), head
        if protocol:
            print("protocol", [l for l in head.decode().split("\r\n") if l.lower().startswith("sec-websocket-protocol")])

    def more(self):
        piece = self.sock.recv(65536)
        if not piece:
            raise EOFError
        self.data += piece

    def need(self, n):
        while len(self.data) < n:
            self.more()
        out, self.data = self.data[:n], self.data[n:]
        return out

    def send(self, opcode, data):
        mask = os.urandom(4)
        n = len(data)
        size = bytes([0x80 | n]) if n < 126 else struct.pack(">BH", 0xfe, n) if n < 65536 else struct.pack(">BQ", 0xff, n)
        self.sock.sendall(bytes([0x80 | opcode]) + size + mask + bytes(b ^ mask[i & 3] for i, b in enumerate(data)))

    def read(self):
        first, n = self.need(2)
        assert first & 0x80 and not n & 0x80
        if n == 126:
            n = struct.unpack(">H", self.need(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.need(8))[0]
        opcode, data = first & 15, self.need(n)
        if opcode == 2:
            self.got += data
        return opcode, data

    def step(self, word, rest):
        data = rest.encode("latin1").decode("unicode_escape").encode("latin1")
        if word == "text":
            self.send(1, data)
        elif word == "bytes":
            self.send(2, data)
        elif word == "frame":
            self.sock.sendall(bytes.fromhex(rest))
        elif word == "ping":
            self.send(9, data)
            while (found := self.read())[0] != 10:
                pass
            assert found[1] == data
        elif word == "until":
            while data not in self.got:
                opcode, _ = self.read()
                assert opcode != 8, self.got
            self.got = self.got.split(data, 1)[1]
        elif word == "wait":
            while True:
                opcode, data = self.read()
                assert opcode != 8, data
                if opcode == 1 and rest in (v := json.loads(data)):
                    print(json.dumps(v))
                    return
        else:
            if word == "close":
                self.send(8, struct.pack(">H", 1000))
            while (found := self.read())[0] != 8:
                pass
            print("closed", struct.unpack(">H", found[1][:2])[0], found[1][2:].decode())


def main():
    client = Client(sys.argv[1], sys.argv[2])
    for line in sys.stdin.read().splitlines():
        client.step(*(line.split(" ", 1) + [""])[:2])


if __name__ == "__main__":
    main()
