#!/usr/bin/env python3
"""forward.py BELLHOPD DIR CASE...: --forward-localhost, as E2B's edge meets it. In a network namespace of its own, which is the
edge (169.254.0.22); the box is another one, at the end of a veth, with the address 169.254.0.21 and 10.0.0.1."""

import ctypes
import errno
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import time

ADDRESS, OTHER = "169.254.0.21", "10.0.0.1"
DEADLINE_S = 120
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
bellhopd, tmp = sys.argv[1:3]


def same(got, wanted):
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


def until(what, condition):
    end = time.monotonic() + DEADLINE_S
    while True:
        got = condition()
        if got:
            return got
        assert time.monotonic() < end, f"not within the time: {what}"
        time.sleep(0.02)


def sh(*argv):
    subprocess.run(argv, check=True)


class Box:
    """The agent, first process of a network namespace that so far has a loopback alone."""

    def __init__(self, *options, listen="127.0.0.1:7777"):
        self.socket = f"{tmp}/agent.sock"
        self.log = open(f"{tmp}/log", "wb")
        ready, theirs = os.pipe()
        self.agent = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", bellhopd, "--listen", listen,
             "--unix", self.socket, "--auth=open", "--forward-localhost", ADDRESS, "--ready-fd", str(theirs), *options],
            pass_fds=[theirs], stderr=self.log)
        os.close(theirs)
        assert os.read(ready, 1000), open(f"{tmp}/log").read()
        os.close(ready)
        self.namespace = os.open(f"/proc/{self.agent.pid}/ns/net", os.O_RDONLY)
        self.mine = os.open("/proc/self/ns/net", os.O_RDONLY)

    def connect(self):
        sh("ip", "link", "add", "edge", "type", "veth", "peer", "name", "eth0", "netns", str(self.agent.pid))
        sh("ip", "addr", "add", "169.254.0.22/30", "dev", "edge")
        sh("ip", "addr", "add", "10.0.0.2/24", "dev", "edge")
        sh("ip", "link", "set", "edge", "up")
        inside = ["nsenter", "-t", str(self.agent.pid), "-n", "ip"]
        sh(*inside, "addr", "add", f"{OTHER}/24", "dev", "eth0")
        sh(*inside, "link", "set", "eth0", "up")

    def add_address(self):
        sh("nsenter", "-t", str(self.agent.pid), "-n", "ip", "addr", "add", f"{ADDRESS}/30", "dev", "eth0")

    def listen(self, host="127.0.0.1", port=0):
        """A socket of the box's, held by us."""
        assert libc.setns(self.namespace, CLONE_NEWNET) == 0
        try:
            s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.settimeout(DEADLINE_S)
            s.bind((host, port))
            s.listen(1024)
            return s
        finally:
            assert libc.setns(self.mine, CLONE_NEWNET) == 0

    def rpc(self, method, **params):
        c = http.client.HTTPConnection("box", timeout=DEADLINE_S)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.connect(self.socket)
        c.request("POST", "/bellhop.v1." + method, json.dumps(params), {"Content-Type": "application/json"})
        reply = json.loads(c.getresponse().read())
        c.close()
        return reply

    def n_fds(self):
        return len(os.listdir(f"/proc/{self.agent.pid}/fd"))

    def rss_mb(self):
        for line in open(f"/proc/{self.agent.pid}/status"):
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024

    def end(self):
        self.agent.terminate()
        same(self.agent.wait(DEADLINE_S), 0)


def port_of(s):
    return s.getsockname()[1]


def dial(port, host=ADDRESS):
    """A connection from the edge; None: refused."""
    s = socket.socket()
    s.settimeout(DEADLINE_S)
    try:
        s.connect((host, port))
        return s
    except ConnectionRefusedError:
        s.close()
        return None


def is_open(port):
    try:
        s = dial(port)
    except ConnectionResetError:
        return True  # the agent took it, and nobody is behind
    if s:
        s.close()
    return s is not None


def forwarded(server):
    """A connection from the edge to the server's port once it is forwarded, and the server's end of it."""
    client = until("the port is forwarded", lambda: dial(port_of(server)))
    return client, server.accept()[0]


def read_all(s):
    data = b""
    while piece := s.recv(1 << 20):
        data += piece
    return data


def new_box(*options, **more):
    box = Box(*options, **more)
    box.connect()
    box.add_address()
    return box


def case_bytes():
    """Both families, both directions, and an end of each alone."""
    box = new_box()
    data = os.urandom(3 << 20)
    for host in "127.0.0.1", "::1", "::ffff:127.0.0.1":
        server = box.listen(host)
        client, peer = forwarded(server)
        if os.fork() == 0:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            os._exit(0)
        same(read_all(peer) == data, True)
        same(os.wait()[1], 0)
        peer.sendall(b"all of it")  # after the client's end
        peer.shutdown(socket.SHUT_WR)
        same((read_all(client), client.recv(1)), (b"all of it", b""))
        client, peer = forwarded(server)
        peer.sendall(b"bye")
        peer.shutdown(socket.SHUT_WR)
        same(read_all(client), b"bye")
        client.sendall(b"still here")
        client.close()
        same(read_all(peer), b"still here")
    same(open(f"/proc/{box.agent.pid}/task/{box.agent.pid}/children").read(), "")
    box.end()


