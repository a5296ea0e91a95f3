"""vanish.py TARGET TOKEN N: N clients of idle streams go (they close, they reset, their process is
killed), and the agent must have freed all within 2 s. TARGET: a port, or a socket's path. Prints the
times; exits 1 when it took longer."""
import os
import re
import signal
import socket
import struct
import sys
import time

target, token, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
command = f"vanish-{os.getpid()}"


def connect():
    if target.isdigit():
        return socket.create_connection(("127.0.0.1", int(target)), 60)
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(target)
    return s


def head(verb, path, length=0):
    return (f"{verb} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n").encode()


def ask(verb, path, body=b""):
    with connect() as s:
        s.sendall(head(verb, path, len(body)) + b"Connection: close\r\n\r\n" + body)
        got = b""
        while piece := s.recv(65536):
            got += piece
        return got


def metric(name):
    return int(re.search(rb"^%s (\d+)" % name.encode(), ask("GET", "/v1/metrics"), re.M)[1])


def count():
    return metric("bellhop_connections"), metric("process_open_fds")


def streams():
    body = b'{"id":"%s"}' % command.encode()
    out = []
    for _ in range(n):
        s = connect()
        s.sendall(head("POST", "/bellhop.v1.Exec/Attach", len(body)) + b"\r\n" + body)
        out.append(s)
    for s in out:
        line = s.recv(4096)
        assert line.startswith(b"HTTP/1.1 200"), line
    return out


def by_close():
    for s in streams():
        s.close()


def by_reset():
    for s in streams():
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()


def by_kill():
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        held = streams()
        os.write(write, b"x")
        signal.pause()
        os._exit(len(held))
    assert os.read(read, 1) == b"x"
    assert metric("bellhop_connections") >= n
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


bad = 0
with connect() as s:  # a command that says nothing, for an hour
    body = b'{"argv":["sleep","3600"],"id":"%s"}' % command.encode()
    s.sendall(head("POST", "/bellhop.v1.Exec/Start", len(body)) + b"\r\n" + body)
    got = b""
    while b'"start"' not in got:
        got += s.recv(4096)
time.sleep(0.1)
by_close()  # whatever is allocated once is allocated now
deadline = time.monotonic() + 60
while count()[0] > 1 and time.monotonic() < deadline:
    time.sleep(0.05)
before = count()
for how in (by_close, by_reset, by_kill):
    how()
    start = time.monotonic()
    while (now := count()) > before or now[1] > before[1]:
        if time.monotonic() - start > 60:
            break
        time.sleep(0.02)
    took = time.monotonic() - start
    ok = took <= 2 and now[0] <= before[0] and now[1] <= before[1]
    bad += not ok
    print(f"{how.__name__[3:]}: {n} freed after {took:.2f} s; connections, descriptors {now}, {before} before")
ask("POST", "/bellhop.v1.Exec/Signal", b'{"id":"%s","signal":"KILL"}' % command.encode())
sys.exit(bad > 0)
