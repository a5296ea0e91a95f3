"""half_close.py TARGET: clients that send their requests and half-close at once get every answer, and then the
end. TARGET: a port, or a socket's path. The deadline is half of what an idle connection may take."""
import socket
import sys

target = sys.argv[1]
DEADLINE_S = 60
for sent in (b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 9, b"HEAD", b"\r\n",
             b"PUT /v1/files//none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab"):
    if target.isdigit():
        s = socket.create_connection(("127.0.0.1", int(target)), DEADLINE_S)
    else:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(DEADLINE_S)
        s.connect(target)
    with s:
        s.sendall(sent)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while piece := s.recv(65536):
            got += piece
    n = sent.count(b"GET")
    assert got.count(b"HTTP/1.1 2") == n, (sent, got)
