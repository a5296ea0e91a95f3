#!/usr/bin/env python3
"""sdk.py CASE: one case with E2B's own SDK, unmodified."""

import concurrent.futures
import os
import sys
import threading
import time

from e2b import CommandExitException, NotFoundException, Sandbox, TimeoutException
from e2b.sandbox.commands.command_handle import PtySize

sandbox = Sandbox.create()


def rejects(kind, call, *args, **more):
    try:
        call(*args, **more)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def case_run():
    r = sandbox.commands.run("echo 'a  b' ä; echo err >&2; printf end")
    assert (r.exit_code, r.stdout, r.stderr) == (0, "a  b ä\nend", "err\n"), r
    pieces = []
    sandbox.commands.run("echo one; echo two", on_stdout=pieces.append)
    assert "".join(pieces) == "one\ntwo\n"
    assert rejects(CommandExitException, sandbox.commands.run, "exit 3").exit_code == 3
    assert len(sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3000000


def case_where():
    def run(cmd, **more):
        return sandbox.commands.run(cmd, **more).stdout
    assert run("id -un; pwd") == "user\n/home/user\n"
    assert run("id -un; echo $HOME", user="root") == "root\n/root\n"
    assert run("pwd", cwd="/tmp") == "/tmp\n"
    assert run("echo $A", envs={"A": "b c"}) == "b c\n"
    assert run("echo [$A]") == "[]\n"
    assert "cwd '/nowhere' does not exist" in str(rejects(Exception, run, "true", cwd="/nowhere"))
    assert "invalid username: 'nobodyhere'" in str(rejects(Exception, run, "true", user="nobodyhere"))


def case_background():
    h = sandbox.commands.run("sleep 600", background=True)
    assert h.pid in [p.pid for p in sandbox.commands.list()]
    again = sandbox.commands.connect(h.pid)
    assert again.pid == h.pid
    assert h.kill() and not h.kill()
    assert rejects(CommandExitException, h.wait).exit_code == -1
    rejects(CommandExitException, again.wait)
    rejects(CommandExitException, sandbox.commands.run, f"kill -0 {h.pid}", user="root")
    rejects(NotFoundException, sandbox.commands.connect, 999999)


def case_stdin():
    h = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(h.pid, "hello\n")
    sandbox.commands.send_stdin(h.pid, "ä\n")
    sandbox.commands.close_stdin(h.pid)
    assert h.wait().stdout == "hello\nä\n"


def case_timeout():
    rejects(TimeoutException, sandbox.commands.run, "sleep 600", timeout=1)


def case_pty():
    h = sandbox.pty.create(PtySize(rows=24, cols=80), envs={"A": "b"})
    seen = bytearray()
    t = threading.Thread(target=lambda: h.wait(on_pty=seen.extend))
    t.start()

    def wait(what):
        deadline = time.monotonic() + 120
        while what not in seen:
            assert time.monotonic() < deadline, seen
            time.sleep(0.02)
    sandbox.pty.send_stdin(h.pid, b"echo $A-$((1+1))-$(tput cols)\n")
    wait(b"b-2-80")
    sandbox.pty.resize(h.pid, PtySize(rows=30, cols=101))
    sandbox.pty.send_stdin(h.pid, b"tput cols\n")
    wait(b"101")
    sandbox.pty.send_stdin(h.pid, b"exit\n")
    t.join(120)
    assert not t.is_alive()


def case_git():
    repo = "/home/user/repo-py"
    sandbox.git.init(repo, initial_branch="main")
    sandbox.files.write(repo + "/a.txt", "hello\n")
    assert len(sandbox.git.status(repo).file_status) == 1
    sandbox.git.configure_user("Test", "test@example.com")
    sandbox.git.add(repo)
    sandbox.git.commit(repo, "first")
    assert not sandbox.git.status(repo).file_status
    sandbox.git.create_branch(repo, "other")
    assert sorted(sandbox.git.branches(repo).branches) == ["main", "other"]


def case_parallel():
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        runs = pool.map(lambda i: sandbox.commands.run(f"echo {i}", timeout=0, request_timeout=0).stdout, range(300))
        assert list(runs) == [f"{i}\n" for i in range(300)]


def case_created():
    assert sandbox.sandbox_id[0] == "i"
    other = Sandbox.create(envs={"OF_CREATE": "yes"})
    assert other.commands.run("echo $OF_CREATE").stdout == "yes\n"
    again = Sandbox.connect(other.sandbox_id)
    assert again.commands.run("id -un").stdout == "user\n"
    assert again.kill() and not other.kill()


for name in sys.argv[1:]:
    globals()["case_" + name]()
# The HTTP client of the SDK has threads of its own, on which Python, as it ends, aborts now and then.
sys.stdout.flush()
os._exit(0)