def case_only():
    """Nothing but what listens on localhost, at that address alone, and never the agent."""
    box = new_box()
    seven, any_host, other = box.listen("127.0.0.7"), box.listen("0.0.0.0"), box.listen(OTHER)
    server = box.listen()
    client, _ = forwarded(server)
    for port in port_of(seven), 7777, port_of(other):
        same(dial(port), None)
    direct = dial(port_of(any_host))
    same(any_host.accept()[1], direct.getsockname())  # it is the client itself that it sees
    same(dial(port_of(server), OTHER), None)
    ports = {(p["port"], p["address"]): p for p in box.rpc("System/Ports")["ports"]}
    own, ours = ports[port_of(server), ADDRESS], ports[port_of(server), "127.0.0.1"]
    same((own["agent"], ours["agent"], ours["connections"]), (True, False, 1))
    same([p for p in ports if p[1] == ADDRESS], [(port_of(server), ADDRESS)])
    client.close()
    box.end()


def case_come_and_go():
    """A port that is given up is free at the address, and what is connected stays so."""
    box = new_box()
    server = box.listen()
    port = port_of(server)
    client, peer = forwarded(server)
    server.close()
    until("the port is closed", lambda: not is_open(port))
    peer.sendall(b"still here")
    same(client.recv(100), b"still here")
    again = box.listen("0.0.0.0", port)
    direct = until("the port is reached", lambda: dial(port))
    same(again.accept()[1], direct.getsockname())
    again.close()
    server = box.listen("127.0.0.1", port)
    client2, peer2 = forwarded(server)
    client2.close()
    same(read_all(peer2), b"")
    # If the listener vanished since the last scan, the client gets a reset, or a refusal if the agent knows it.
    server.close()
    try:
        late = dial(port)
        same(late and late.recv(1), None)
    except ConnectionResetError:
        pass
    box.end()


def case_late_address():
    """An address that the machine gets after the agent was started is said to be missing, and used when it is there."""
    box = Box()
    server = box.listen()

    def said():
        return open(f"{tmp}/log").read().count(f"--forward-localhost: {ADDRESS} is no address of this machine")
    until("the agent says what is missing", said)
    box.connect()
    box.add_address()
    client, peer = forwarded(server)
    same(said(), 1)
    client.sendall(b"x")
    same(peer.recv(10), b"x")
    box.end()


def case_end():
    """The agent ends in the middle of connections, also of those that wait for a server that takes no more."""
    box = new_box()
    server, full = box.listen(), box.listen()
    client, peer = forwarded(server)
    until("the port is forwarded", lambda: is_open(port_of(full)))
    full.listen(0)
    waiting = [dial(port_of(full)) for _ in range(8)]
    box.end()
    for s in [client, peer, *waiting]:
        try:
            same(read_all(s), b"")
        except ConnectionResetError:
            pass


def case_bounds():
    """Ports, connections and buffers have a maximum; what is over it is refused, and all comes back."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    box = new_box()
    server = box.listen()
    client, peer = forwarded(server)
    before = box.n_fds() - 2  # without the two of a connection
    client.close()
    peer.close()
    until("the first connection is over", lambda: box.n_fds() <= before)
    pairs = []
    for _ in range(512):
        client = dial(port_of(server))
        pairs.append((client, server.accept()[0]))
    for _ in range(20):
        try:
            over = dial(port_of(server))
            same(over.recv(1), None)
        except ConnectionResetError:
            pass
    # Nobody reads: in flight are one ring each and the kernel's buffers.
    for client, peer in pairs:
        for s in client, peer:
            s.setblocking(False)
            try:
                while s.send(bytes(1 << 20)):
                    pass
            except BlockingIOError:
                pass
    same(box.rpc("Exec/Run", argv=["echo", "alive"])["stdout"]["text"], "alive\n")
    assert box.rss_mb() < 128, box.rss_mb()
    for client, peer in pairs:
        client.close()
        peer.close()
    until("all is given back", lambda: box.n_fds() <= before)
    client, peer = forwarded(server)
    client.sendall(b"x")
    same(peer.recv(10), b"x")
    many = [box.listen() for _ in range(300)]
    until("as many as there can be", lambda: sum(map(is_open, map(port_of, many))) == 255)
    for s in many[:150]:
        s.close()
    until("the others have their turn", lambda: all(map(is_open, map(port_of, many[150:]))))
    same(open(f"{tmp}/log").read().count("more than 256 ports"), 1)
    box.end()


for name in sys.argv[3:]:
    globals()["case_" + name]()
