"""canaries.py BELLHOPD CASE: does the agent signal processes that none of its commands started?

As the first process of a pid namespace with its own /proc (unshare -p -f --mount-proc): starts canaries, which are
unrelated processes and files, and an agent; CASE has the agent start and end commands; then each canary must
be as it was: alive, never stopped, never continued. The case runs in a process of its own, which is a canary, too."""

import hashlib
import http.client
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

BELLHOPD, CASE = sys.argv[1], sys.argv[2]
DEADLINE_S = 120
GRACE_MS = 8000  # in it a canary gets the number
NOT_THERE = "no-such-program-anywhere"
# The search for the program takes long enough for others to act meanwhile.
LONG_PATH = ":".join(f"/no/such/directory/{i}" for i in range(120))
WAYS = ("half-close", "reset", "close", "cut")
rnd = random.Random(1)


def until(what, why):
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, f"not in time: {why}"
        time.sleep(0.005)


def state_of(pid):
    """The letter of proc(5); None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(") ", 1)[1][0]
    except (FileNotFoundError, ProcessLookupError):
        return None


# ---- canaries ----

class Canary:
    """A child of ours that sleeps, with one of its own in the same session. Any signal ends or stops it."""

    def __init__(self, pid, name, below, port):
        self.pid, self.name = pid, name
        self.below, self.port = below, port  # its child; where it listens

    def check(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        assert pid == 0, f"canary '{self.name}' ({self.pid}) was signalled: status {status:#x}"
        assert (state_of(self.below) or "none") in "SRD", f"the child of canary '{self.name}' is {state_of(self.below)}"


def fork_canary(name, own_session=True, own_group=False):
    """A child that has become a canary, and then tells the number of its own child, and its port."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # not Python's, which would unwind as far as main()
        signal.signal(signal.SIGCONT, lambda *_: os._exit(1))
        os.close(read)
        listener = socket.create_server(("127.0.0.1", 0))
        if own_session:
            os.setsid()
        if own_group:
            os.setpgid(0, 0)
        below = os.fork()
        if below:
            os.write(write, struct.pack("ii", below, listener.getsockname()[1]))
        else:
            listener.close()
        os.close(write)
        while True:
            signal.pause()
    os.close(write)
    canary = Canary(pid, name, *struct.unpack("ii", os.read(read, 8)))
    os.close(read)
    return canary


def is_free(pid):
    """Neither a process nor a group has this number."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return state_of(pid) is None
    return False


def take_number(pid):
    """A canary that has this number, which was another process's, and leads the session of that number."""
    until(lambda: is_free(pid), f"the number {pid} is free")
    for _ in range(2000):
        with open("/proc/sys/kernel/ns_last_pid", "w") as f:
            f.write(str(pid - 1))
        canary = fork_canary(f"the second {pid}")
        if canary.pid == pid:
            canaries.append(canary)
            return canary
        for other in (canary.below, canary.pid):
            os.kill(other, signal.SIGKILL)
        os.waitpid(canary.pid, 0)
    raise AssertionError(f"the number {pid} is not to be had again")


def digest_of(directory):
    sums = hashlib.sha256()
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        with open(path, "rb") as f:
            sums.update(f"{name} {os.stat(path).st_mode:o} {hashlib.sha256(f.read()).hexdigest()}\n".encode())
    return sums.hexdigest()


# ---- the agent ----

class Agent:
    def __init__(self, become=None):
        """become: what the child does before it is the agent."""
        read, write = os.pipe()
        self.process = subprocess.Popen(
            [BELLHOPD, "--listen", "127.0.0.1:0", "--auth=open", "--ready-fd", str(write)], pass_fds=[write],
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True,
            env={"PATH": os.environ["PATH"]}, preexec_fn=become)
        os.close(write)
        with os.fdopen(read) as ready:
            self.port = int(json.loads(ready.readline())["tcp"][0].rsplit(":", 1)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE_S)
        assert code == 0, f"the agent ended with {code}"


