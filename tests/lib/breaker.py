"""A relay between a client and a unix socket that breaks connections.

breaker.py LISTEN REAL DOWN UP [HOLD]: each connection is cut, without a word, when DOWN bytes have come
from the server or UP bytes from the client (0: never). Counts the cuts in LISTEN.cuts. With HOLD, the first
connection to bring so many bytes from the client hangs from then on: "held" is printed, and SIGUSR1 cuts it.
"""
import os
import select
import signal
import socket
import sys

listen_path, real_path, down_max, up_max = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
hold_max = int(sys.argv[5]) if len(sys.argv) > 5 else 0
listener = socket.socket(socket.AF_UNIX)
listener.bind(listen_path)
listener.listen(64)
other = {}  # socket -> the one beyond
left = {}  # socket -> bytes that may still come from it
came = {}  # client's socket -> bytes from it
held = None
cuts = 0
wake_r, wake_w = os.pipe()
os.set_blocking(wake_w, False)
signal.set_wakeup_fd(wake_w)
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)


def drop(s):
    for x in (s, other.get(s)):
        if x in other:
            other.pop(x)
            left.pop(x)
            came.pop(x, None)
            x.close()


while True:
    ready, _, _ = select.select([listener, wake_r, *(s for s in other if s is not held)], [], [])
    for s in ready:
        if s == wake_r:
            os.read(wake_r, 64)
            drop(held)
            continue
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
            came[client] = 0
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
            if s in came:
                came[s] += len(data)
                if hold_max and not held and came[s] >= hold_max:
                    held = s
                    print("held", flush=True)
        if not data:
            drop(s)
        elif left[s] <= 0:
            cuts += 1
            with open(listen_path + ".cuts", "w", encoding="ascii") as f:
                f.write(str(cuts))
            drop(s)
