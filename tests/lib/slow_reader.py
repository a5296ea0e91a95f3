#!/usr/bin/env python3
"""slow_reader.py SOCKET PATH GO OUT: asks for a stream and reads nothing of it until GO, a FIFO, has been written; then
reads to the event whose id stands there, and writes all to OUT."""
import socket
import sys

s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(f"GET {sys.argv[2]} HTTP/1.1\r\nHost: bellhop\r\n\r\n".encode())
last = open(sys.argv[3]).read().strip().encode()
data = b""
while b"\nid: " + last + b"\n" not in data[-200000:]:
    piece = s.recv(65536)
    if not piece:
        break
    data += piece
open(sys.argv[4], "wb").write(data)
