#!/usr/bin/env python3
"""open_streams.py ADDRESS TOKEN PORT: opens the streams that a token of the daemon can open of the box `one`: its events,
those of all boxes, a terminal, a running command, and WebSockets to the web_server.py at PORT: one of whole frames, of all
lengths, and some that are cut: within a head, within a payload, behind a close frame, and one that is no WebSocket. Prints "open" once each
has sent something, and then, when each has ended by itself, "NAME HOW", sorted."""
import os
import socket
import struct
import sys
import threading

ADDRESS, TOKEN, PORT = sys.argv[1:]
HOST, TCP_PORT = ADDRESS.rsplit(":", 1)
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
BODY = '{"argv":["sh","-c","echo begun; exec sleep 1000"]}'
HELLO = b"\x81\x05HELLO"
SOCKETS = {
    "frames": b"\x82\x7e\x01\x00" + b"x" * 256 + b"\x01\x01a\x80\x00" + b"\x82\x7f" + bytes(6) + b"\x00\xff" + b"\x88" * 255 +
              b"\x89\x00" + HELLO,
    "head": HELLO + b"\x81",
    "size": HELLO + b"\x81\x7e\x01",
    "payload": b"\x81\x06HELLO",
    "closed": HELLO + b"\x88\x02\x03\xe8",
    "masked": HELLO + b"\x81\x81abcde",
}
STREAMS = {
    "all": ("GET /v1/events", "", "", b"event: box"),
    "events": ("GET /v1/boxes/one/events", "", "", b"event: box"),
    "terminal": ("GET /v1/boxes/one/terminal?cmd=exec%20sleep%201000", UPGRADE, "", b"started"),
    "command": ("POST /v1/boxes/one/rpc/Exec/Start", f"Content-Length: {len(BODY)}\r\n", BODY, b"begun"),
    **{name: (f"GET /v1/boxes/one/proxy/{PORT}/frames/{frames.hex()}", UPGRADE, "", b"HELLO") for name, frames in SOCKETS.items()},
    "socket": (f"GET /v1/boxes/one/proxy/{PORT}/socket", UPGRADE, "", b"hello:"),
}
results = []
opened = threading.Barrier(len(STREAMS) + 1, timeout=30)


def ending(name, data):
    if name == "terminal" or b"access has ended" in data:  # the last frame: close, with a code and a reason
        at = data.rindex(b"\x88")
        return f"closed {struct.unpack('>H', data[at + 2:at + 4])[0]} {data[at + 4:].decode()}"
    if b"event: error" in data:
        return data[data.index(b"event: error"):].decode().replace("\n", " ").split("\r")[0].strip() + \
            (" end" if data.endswith(b"0\r\n\r\n") else " cut")
    return "end" if data.endswith(b"0\r\n\r\n") else "cut"


def run(name, line, headers, body, sign):
    s = socket.create_connection((HOST, int(TCP_PORT)))
    s.settimeout(30)
    s.sendall(f"{line} HTTP/1.1\r\nHost: {ADDRESS}\r\nAuthorization: Bearer {TOKEN}\r\n{headers}\r\n{body}".encode())
    data = b""
    while sign not in data:
        piece = s.recv(65536)
        if not piece:
            os._exit(1)
        data += piece
    opened.wait()
    try:
        while not data.endswith(b"\r\n0\r\n\r\n") and (piece := s.recv(65536)):
            data += piece
    except ConnectionResetError:
        pass
    results.append(f"{name} {ending(name, data)}")


threads = [threading.Thread(target=run, args=(name, *stream), daemon=True) for name, stream in STREAMS.items()]
for t in threads:
    t.start()
opened.wait()
print("open", flush=True)
for t in threads:
    t.join(30)
print("\n".join(sorted(results)), flush=True)
