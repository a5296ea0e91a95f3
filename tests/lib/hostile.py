"""A hostile child of the agent: tries every way it knows to the agent's token, and prints each that
works, one a line, then "done". It is not told the token but its SHA-256, so that it can tell.

    hostile.py AGENT_PID SHA256[:LENGTH] [FILE...]     files: where the token may lie

Without a length the token is 32 hex digits, with it so many letters and dashes.
"""
import ctypes
import hashlib
import os
import re
import sys

PID, FILES = int(sys.argv[1]), sys.argv[3:]
DIGEST, _, LENGTH = sys.argv[2].partition(":")
TOKEN = re.compile(rb"(?=([a-z-]{%d}))" % int(LENGTH) if LENGTH else rb"(?=([0-9a-f]{32}))")
libc = ctypes.CDLL(None, use_errno=True)
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE = 16, 17, 0x4206


def has_token(data):
    return any(hashlib.sha256(m.group(1)).hexdigest() == DIGEST for m in TOKEN.finditer(data))


def works(what):
    print(what, flush=True)


def read(path, limit=1 << 22):
    try:
        with open(path, "rb", buffering=0) as f:
            return f.read(limit)
    except OSError:
        return b""


def try_files():
    for path in FILES:
        if has_token(read(path)):
            works(f"file {os.path.basename(path)}")
    for what, data in (("own environment", b"".join(k + v for k, v in os.environb.items())),
                       ("own arguments", read("/proc/self/cmdline").replace(DIGEST.encode(), b""))):
        if has_token(data):
            works(what)
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) > 2 and has_token(read(f"/proc/self/fd/{fd}", 65536)):
            works(f"inherited descriptor {fd}")


def try_proc():
    for where in (f"/proc/{PID}", f"/proc/{PID}/task/{PID}"):
        for name in ("environ", "cmdline", "auxv", "maps", "smaps", "stack", "syscall", "comm", "status"):
            if has_token(read(f"{where}/{name}")):
                works(f"proc {name}")
        for name in ("root", "cwd", "exe"):
            try:
                os.readlink(f"{where}/{name}")
                works(f"proc {name}")
            except OSError:
                pass
        for name in ("fd", "map_files"):
            try:
                entries = os.listdir(f"{where}/{name}")  # root may count them, but not look at one
            except OSError:
                continue
            for entry in entries:
                try:
                    os.readlink(f"{where}/{name}/{entry}")
                    works(f"proc {name}")
                    break
                except OSError:
                    pass
    # Readable by everybody, so no secret of ours may be in it: names of sockets, messages of System V.
    if has_token(read("/proc/net/unix")):
        works("socket names")


def try_memory():
    ranges = []
    for line in read(f"/proc/{PID}/maps").splitlines():
        parts = line.split()
        if parts[1].startswith(b"rw"):
            ranges.append([int(x, 16) for x in parts[0].split(b"-")])
    try:
        with open(f"/proc/{PID}/mem", "rb", buffering=0) as f:
            for start, end in ranges:
                f.seek(start)
                try:
                    if has_token(f.read(min(end - start, 1 << 24))):
                        works("proc mem")
                        break
                except OSError:
                    pass
    except OSError:
        pass

    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    buf = ctypes.create_string_buffer(4096)
    local = Piece(ctypes.cast(buf, ctypes.c_void_p), 4096)
    # If the mappings are unknown, a bad address would be EFAULT: any error except EPERM is a way in.
    remote = Piece(ranges[0][0] if ranges else 0x400000, 4096)
    n = libc.process_vm_readv(PID, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    if n >= 0 or ctypes.get_errno() not in (1, 3):
        works("process_vm_readv")


def try_ptrace():
    for name, request in (("attach", PTRACE_ATTACH), ("seize", PTRACE_SEIZE)):
        if libc.ptrace(request, PID, None, None) == 0:
            works(f"ptrace {name}")
            os.waitpid(PID, 0x40000000) if request == PTRACE_ATTACH else None
            libc.ptrace(PTRACE_DETACH, PID, None, None)
            break
    pidfd = libc.syscall(SYS_PIDFD_OPEN, PID, 0)
    if pidfd >= 0:
        for fd in range(64):
            if libc.syscall(SYS_PIDFD_GETFD, pidfd, fd, 0) >= 0:
                works("pidfd_getfd")
                break


try_files()
try_proc()
try_memory()
try_ptrace()
print("done")