def ask(method, message):
    """The reply of a unary method, or the messages of a stream."""
    c = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE_S)
    c.request("POST", "/" + method, json.dumps(message), {"Content-Type": "application/json"})
    lines = c.getresponse().read().decode().splitlines()
    c.close()
    return json.loads(lines[0]) if len(lines) == 1 else [json.loads(line) for line in lines]


def request(method, message):
    body = json.dumps(message).encode()
    return (f"POST /{method} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def e2b_start(tag, argv, envs=None):
    """E2B's Start as a Connect stream that nobody reads on; the connection, to be closed."""
    message = json.dumps({"process": {"cmd": argv[0], "args": argv[1:], "envs": envs or {}}, "tag": tag}).encode()
    c = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE_S)
    c.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(message)) + message,
              {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"})
    return c


class Volley:
    """Sends the same request so often at once that one of them hits any race."""

    def __init__(self, method, message, n=100):
        self.n = n
        self.data = request(method, message) * n
        self.socket = socket.create_connection(("127.0.0.1", agent.port), timeout=DEADLINE_S)

    def fire(self):
        self.socket.sendall(self.data)
        got = b""
        while got.count(b"HTTP/1.1 ") < self.n or not got.endswith(b"}"):
            piece = self.socket.recv(1 << 20)
            assert piece, "the agent closed the connection"
            got += piece


class Leaver:
    """A client that sends a request and disconnects, in one of several ways."""

    def __init__(self, method, message, cut=None):
        self.socket = socket.create_connection(("127.0.0.1", agent.port), timeout=DEADLINE_S)
        self.socket.sendall(request(method, message)[:cut])

    def leave(self, way):
        if way == "reset":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if way == "half-close":
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(0.1)
            try:
                while self.socket.recv(65536):
                    pass
            except OSError:
                pass
        self.socket.close()


def ask_and_leave(method, message):
    way = rnd.choice(WAYS)
    client = Leaver(method, message, cut=rnd.randrange(1, 120) if way == "cut" else None)
    time.sleep(rnd.choice((0, 0, 0.001, 0.01)))
    client.leave(way)


def side_by_side(*jobs, seconds=6):
    """Repeats each job on a thread of its own, and raises the exception of any."""
    end = time.monotonic() + seconds
    raised = []

    def repeat(job):
        try:
            while time.monotonic() < end and not raised:
                job()
                check_canaries()
        except BaseException as e:  # noqa: B902
            raised.append(e)

    threads = [threading.Thread(target=repeat, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


# ---- the cases: programs that are not there, clients that leave ----

def case_ready():
    """Ready runs tools, some of which do not exist, for clients that disconnect."""
    side_by_side(*[lambda: ask_and_leave("bellhop.v1.System/Ready", {"fresh": True})] * 4)


def case_run_and_start():
    """Run and Start of existing and missing programs, for clients that disconnect."""
    def job():
        argv = rnd.choice(([NOT_THERE], ["sleep", "1000"], ["true"], ["/etc/passwd"]))
        message = {"argv": argv, "kill_grace_ms": 0, "timeout_ms": rnd.choice((1, 20, 500))}
        ask_and_leave("bellhop.v1.Exec/" + rnd.choice(("Run", "Start")), message)

    side_by_side(*[job] * 4)


def signal_while_starting(start, method, message):
    names = ("SIGNAL_SIGKILL", "SIGNAL_SIGTERM") if "process" in message else ("KILL", "TERM")
    volleys = [Volley(method, message | {"signal": name}) for name in names * 2]
    side_by_side(start, start, start, *[v.fire for v in volleys], seconds=8)


def case_signal_tree():
    """Signal with `tree` while the agent looks for a program that does not exist."""
    def start():
        ask("bellhop.v1.Exec/Run", {"argv": [NOT_THERE], "id": "x", "env": {"PATH": LONG_PATH}})

    signal_while_starting(start, "bellhop.v1.Exec/Signal", {"id": "x", "tree": True})


def case_e2b_signal():
    """The same by E2B's SendSignal with `descendants`."""
    def start():
        c = e2b_start("x", [NOT_THERE], {"PATH": LONG_PATH})
        c.getresponse().read()
        c.close()

    signal_while_starting(start, "process.Process/SendSignal", {"process": {"tag": "x"}, "descendants": True})


# ---- the cases: numbers that are used again ----

class Survivor:
    """A script whose first process ends by itself or by TERM, while one that it started lives on, without its
    session and heedless of TERM: the command's number is free, and something of the command is left to be ended."""

    def __init__(self, last, heeds_term=False):
        self.file = tempfile.mktemp(prefix="survivor-", dir=directory)
        trap = "" if heeds_term else "trap \"\" TERM; "
        self.script = (f"setsid sh -c '{trap}echo $$ >{self.file}.new; mv {self.file}.new {self.file};"
                       f" while :; do sleep 0.02; done' & while [ ! -s {self.file} ]; do sleep 0.01; done; {last}")

    def pid(self):
        until(lambda: os.path.exists(self.file), "the survivor")
        with open(self.file) as f:
            return int(f.read())

    def is_gone(self):
        return state_of(self.pid()) in (None, "Z")


def running(name):
    """The pid of the command once it runs."""
    found = []

    def look():
        found[:] = [c["pid"] for c in ask("bellhop.v1.Exec/List", {})["commands"] if c["id"] == name and c["pid"]]
        return found

    until(look, f"'{name}' runs")
    return found[0]


def end_by(name, s, ask_for_end):
    """The leader ends on request; a canary gets its number; then only the survivor must end."""
    pid = running(name)
    s.pid()
    ask_for_end()
    canary = take_number(pid)
    assert not s.is_gone(), "too slow: the survivor was ended before its command's number was another's"
    until(s.is_gone, "the survivor's end")
    canary.check()


def case_number_timeout():
    """The timeout's TERM ends the first process, its KILL the others."""
    s = Survivor("exec sleep 1000")
    Leaver("bellhop.v1.Exec/Start", {"shell": s.script, "id": "x", "timeout_ms": 5000, "kill_grace_ms": GRACE_MS})
    end_by("x", s, lambda: None)
    assert ask("bellhop.v1.Exec/Wait", {"id": "x"})["exit"]["reason"] == "timeout"


def case_number_leave():
    """So does the disconnect of Run's client, in each way."""
    for i, way in enumerate(WAYS[:3]):
        s = Survivor("exec sleep 1000")
        client = Leaver("bellhop.v1.Exec/Run", {"shell": s.script, "id": f"x{i}", "kill_grace_ms": GRACE_MS})
        end_by(f"x{i}", s, lambda: client.leave(way))
        assert ask("bellhop.v1.Exec/Wait", {"id": f"x{i}"})["exit"]["reason"] == "canceled"


def case_number_kill_on_exit():
    """The end of the first process ends the others."""
    s = Survivor("sleep 0.2")
    Leaver("bellhop.v1.Exec/Start", {"shell": s.script, "id": "x", "kill_on_exit": True, "kill_grace_ms": GRACE_MS})
    end_by("x", s, lambda: None)


def case_number_signal():
    """Signal with `tree` after the end."""
    for i, name in enumerate(("TERM", "HUP", "KILL")):
        s = Survivor("exit 0")
        ask("bellhop.v1.Exec/Run", {"shell": s.script, "id": f"x{i}", "output": {}})
        canary = take_number(ask("bellhop.v1.Exec/Get", {"id": f"x{i}"})["pid"])
        ask("bellhop.v1.Exec/Signal", {"id": f"x{i}", "signal": name, "tree": True})
        if name == "TERM":  # it does not heed that; HUP ends it
            ask("bellhop.v1.Exec/Signal", {"id": f"x{i}", "signal": "INT", "tree": True})
            ask("bellhop.v1.Exec/Signal", {"id": f"x{i}", "signal": "KILL", "tree": True})
        until(s.is_gone, "the survivor's end")
        canary.check()
        assert ask("bellhop.v1.Exec/Signal", {"id": f"x{i}", "signal": "KILL"})["code"] == "failed_precondition"
        canary.check()


def case_number_e2b():
    """E2B's SendSignal with `descendants`, to a command whose first process has ended and whose output is held."""
    s = Survivor("exit 0")
    stream = e2b_start("x", ["/bin/sh", "-c", s.script])
    s.pid()
    pid = ask("process.Process/List", {})["processes"][0]["pid"]
    canary = take_number(pid)
    ask("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL", "descendants": True})
    until(s.is_gone, "the survivor's end")
    stream.getresponse().read()
    canary.check()


def case_number_stop():
    """An agent that is told to stop sends TERM to the processes that its commands have left."""
    left, again = [], []
    for i in range(3):
        left.append(Survivor("exit 0", heeds_term=True))
        ask("bellhop.v1.Exec/Run", {"shell": left[i].script, "id": f"x{i}"})
        again.append(take_number(ask("bellhop.v1.Exec/Get", {"id": f"x{i}"})["pid"]))
    agent.stop()
    for s in left:
        until(s.is_gone, "the survivor's end")
    for canary in again:
        canary.check()


def case_number_told():
    """A process that got the number is not told as what is left of the command, nor its port as the command's. The
    command's process group had others in it when the first process ended; they are gone by then."""
    for i, last in enumerate(("exit 0", "sleep 0.3 & exit 0")):
        s = Survivor(last)
        stream = Leaver("bellhop.v1.Exec/Start", {"shell": s.script, "id": f"x{i}", "wait_for": "eof"})
        pid = running(f"x{i}")
        s.pid()
        port = take_number(pid).port
        told = ask("bellhop.v1.System/Ports", {"port": port})["ports"][0]["process"]
        assert told["pid"] == pid and told["command"] is None, told
        os.kill(s.pid(), signal.SIGKILL)
        end = ask("bellhop.v1.Exec/Wait", {"id": f"x{i}"})["exit"]
        assert end["reason"] == "exited" and end["tree"] != "left", end
        stream.leave("close")


# ---- the cases: agents in unusual places ----

def case_ignored_sigchld():
    """An agent whose caller ignores SIGCHLD, which would have the kernel wait for commands, and free their numbers."""
    restart_agent(lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert ask("bellhop.v1.Exec/Run", {"argv": ["true"], "id": "x"})["exit"]["code"] == 0
    canary = take_number(ask("bellhop.v1.Exec/Get", {"id": "x"})["pid"])
    ask("bellhop.v1.Exec/Signal", {"id": "x", "signal": "KILL", "tree": True})
    case_number_signal()
    canary.check()


def case_nested():
    """An agent within another one's command, which has a low mark, and may not raise its limits."""
    def become():
        mark = 1 << 62 | 1000 << 32 | 1
        for limit in (resource.RLIMIT_RSS, 15):  # RLIMIT_RTTIME
            resource.setrlimit(limit, (mark, mark))
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)

    os.chmod(directory, 0o1777)
    restart_agent(become)
    case_number_signal()


# ---- ----

def restart_agent(become):
    global agent
    agent.stop()
    agent = Agent(become)


def check_canaries():
    with checking:
        for canary in canaries:
            canary.check()
        assert digest_of(files) == files_digest, "a canary file was changed"


def main():
    globals()["case_" + CASE]()
    check_canaries()
    if CASE != "number_stop":
        agent.stop()
    check_canaries()


def first_process():
    """Waits for the case, and for orphans. Nobody in the namespace can end this one."""
    case = os.fork()
    if case == 0:
        return
    while True:
        pid, status = os.wait()
        if pid == case:
            break
    if os.WIFSIGNALED(status):
        print(f"the case itself was ended by signal {os.WTERMSIG(status)}")
    sys.exit(0 if status == 0 else 1)


assert os.getpid() == 1, "not the first process of a pid namespace"
first_process()
with tempfile.TemporaryDirectory(prefix="canaries-") as directory:
    files = os.path.join(directory, "files")
    os.mkdir(files)
    for n in range(20):
        with open(os.path.join(files, str(n)), "w") as out:
            out.write(f"canary {n}\n")
    files_digest = digest_of(files)
    checking = threading.Lock()
    canaries = [fork_canary("of the same session", own_session=False), fork_canary("of its own session"),
                fork_canary("of its own group", own_session=False, own_group=True)]
    agent = Agent()
    canaries += [fork_canary("younger than the agent"), fork_canary("younger, same session", own_session=False)]
    main()
