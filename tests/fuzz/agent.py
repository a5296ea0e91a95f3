#!/usr/bin/env python3
"""agent.py BELLHOPD [OPTION...]: fuzzes a whole agent, as root and open, with raw requests on its sockets.

The agent runs in a throw-away machine: pid, mount, network, ipc, uts and cgroup namespaces of its own, a root directory
in memory, none of the capabilities that reach outside, and so few process numbers that they are soon used again.
Beside it live canaries: processes that no command started. Some stay; others come and go, and so get numbers that were
a command's. Clients send whole, mutated and cut requests, and leave in every way. Commands can do harmless things to
themselves only (tests/lib/fuzz_box.c): whatever happens to a canary, the agent did.

It fails when a canary was signalled, stopped, ended, moved, changed or starved; when the agent ends, or does not answer;
or when it keeps descriptors, threads, processes, control groups or memory after all clients have gone. The last requests
are saved then, and `--replay FILE` sends them again.

What is sent follows from the seed alone (but for what an answer named: a pid, an upload). Threads of clients meet by
chance."""

import argparse
import collections
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

DEADLINE_S = 60  # bound against a hang, for anything expected; a busy machine stays below it
ROUND_S = 15
N_CLIENTS = 16
MAX_STAYING = 30  # connections that were left open, or whose client vanished
KEPT_SESSIONS = 600
PID_MAX = 500  # after a wrap-around the kernel starts at pid 300
N_CANARIES = 10
SLOT = struct.Struct("QIIII")
MEMORY_SLACK = 64 << 20
LINGER_S = 6
ROOT = None  # where the machine's root directory is mounted; in its own process only
libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH, SYS_PIVOT_ROOT, PR_SET_PDEATHSIG = 2, {"x86_64": 155}.get(platform.machine(), 41), 1


def call(result, what):
    if result < 0:
        n = ctypes.get_errno()
        raise OSError(n, os.strerror(n), what)


def mount(source, target, kind, flags=0, data=None):
    call(libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags),
                    data.encode() if data else None), f"mount {target}")


# ---- the throw-away machine ----

def has_own_pid_max():
    """Since Linux 6.14 each pid namespace has its own pid_max; before, it is the machine's and must not change."""
    return tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2]) >= (6, 14)


def own_cgroups():
    """(directory, controllers, type, mount options) of the groups that this process is in, where others can be made."""
    paths = {}
    with open("/proc/self/cgroup") as f:
        for line in f:
            _, names, path = line.rstrip("\n").split(":", 2)
            paths[names] = path
    found = []
    with open("/proc/self/mountinfo") as f:
        for line in f:
            before, after = line.rstrip("\n").split(" - ")
            root, at = before.split()[3:5]
            kind, _, options = after.split()[:3]
            if kind == "cgroup2":
                names = ""
            elif kind == "cgroup":
                names = next((n for n in paths if n and set(n.split(",")) <= set(options.split(","))), None)
                if names not in ("memory", "pids", "cpu", "cpu,cpuacct", "cpuacct,cpu"):
                    continue
            else:
                continue
            path = paths.get(names)
            if path is not None and (path + "/").startswith(root.rstrip("/") + "/"):
                found.append((os.path.normpath(at + "/" + path[len(root.rstrip("/")):]), names, kind))
    return found


class Cgroups:
    """Makes a group for the machine in each hierarchy, with one for the agent in it."""

    def __init__(self, name):
        self.made = []  # (directory, names, kind)
        for directory, names, kind in own_cgroups():
            path = f"{directory}/{name}"
            try:
                os.mkdir(path)
                self.made.append((path, names, kind))
                os.mkdir(path + "/agent")
                if names == "memory":  # the machine outside keeps enough memory
                    with open(path + "/memory.limit_in_bytes", "w") as f:
                        f.write(str(3 << 30))
            except OSError as e:
                print(f"# no group in {directory}: {e}", flush=True)
                continue

    def remove(self):
        deadline = time.monotonic() + DEADLINE_S
        for path, _, _ in self.made:
            for directory, _, _ in os.walk(path, topdown=False):
                while True:
                    try:
                        os.rmdir(directory)
                        break
                    except FileNotFoundError:
                        break
                    except OSError:
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(0.01)


