#!/usr/bin/env python3
"""kube_forward.py SOCKET NAMESPACE POD PORT: standard input to the port of a pod, and its answer to standard output, by
way of `kubectl proxy --unix-socket=SOCKET`. It ends when the pod closes the connection. It is one WebSocket with the
protocol v4.channel.k8s.io: the first byte of a message is its channel, 0 for data and 1 for an error; the first message
of each channel is the port."""
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ["WS_PROTOCOL"] = "v4.channel.k8s.io"
os.environ["WS_HOST"] = "localhost"  # the proxy refuses any other
from ws_client import Client  # noqa: E402

BINARY, CLOSE = 2, 8


def main():
    path, namespace, pod, port = sys.argv[1:]
    saved, sys.stdout = sys.stdout, sys.stderr  # the client says which protocol it got
    client = Client(path, f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward?ports={port}")
    sys.stdout = saved
    try:
        client.send(BINARY, b"\0" + sys.stdin.buffer.read())
    except BrokenPipeError:
        pass  # the port is closed: the reason has come already
    seen = set()
    while True:
        opcode, message = client.read()
        if opcode == CLOSE:
            return
        if opcode != BINARY:
            continue
        channel, data = message[0], message[1:]
        if channel not in seen:
            seen.add(channel)
            assert struct.unpack("<H", data) == (int(port),), data
        elif channel == 0:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        elif data:
            sys.exit(data.decode())


if __name__ == "__main__":
    main()
