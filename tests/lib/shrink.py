"""shrink.py PORT TOKEN FILE TARGET [HEADER...]: a download of FILE, which becomes empty when some of it has arrived,
breaks off. The deadline is half of what an idle connection may take."""
import os
import socket
import sys

port, token, file, target = sys.argv[1:5]
SIZE = 64 << 20
os.truncate(os.open(file, os.O_RDWR | os.O_CREAT, 0o644), SIZE)
with socket.create_connection(("127.0.0.1", int(port)), 60) as s:
    head = "".join(h + "\r\n" for h in sys.argv[5:])
    s.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{head}\r\n".encode())
    got = len(s.recv(65536))
    os.truncate(file, 0)
    try:
        while n := len(s.recv(1 << 20)):
            got += n
    except ConnectionResetError:
        pass
assert 0 < got < SIZE, got