def group_facts(path):
    """The files that limit the members of a group."""
    facts = {}
    for name in ("pids.max", "memory.limit_in_bytes", "memory.max", "memory.high", "cpu.cfs_quota_us", "cpu.shares", "cpu.max", "cpu.weight",
                 "cpu.rt_runtime_us", "cgroup.freeze", "freezer.state", "cgroup.subtree_control", "cgroup.type", "memory.oom.group"):
        try:
            with open(f"{path}/{name}") as f:
                facts[name] = f.read()
        except FileNotFoundError:
            pass
    return facts


def write_file(path, text, mode=0o644):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


PROGRAMS = ("keeper", "sh", "bash", "env", "true", "false", "echo", "cat", "sleep", "git", "rg", "fd", "id", "uname")


def make_root(program, agent, groups):
    """A root directory in memory. Programs and /proc can't be written; nothing here is a device but /dev's few."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("fuzz", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "size=192m,nr_inodes=30000,mode=0755")
    for name in ("bin", "etc", "proc", "sys", "dev", "run", "tmp", "var", "var/tmp", "var/lib", "home", "home/user", "root", "old",
                 "srv", "tmp/d"):
        os.mkdir(f"{ROOT}/{name}")
    for name in ("tmp", "var/tmp", "tmp/d", "home/user"):
        os.chmod(f"{ROOT}/{name}", 0o1777)
    os.symlink("bin", f"{ROOT}/sbin")
    os.mkdir(f"{ROOT}/usr")
    os.symlink("/bin", f"{ROOT}/usr/bin")
    mount("etc", f"{ROOT}/etc", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755")
    write_file(f"{ROOT}/etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
    write_file(f"{ROOT}/etc/group", "root:x:0:\nuser:x:1000:\n")
    for i in range(8):
        write_file(f"{ROOT}/tmp/d/{i}.txt", f"needle {i}\n" * (1 << i))
    os.symlink("0.txt", f"{ROOT}/tmp/d/link")
    mount("bin", f"{ROOT}/bin", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=0755")
    shutil.copy(program, f"{ROOT}/bin/keeper")
    shutil.copy(agent, f"{ROOT}/bin/bellhopd")
    for name in PROGRAMS[1:]:
        os.link(f"{ROOT}/bin/keeper", f"{ROOT}/bin/{name}")
    copy_libraries(agent)
    for name in ("bin", "etc"):
        mount("none", f"{ROOT}/{name}", None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount("dev", f"{ROOT}/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=1m,mode=0755")
    for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        os.mknod(f"{ROOT}/dev/{name}", 0o20666, os.makedev(1, minor))
        os.chmod(f"{ROOT}/dev/{name}", 0o666)
    os.mkdir(f"{ROOT}/dev/pts")
    mount("devpts", f"{ROOT}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5")
    os.symlink("pts/ptmx", f"{ROOT}/dev/ptmx")
    mount("sys", f"{ROOT}/sys", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m,mode=0755")
    os.makedirs(f"{ROOT}/sys/fs/cgroup")
    for names, kind in groups:
        at = f"{ROOT}/sys/fs/cgroup/{names or 'unified'}"
        os.mkdir(at)
        mount("cgroup", at, kind, MS_NOSUID | MS_NODEV | MS_NOEXEC, names or None)


def copy_libraries(agent):
    """The libraries that a sanitized agent needs; the one that ships is static."""
    listed = subprocess.run(["ldd", agent], capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        for path in re.findall(r"(/\S+) \(0x", listed.stdout):
            os.makedirs(os.path.dirname(ROOT + path), exist_ok=True)
            if not os.path.exists(ROOT + path):
                shutil.copy(path, ROOT + path)


def open_last_number():
    """By a mount of its own: /proc can't be made read-only while somebody may write there."""
    write_file(ROOT + "/dev/last", "")
    mount(ROOT + "/proc/sys/kernel/ns_last_pid", ROOT + "/dev/last", None, MS_BIND)
    fd = os.open(ROOT + "/dev/last", os.O_RDWR)
    os.set_inheritable(fd, True)
    call(libc.umount2((ROOT + "/dev/last").encode(), MNT_DETACH), "umount2")
    os.unlink(ROOT + "/dev/last")
    return fd


