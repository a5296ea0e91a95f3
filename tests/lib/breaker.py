"""A relay between a client and a unix socket that breaks connections.

breaker.py LISTEN REAL DOWN UP: each connection is cut, without a word, when DOWN bytes have come
from the server or UP bytes from the client (0: never). Counts the cuts in LISTEN.cuts.
"""
import os
import select
import socket
import sys

listen_path, real_path, down_max, up_max = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
listener = socket.socket(socket.AF_UNIX)
listener.bind(listen_path)
listener.listen(64)
other = {}  # socket -> the one beyond
left = {}  # socket -> bytes that may still come from it
cuts = 0
print("ready", flush=True)


def drop(s):
    for x in (s, other.get(s)):
        if x in other:
            other.pop(x)
            left.pop(x)
            x.close()


while True:
    ready, _, _ = select.select([listener, *other], [], [])
    for s in ready:
        if s is listener:
            client, _ = listener.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(real_path)
            except OSError:
                client.close()
                server.close()
                continue
            other[client], other[server] = server, client
            left[client], left[server] = up_max or float("inf"), down_max or float("inf")
            continue
        if s not in other:
            continue
        try:
            data = s.recv(min(65536, left[s] if left[s] != float("inf") else 65536))
            if data:
                other[s].sendall(data)
        except OSError:
            data = b""
        if data:
            left[s] -= len(data)
        if not data:
            drop(s)
        elif left[s] <= 0:
            cuts += 1
            with open(listen_path + ".cuts", "w", encoding="ascii") as f:
                f.write(str(cuts))
            drop(s)
