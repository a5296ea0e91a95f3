#!/usr/bin/env python3
"""exec_feed.py SOCKET TOKEN ID BYTES: feeds so many random bytes to the command's stdin, by offset, some
pieces twice (as after a lost reply), closes it, and prints the bytes' SHA-256."""
import base64
import hashlib
import http.client
import json
import os
import socket
import sys

path, token, command, total = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
PIECE = 11 * 1024 * 1024  # base64 makes it nearly the parser's limit


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)


def call(method, body):
    server.request("POST", "/bellhop.v1.Exec/" + method, body,
                   {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    reply = json.loads(server.getresponse().read())
    if "code" in reply:
        sys.exit(f"{method}: {reply}")
    return reply


server = Connection("box", timeout=300)
piece = os.urandom(PIECE)
digest = hashlib.sha256()
offset = 0
while offset < total:
    data = piece[: total - offset]
    body = b'{"id":"%s","offset":%d,"data":{"b64":"%s"}}' % (command.encode(), offset, base64.b64encode(data))
    for _ in range(2 if offset // PIECE % 20 == 3 else 1):
        if call("Write", body)["offset"] != offset + len(data):
            sys.exit("the offset is not the end of what was written")
    digest.update(data)
    offset += len(data)
call("CloseStdin", json.dumps({"id": command}))
print(digest.hexdigest())
