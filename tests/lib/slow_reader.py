#!/usr/bin/env python3
"""slow_reader.py SOCKET PATH GO OUT: asks for a stream and reads nothing of it until GO, a FIFO, has been written; then
reads to the event whose id stands there, and writes all to OUT."""
import http.client
import socket
import sys

c = http.client.HTTPConnection("bellhop")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(sys.argv[1])
c.request("GET", sys.argv[2])
last = open(sys.argv[3]).read().strip().encode()
reply = c.getresponse()
data = b""
while b"\nid: " + last + b"\n" not in data[-200000:]:
    piece = reply.read1(65536)
    if not piece:
        break
    data += piece
open(sys.argv[4], "wb").write(data)