def run_box(spec):
    """Runs in a process of its own, becomes the machine and never returns."""
    global ROOT
    spec = json.loads(spec)
    ROOT = spec["root"]
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for path, _, _ in spec["groups"]:
        write_file(path + "/cgroup.procs", "0")
    call(libc.unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWCGROUP), "unshare")
    first = os.fork()
    if first:
        with os.fdopen(spec["first"], "w") as f:
            f.write(f"{first}\n")
        for fd in spec["fds"]:
            os.close(fd)
        os._exit(0 if os.waitpid(first, 0)[1] == 0 else 1)
    os.close(spec["first"])
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    procs = [os.open(path + "/agent/cgroup.procs", os.O_WRONLY) for path, _, _ in spec["groups"]]
    for fd in procs:
        os.set_inheritable(fd, True)
    make_root(spec["program"], spec["agent"], [g[1:] for g in spec["groups"]])
    mount("proc", ROOT + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if spec["pid_max"]:
        with open(ROOT + "/proc/sys/kernel/pid_max", "w") as f:
            f.write(str(spec["pid_max"]))
    last = -1 if spec["pid_max"] else open_last_number()
    os.chdir(ROOT)
    call(libc.syscall(SYS_PIVOT_ROOT, b".", b"old"), "pivot_root")
    os.chdir("/")
    mount("none", "/proc", None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    call(libc.umount2(b"/old", MNT_DETACH), "umount2")
    os.rmdir("/old")
    os.execve("/bin/keeper", ["keeper", *[str(a) for a in spec["keeper"]], str(last), ",".join(map(str, procs)),
                              "/bin/bellhopd", *spec["options"]], spec["env"])


class Failure(Exception):
    pass


class Box:
    """A machine with its canaries and an agent."""

    def __init__(self, args, variant):
        self.args, self.variant = args, variant
        self.lines, self.failure, self.agent_status = [], None, None
        self.cgroups = Cgroups(f"bellhop-fuzz-{os.getpid()}")
        shared = os.memfd_create("shared")
        size = SLOT.size * (N_CANARIES + 1) + 8
        os.truncate(shared, size)
        self.shared = mmap.mmap(shared, size)
        control_read, self.control = os.pipe()
        self.report, report_write = os.pipe()
        ready_read, ready_write = os.pipe()
        first_read, first_write = os.pipe()
        self.log_path = os.path.join(args.save, "agent.log")
        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        fds = [shared, control_read, report_write, ready_write, first_write]
        n_numbers = 0 if has_own_pid_max() else PID_MAX
        first = "first" if variant.get("first") else "child"
        spec = {"root": os.path.abspath(args.save + "/root"), "groups": self.cgroups.made, "program": args.program, "agent": args.bellhopd, "first": first_write, "fds": fds[:4],
                "pid_max": PID_MAX if has_own_pid_max() else 0,
                "keeper": [shared, control_read, report_write, ready_write, n_numbers, first],
                "options": ["--listen", "127.0.0.1:0", "--unix", "/run/agent.sock", "--auth=open", "--ready-fd", str(ready_write),
                            "--max-commands", "24", "--max-results", "30", "--keep-results", "2s", "--output-memory", "8M",
                            "--spill-disk", "4M", "--keepalive", "1s", "--max-connections", "200",
                            *variant.get("options", [])],
                "env": {"PATH": "/bin", "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=8",
                        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}}
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--box", json.dumps(spec)], pass_fds=fds,
                                        stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for fd in (*fds, log):
            os.close(fd)
        self.ticks = {}
        self.reader = threading.Thread(target=self.read_reports, daemon=True)
        self.reader.start()
        try:
            self.start(first_read, ready_read)
        except BaseException:
            self.close()
            raise

    def start(self, first_read, ready_read):
        with os.fdopen(first_read) as f, os.fdopen(ready_read) as r:
            self.first = int(f.readline() or 0)
            self.root = f"/proc/{self.first}/root"
            line = r.readline() if self.first else ""
        if not line:
            with open(self.log_path, errors="replace") as f:
                raise Failure(f"the agent did not become ready: {self.lines} {f.read()[-3000:]}")
        self.port = int(json.loads(line)["tcp"][0].rsplit(":", 1)[1])
        self.until(lambda: any(s.startswith("kept") for s in self.lines), "the canaries")
        _, self.keeper, self.agent = next(s for s in self.lines if s.startswith("kept")).split()
        self.until(lambda: all(self.slot(i)[0] > 3 for i in range(N_CANARIES)), "the canaries' first ticks")
        self.expected = self.facts()

    def read_reports(self):
        with os.fdopen(self.report, errors="replace") as f:
            for line in f:
                self.lines.append(line.rstrip("\n"))
                if line.startswith(("canary", "transient", "error")):
                    self.fail(line.rstrip("\n"))
                elif line.startswith("agent "):
                    self.agent_status = int(line.split()[1])
        self.lines.append("end")

    def fail(self, why):
        self.failure = self.failure or why

    def until(self, what, why):
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            if self.failure:
                raise Failure(self.failure)
            if time.monotonic() > deadline:
                raise Failure(f"not in time: {why}")
            time.sleep(0.02)

    def connect(self, via="tcp"):
        if via == "tcp":
            return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(DEADLINE_S)
        try:
            s.connect(self.root + "/run/agent.sock")
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):  # a request has removed it
            s.close()
            return self.connect()
        return s

    # ---- state of the canaries ----

    def slot(self, i):
        return SLOT.unpack_from(self.shared, i * SLOT.size)

    def proc(self, pid, name):
        with open(f"{self.root}/proc/{pid}/{name}", errors="replace") as f:
            return f.read()

    def facts_of(self, pid):
        """Everything that another process could change about an idle process."""
        stat = self.proc(pid, "stat").rsplit(") ", 1)[1].split()
        status = {k: v for k, v in (line.split(":", 1) for line in self.proc(pid, "status").splitlines())}
        return {"state": {"T": "stopped", "t": "stopped", "Z": "ended", "X": "ended"}.get(stat[0], "runs"), "ids": stat[1:4], "nice": stat[15:17], "policy": stat[37:39],
                "cgroup": self.proc(pid, "cgroup"), "limits": self.proc(pid, "limits"), "oom": self.proc(pid, "oom_score_adj"),
                "status": {k: status[k] for k in ("Uid", "Gid", "CapEff", "Cpus_allowed", "NoNewPrivs", "SigIgn", "SigCgt")}}

    def facts(self):
        pids = [self.slot(i)[1] for i in range(N_CANARIES)]
        facts = {f"canary process {pid}": self.facts_of(pid) for pid in [*pids, int(self.keeper)]}
        return facts | {f"group {path}": group_facts(path) for base, _, _ in self.cgroups.made for path in (base, base + "/agent")}

    def groups_left(self):
        return [d for base, _, _ in self.cgroups.made for d, _, _ in os.walk(base) if d not in (base, base + "/agent")]

    def check_signals(self):
        for i in range(N_CANARIES + 1):
            _, pid, number, code, sender = self.slot(i)
            if number:
                name = f"canary {i}" if i < N_CANARIES else "a transient canary"
                self.fail(f"{name}, process {pid}, got signal {number} (code {ctypes.c_int(code).value}) of process {sender}")

    def check_canaries(self):
        self.check_signals()
        now = time.monotonic()
        for i in range(N_CANARIES + 1):
            ticks, since = self.ticks.get(i, (-1, now))
            is_now = self.slot(i)[0]
            if is_now != ticks:
                self.ticks[i] = (is_now, now)
            elif now - since > DEADLINE_S:
                self.fail(f"canary {i} was starved: no tick for {DEADLINE_S} s")
        try:
            facts = self.facts()
        except OSError as e:
            return self.fail(f"a canary is gone: {e}")
        for who, fact in facts.items():
            for k, v in fact.items():
                if v != self.expected[who][k]:
                    self.fail(f"{who}: {k} is {v!r}, was {self.expected[who][k]!r}")

    def check(self):
        self.check_canaries()
        if self.agent_status is not None or "end" in self.lines or not self.is_alive():
            # its status is known a little later
            time.sleep(0.3)
            self.fail(f"the agent ended: status {self.agent_status}")
        if self.failure:
            raise Failure(self.failure)

    def is_alive(self):
        try:
            return self.proc(self.agent, "stat").rsplit(") ", 1)[1][0] not in "ZX"
        except OSError:
            return False

    # ---- resources of the agent ----

    def children(self):
        """(pid, state, name) of all processes but the agent, the keeper and canaries."""
        found = []
        own = {int(self.keeper), int(self.agent)}
        for name in os.listdir(self.root + "/proc"):
            if name.isdigit() and int(name) not in own:
                try:
                    stat = self.proc(name, "stat")
                except OSError:
                    continue
                comm, rest = stat[stat.index("(") + 1:].rsplit(") ", 1)
                if comm not in ("keeper",) or rest.split()[1] != self.keeper:
                    found.append((int(name), rest[0], comm))
        return found

    def held(self):
        fds = collections.Counter()
        self.files = []
        for fd in os.listdir(f"{self.root}/proc/{self.agent}/fd"):
            try:
                link = os.readlink(f"{self.root}/proc/{self.agent}/fd/{fd}")
            except OSError:
                continue
            if link[0] == "/":
                self.files.append(link)
            fds[re.sub(r":\[\d+\]$", "", link) if link[0] != "/" else
                "upload" if re.search(r"upload|/#\d+ \(deleted\)$", link) else "file"] += 1
        return fds

    def memory(self):
        return int(re.search(r"VmRSS:\s+(\d+)", self.proc(self.agent, "status"))[1]) << 10

    def is_idle(self):
        """Does it use less than a fifth of a processor?"""
        def ticks():
            return sum(map(int, self.proc(self.agent, "stat").rsplit(") ", 1)[1].split()[11:13]))

        before = ticks()
        time.sleep(0.5)
        return ticks() - before <= os.sysconf("SC_CLK_TCK") / 10

    def n_threads(self):
        return len(os.listdir(f"{self.root}/proc/{self.agent}/task"))

    def stop_agent(self):
        os.write(self.control, b"T")
        if self.variant.get("first"):
            self.until(lambda: self.process.poll() is not None, "the end of the agent")
            if self.process.returncode != 0:
                raise Failure("the agent, as the first process, ended with an error")
            return
        self.until(lambda: self.agent_status is not None, "the end of the agent")
        if self.agent_status != 0:
            self.fail(f"the agent ended with status {self.agent_status:#x}")
            raise Failure(self.failure)
        self.until(lambda: not self.children(), f"the end of all processes: {self.children()}")
        self.check_canaries()
        if self.failure:
            raise Failure(self.failure)

    def close(self):
        os.close(self.control)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.cgroups.remove()


# ---- clients ----

# Drops all packets: for the agent, the client's machine is gone.
DROP_ALL = struct.pack("HBBI", 6, 0, 0, 0)
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27


def vanish(s):
    code = ctypes.create_string_buffer(DROP_ALL)
    s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))


