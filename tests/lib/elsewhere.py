"""SOCKET ENGINE: an engine as if it ran on another machine: the processes of its containers are none of this one."""
import re
import socket
import sys
import threading


def pump(source, target, change):
    try:
        while data := source.recv(1 << 20):
            target.sendall(change(data))
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def hide(data):
    return re.sub(rb'"Pid":(\d+)', lambda m: b'"Pid":0' + b" " * (len(m[1]) - 1), data)


listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    client, _ = listener.accept()
    engine = socket.socket(socket.AF_UNIX)
    engine.connect(sys.argv[2])
    threading.Thread(target=pump, args=(client, engine, bytes), daemon=True).start()
    threading.Thread(target=pump, args=(engine, client, hide), daemon=True).start()