def reset(s):
    try:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    s.close()


class Clients:
    """Threads that send sessions to a box, and a record of what they sent."""

    def __init__(self, box, make, save):
        self.box, self.make, self.save = box, make, save
        self.sent = collections.deque(maxlen=KEPT_SESSIONS)
        self.staying = collections.deque()
        self.counts = collections.Counter()
        self.harvest = {}
        self.lock = threading.Lock()
        self.is_over = False
        self.is_closed = False  # a token was set

    def note_answer(self, data):
        status = data[9:12].decode("latin-1") if data.startswith(b"HTTP/1.1 ") else "none" if not data else "other"
        self.counts[status] += 1
        for name, pattern in (("WATCHER", rb'"watcherId":"([^"]+)"'), ("UPLOAD", rb"(?i)location: (/v1/uploads/[^\r]+)"),
                              ("ETAG", rb"(?i)etag: ([^\r]+)"), ("PID", rb'"pid":(\d+)')):
            m = re.search(pattern, data[:4096])
            if m:
                self.harvest[name] = m[1].decode("latin-1")
        if status == "other":
            self.box.fail(f"no answer of HTTP: {data[:200]!r}")
        if status == "500":
            with self.lock, open(os.path.join(self.save, "answers-500"), "ab") as f:
                f.write(data[:1000] + b"\n----\n")
        return status

    def send(self, s, data):
        """Sends everything; reads meanwhile, because the agent waits until its replies are read."""
        got = b""
        data = memoryview(data)
        end = time.monotonic() + DEADLINE_S
        while data and not self.box.failure:
            can_read, can_write, _ = select.select([s], [s], [], 1)
            if can_write:
                data = data[s.send(data[:16384]):]
            elif can_read:
                piece = s.recv(65536)
                if not piece:
                    break
                got = (got + piece)[:65536]
            if time.monotonic() > end:
                raise TimeoutError
        return got

    def read_to_end(self, s, session, got):
        """Reads until the agent closes. Raises the errors of the socket."""
        end = time.monotonic() + DEADLINE_S
        while True:
            left = end - time.monotonic()
            if left <= 0 and got and self.box.args.is_sanitized:
                # the system's libmicrohttpd lacks a fix of the pinned one: a truncated file has no end
                self.counts["unfinished"] += 1
                return got
            if left <= 0:
                self.box.fail(f"no end of the answer in {DEADLINE_S} s; so far {got[:300]!r}; asked: {session.brief()}")
                return got
            s.settimeout(min(left, 1))
            try:
                piece = s.recv(65536)
            except TimeoutError:
                if self.box.failure:
                    return got
                continue
            if not piece:
                return got
            if len(got) < 65536:
                got += piece

    def stay(self, s):
        self.staying.append(s)
        while len(self.staying) > MAX_STAYING:
            try:
                self.leave_for_good(self.staying.popleft())
            except IndexError:
                return

    @staticmethod
    def leave_for_good(s):
        try:
            s.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        except OSError:
            pass
        reset(s)

    def run_session(self, session):
        if self.box.variant.get("first") and b"Lease" in b"".join(session.pieces):
            return  # the end of a lease is the end of the machine
        self.sent.append(session)
        self.counts["sessions"] += 1
        s = self.box.connect(session.via)
        try:
            got = b""
            for i, piece in enumerate(session.pieces):
                if i:
                    time.sleep(0.001)
                got += self.send(s, piece)
            end = session.end
            if end in ("half-close", "read"):
                if end == "half-close":
                    s.shutdown(socket.SHUT_WR)
                self.note_answer(self.read_to_end(s, session, got))
            elif end == "look":  # for a moment: the reply may have no end
                s.settimeout(session.look_s or 0.001)
                try:
                    while len(got) < 1 << 20 and (piece := s.recv(65536)):
                        got += piece
                except TimeoutError:
                    pass
                self.note_answer(got)
                (reset if session.via == "tcp" and session.look_s < 0.1 else socket.socket.close)(s)
            elif end == "reset":
                reset(s)
            elif end == "vanish":
                vanish(s)
                self.stay(s)
                return
            elif end == "stay":
                self.stay(s)
                return
            s.close()
        except TimeoutError:
            self.box.fail(f"the agent took no more of a request for {DEADLINE_S} s: {session.brief()}")
            s.close()
        except OSError as e:
            if e.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                raise
            self.counts["reset"] += 1
            s.close()

    def client(self, n, until):
        i = 0
        try:
            while time.monotonic() < until and not self.box.failure and not self.is_over:
                self.run_session(self.make(n, i, self.harvest))
                i += 1
        except Done:
            pass
        except BaseException as e:  # noqa: B902
            self.box.fail(f"client {n}: {e!r}")

    def probe(self, until):
        """Sends well-formed requests all the time: each must be answered."""
        asks = [rest("GET", "/v1/health"), rest("GET", "/health"), rpc("Fs/List", {"path": "/tmp"}),
                rpc("Exec/Run", {"argv": ["echo", "probe"], "timeout_ms": 20000}), rpc("Exec/List", {}), rpc("Search/Glob", {"path": "/bin", "patterns": ["**"]}), rpc("System/Activity", {})]
        # requests remove and move existing files
        again = [rpc("Fs/MakeDir", {"path": path, "mode": "1777"}) for path in ("/tmp/d", "/var/tmp", "/home/user", "/srv", "/run")]
        again += [rest("PUT", f"/v1/files//tmp/d/{i}.txt", b"needle\n") for i in range(4)]
        again += [rpc("System/Env", {"set": {}, "replace": True}), rest("POST", "/init", b'{"defaultUser":"user","defaultWorkdir":"/tmp"}')]
        n = 0
        while time.monotonic() < until and not self.box.failure and not self.is_over:
            n += 1
            for request in asks + again if n % 5 == 0 else asks[:2]:
                for _ in range(5):  # System/Resync closes connections whose request has not begun
                    try:
                        with self.box.connect("tcp" if n % 2 else "unix") as s:
                            s.sendall(request)
                            got = b""
                            while piece := s.recv(65536):
                                got += piece
                    except (ConnectionResetError, BrokenPipeError):
                        got = b""
                    except OSError as e:
                        return self.box.fail(f"probe {request[:60]!r}: {e!r}")
                    if got:
                        break
                self.counts["probes"] += 1
                if b"health" in request[:20] and got[:10] != b"HTTP/1.1 2":
                    return self.box.fail(f"probe {request[:60]!r}: {got[:300]!r}")
                if got.startswith(b"HTTP/1.1 401"):
                    self.is_closed = self.is_over = True
                elif not got.startswith(b"HTTP/1.1 "):
                    return self.box.fail(f"probe {request[:60]!r}: {got[:300]!r}")
            time.sleep(0.05)

    def watch(self, until):
        while time.monotonic() < until and not self.box.failure and not self.is_over:
            try:
                self.box.check()
            except Failure:
                return
            time.sleep(0.25)

    def run(self, seconds):
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=self.client, args=(n, until)) for n in range(N_CLIENTS)]
        threads += [threading.Thread(target=self.probe, args=(until,)), threading.Thread(target=self.watch, args=(until,))]
        for t in threads:
            t.start()
        for t in threads[:N_CLIENTS]:
            t.join()
        self.is_over = True
        for t in threads[N_CLIENTS:]:
            t.join()
        self.leave()
        self.box.check()

    def leave(self):
        while self.staying:
            self.leave_for_good(self.staying.popleft())


def rest(verb, target, body=b"", kind="application/json"):
    return (f"{verb} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def rpc(method, message):
    return rest("POST", f"/bellhop.v1.{method}", json.dumps(message).encode())


def ask(box, request):
    with box.connect() as s:
        s.sendall(request)
        got = b""
        while piece := s.recv(65536):
            got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    return head, body


# ---- a round ----

def excess(now, before):
    return {k: n - before[k] for k, n in now.items() if n > before[k]}


def settle(box, clients, before):
    """After all clients have left, everything that was made for them must disappear."""
    if clients.is_closed:
        return

    def commands_are_over():
        _, body = ask(box, rpc("Exec/List", {}))
        try:
            alive = [c for c in json.loads(body)["commands"] if c["state"] != "exited"]
        except (ValueError, KeyError):
            raise Failure(f"Exec/List: {body[:300]!r}") from None
        for c in alive:
            ask(box, rpc("Exec/Signal", {"id": c["id"], "signal": "KILL", "tree": True}))
        return not alive

    box.until(commands_are_over, "the end of all commands")
    state = {}

    def is_quiet():
        state["processes"] = box.children()
        for pid, letter, _ in state["processes"]:
            if letter == "T":  # stopped by SIGSTOP: it would never end
                os.write(box.control, f"K{pid}\n".encode())
                time.sleep(0.05)
        state["descriptors"] = excess(box.held(), before)
        state["threads"] = box.n_threads()
        state["groups"] = box.groups_left()
        if state["groups"] and not state["processes"] and time.monotonic() > state.get("next", 0):
            # a group that was not empty at the end of its command is removed when the next is made
            ask(box, rpc("Exec/Run", {"argv": ["true"], "limits": {"memory_bytes": 64 << 20, "pids": 20, "cpu_millis": 900}}))
            state["next"] = time.monotonic() + 5
        return (not state["processes"] and not state["groups"] and not leaked(state["descriptors"])
                and state["threads"] <= clients.n_threads)

    try:
        box.until(is_quiet, "the agent holds nothing")
    except Failure as e:
        raise Failure(f"{e}: {state}, {box.files}") from None
    box.until(box.is_idle, "the agent is idle")
    _, body = ask(box, rpc("Exec/Run", {"argv": ["echo", "works"], "env": {"PATH": "/bin"}, "cwd": "/"}))
    if b'"works"' not in body:
        raise Failure(f"a command can't be run any more: {body[:500]!r}")
    now = box.memory()
    if now > clients.memory + MEMORY_SLACK * (8 if box.args.is_sanitized else 1):
        raise Failure(f"the agent has {now >> 20} MiB, had {clients.memory >> 20} MiB")


def leaked(extra):
    """Without what is kept by right: watchers that nobody removed, uploads that can go on, with their directories, and two
    directories that are opened when they are needed first."""
    return {k: n for k, n in extra.items() if k not in ("anon_inode:inotify", "upload") and (k != "file" or n > 2 + extra.get("upload", 0))}


VARIANTS = [
    {"name": "root"},
    {"name": "first process", "first": True, "options": ["--init"]},
    {"name": "commands as user", "options": ["--user", "user"]},
]


def run_round(args, number, make, seconds):
    variant = VARIANTS[number % len(VARIANTS)]
    try:
        box = Box(args, variant)
    except Failure as e:
        print(f"FAIL: {e}", flush=True)
        sys.exit(1)
    clients = Clients(box, make, args.save)
    try:
        ask(box, rpc("Exec/Run", {"argv": ["true"]}))
        before, clients.memory, clients.n_threads = box.held(), box.memory(), box.n_threads()
        if args.kill_canary:
            os.write(box.control, f"K{box.slot(3)[1]}\n".encode())
        clients.run(seconds)
        n_commands = re.search(rb"^bellhop_commands_started_total (\d+)", ask(box, rest("GET", "/v1/metrics"))[1], re.M)
        clients.counts["commands"] = int(n_commands[1]) if n_commands else 0
        settle(box, clients, before)
        if args.is_sanitized:  # a timer keeps the command for a lossless reader that left: no leak
            time.sleep(LINGER_S)
        box.stop_agent()
    except (Failure, OSError) as e:
        box.fail(str(e) if isinstance(e, Failure) else repr(e))
    finally:
        clients.leave()
        box.close()
    print_round(args, number, box, clients)
    if box.failure:
        print_failure(args, number, box, clients)
        sys.exit(1)


def print_round(args, number, box, clients):
    counts = dict(clients.counts)
    n_transient = struct.unpack_from("Q", box.shared, SLOT.size * (N_CANARIES + 1))[0]
    print(f"# round {number} ({box.variant['name']}): {counts.pop('sessions', 0)} sessions, {counts.pop('commands', 0)} commands, "
          f"{counts.pop('probes', 0)} probes, {n_transient} transient canaries; answers: "
          + ", ".join(f"{k}: {n}" for k, n in sorted(counts.items()))
          + (" (a token was set: it ended early)" if clients.is_closed else ""), flush=True)


def print_failure(args, number, box, clients):
    path = os.path.join(args.save, f"failed-{args.seed}-{number}.json")
    with open(path, "w") as f:
        json.dump([s.to_json() for s in clients.sent], f, indent=1)
    with open(box.log_path, errors="replace") as f:
        log = f.read()
    with open(path + ".log", "w") as f:
        f.write(log)
    print(f"FAIL: {box.failure}\n# round {number} of SEED={args.seed}; its last requests are in {path}; the agent's log ends:\n"
          + log[-4000:], flush=True)


def replay(args, path):
    with open(path) as f:
        sessions = [requests.Session.from_json(d) for d in json.load(f)]

    def make(n, i, _):
        if n < N_CLIENTS and i * N_CLIENTS + n < len(sessions):
            return sessions[i * N_CLIENTS + n]
        raise Done

    for n in range(len(VARIANTS)):
        print(f"# {path}: {len(sessions)} sessions", flush=True)
        run_round(args, n, make, DEADLINE_S)


class Done(Exception):
    pass


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bellhopd")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--save", default="build/fuzz/agent")
    p.add_argument("--replay", action="append", default=[])
    p.add_argument("--kill-canary", action="store_true", help="to see that it is seen")
    args = p.parse_args()
    args.bellhopd = os.path.abspath(args.bellhopd)
    args.seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    with open(args.bellhopd, "rb") as f:
        args.is_sanitized = b"AddressSanitizer" in f.read()
    os.makedirs(args.save + "/root", exist_ok=True)
    args.program = os.path.abspath(os.path.join(args.save, "fuzz_box"))
    subprocess.run(["gcc", "-O1", "-static", "-D_GNU_SOURCE", "-o", args.program, os.path.join(HERE, "../lib/fuzz_box.c")], check=True)
    call(libc.unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS), "unshare")
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    with socket.socket() as s:  # lo is up
        fcntl.ioctl(s, 0x8914, struct.pack("16sH22x", b"lo", 0x41))
    if not has_own_pid_max():
        print("# this kernel has one pid_max for all namespaces (before 6.14): ns_last_pid is set back instead", flush=True)
    print(f"# SEED={args.seed}", flush=True)
    for path in args.replay:
        replay(args, path)
    if args.seconds <= 0:
        return
    end = time.monotonic() + args.seconds
    number = 0
    while (left := end - time.monotonic()) > 1:
        run_round(args, number, requests.maker(args.seed, number), min(ROUND_S, left))
        number += 1
    print("ok", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--box"]:
        run_box(sys.argv[2])
    import agent_requests as requests
    main()
