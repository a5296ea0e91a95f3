"""Runs every command of `bellhop` that talks to a box against every attack of hostile_agent.py.

hostile_run.py BELLHOP DIR: works in DIR, which is empty; BELLHOP_STATE_DIR and BELLHOP_CACHE_DIR are the
caller's. Writes a line of JSON for each run to standard output:

  {"attack","command","status","hung","max_rss_kb","dirty","stdout","stderr","terminal","changed","made"}

status -N: ended by signal N. hung: it was still there after LIMIT_S. dirty: which of its outputs hold what a
terminal would obey ("stdout" with a pipe: where names are, "terminal": with a terminal, "stderr"). changed:
what is different outside its own directory; made: what is new or different in it.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import termios
import threading

BELLHOP, DIR = sys.argv[1], os.path.abspath(sys.argv[2])
AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hostile_agent.py")
ONLY = sys.argv[3:]  # attacks; none: all
LIMIT_S = 240  # a bound against a hang: 20 answer timeouts of a second, or two stalls of 30, on a busy machine
KEPT_BYTES = 64 << 10
OUTPUT_BYTES = 4 << 20  # then whoever reads has had enough
CONTROLS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")

# {B}: the box, {D}: the command's own directory, {F}: a file to send. A pipe gets content as it is: `*` marks
# commands whose output is content, `**` those whose standard error is, too.
COMMANDS = """
exec** exec {B} -- true
exec-json exec --json {B} -- true
exec-detach exec -d {B} -- true
exec-stdin** exec -i {B} -- cat
shell* shell {B}
ps ps {B}
ps-json ps --all --json {B}
attach** attach {B} some-id
wait wait {B} some-id --timeout 2s
kill kill {B} some-id
logs* logs {B} --id some-id
logs-follow* logs -f {B} --id some-id
activity activity {B}
activity-json activity --json {B}
hold hold {B}
release release {B} some-id
ports ports {B}
ports-json ports --json {B}
wait-port wait-port {B} 80 --timeout 1s
ready ready {B}
url url {B} --port 80
keep keep {B} --for 5m
status status {B}
ls ls
cat* cat {B} :/file.txt
edit* edit {B} :/file.txt --old a --new b
put put {B} {F} :/dir
put-dir put {B} {D} :/dir
get get {B} :/file.txt {D}
get-dir get {B} :/x {D}
sync-out sync {B} :/src {D}
sync-in sync {B} {D} :/dest
sync-dry sync --dry-run {B} :/src {D}
watch watch {B} --timeout 3s
watch-json watch --json {B} --timeout 3s
glob glob {B} *
glob-json glob --json {B} *
grep* grep --color never -C 1 -b --column {B} x
grep-json grep --json {B} x
grep-files* grep -l --color never {B} x
"""
LAST = """
stop stop {B}
start start {B}
rm rm {B}
"""


# Endless messages only matter to commands that print them: elsewhere a newer agent may send them, and
# `exec --json` waits for the end of a command however much it prints.
READERS = {"matches": ("grep",), "files": ("glob",), "entries": ("sync",), "left-alone": ("sync",), "output": ("exec", "attach", "logs")}


def is_wanted(attack, words):
    return words[0].startswith(READERS.get(attack, ("",))) and (attack, words[0]) != ("output", "exec-json")


def commands(text):
    return [line.split() for line in text.splitlines() if line]


# ---- the state of the file system ----

def look(top, skip=()):
    seen = {}
    for base, dirs, files in os.walk(top):
        dirs[:] = [d for d in dirs if os.path.join(base, d) not in skip]
        for name in dirs + files:
            path = os.path.join(base, name)
            st = os.lstat(path)
            what = [oct(st.st_mode)]
            if os.path.islink(path):
                what.append(os.readlink(path))
            elif name in files:
                with open(path, "rb") as f:
                    what.append(hashlib.sha256(f.read()).hexdigest())
            seen[os.path.relpath(path, top).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")] = what
    return seen


def differences(before, after):
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def make_own_dir(path):
    """A typical directory of a user: a repository, with files that no command may change."""
    os.makedirs(path + "/.ssh")
    subprocess.run(["git", "init", "-q", path], check=True, env={**os.environ, "HOME": DIR + "/home"})
    for name in ("sentinel", ".bashrc", ".git/config", ".ssh/known_hosts"):
        with open(f"{path}/{name}", "w", encoding="ascii") as f:
            f.write("mine\n")
    with open(path + "/.bellhopignore", "w", encoding="ascii") as f:
        f.write(".ssh\n")


# ---- one run ----

def environment():
    return {**os.environ, "BELLHOP_ANSWER_TIMEOUT": "1s", "TERM": "xterm", "HOME": DIR + "/home", "LC_ALL": "C.UTF-8"}


def collect(fd, kept):
    """Collects output up to a limit; then the writer finds no reader. Keeps little: the count of a child's memory
    begins at the size of this process."""
    n = 0
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:  # a terminal whose other side is closed
            data = b""
        n += len(data)
        kept += data[:max(KEPT_BYTES - len(kept), 0)]
        if not data or n > OUTPUT_BYTES:
            break
    os.close(fd)


def run(argv, cwd, on_terminal=False, source=b""):
    if on_terminal:
        out, writer = os.openpty()
        mode = termios.tcgetattr(writer)
        mode[1] &= ~termios.OPOST
        termios.tcsetattr(writer, termios.TCSANOW, mode)
    else:
        out, writer = os.pipe()
    errors, errors_writer = os.pipe()
    feed, feed_writer = os.pipe()
    p = subprocess.Popen([BELLHOP, *argv], cwd=cwd, env=environment(), stdin=feed, stdout=writer, stderr=errors_writer)
    for fd in (feed, writer, errors_writer):
        os.close(fd)
    stdout, stderr = bytearray(), bytearray()
    threads = [threading.Thread(target=collect, args=(fd, kept)) for fd, kept in ((out, stdout), (errors, stderr))]
    for t in threads:
        t.start()
    try:
        os.write(feed_writer, source[:60000])
    except BrokenPipeError:
        pass
    os.close(feed_writer)
    timer = threading.Timer(LIMIT_S, p.kill)
    timer.start()
    _, status, usage = os.wait4(p.pid, 0)
    hung = not timer.is_alive()
    timer.cancel()
    p.returncode = os.waitstatus_to_exitcode(status)
    for t in threads:
        t.join()
    return {"status": p.returncode, "hung": hung, "max_rss_kb": usage.ru_maxrss}, bytes(stdout), bytes(stderr)


def has_controls(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return len(data) < KEPT_BYTES  # else it is cut, maybe within a character
    return bool(CONTROLS.search(data))


def attempt(attack, words):
    name, argv = words[0].rstrip("*"), words[1:]
    is_content = words[0].endswith("*")
    top = f"{DIR}/{attack}"
    own = f"{top}/{name}"
    if not os.path.isdir(own):
        make_own_dir(own)
    argv = [w.format(B=f"b-{attack}", D=own, F=f"{DIR}/file-to-send") for w in argv]
    before = look(own)
    result, stdout, stderr = run(argv, own, source=b"input\n" * 5000)
    made = differences(before, look(own))
    dirty = ["stderr"] if has_controls(stderr) and not words[0].endswith("**") else []
    if not is_content and has_controls(stdout):
        dirty.append("stdout")
    if attack in ("names", "error") and words not in commands(LAST):
        more, shown, stderr2 = run(argv, own, on_terminal=True)
        result = {k: max(result[k], more[k]) if k != "status" else result[k] for k in result}
        if has_controls(shown):
            dirty.append("terminal")
        stdout += shown
        stderr += stderr2
    result.update(attack=attack, command=name, dirty=dirty, made=made, stdout=repr(stdout[:600]), stderr=repr(stderr[:600]))
    return result


def up(attack):
    wrapper = f"{DIR}/agent-{attack}"
    box = f"b-{attack}"
    with open(wrapper, "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\nexec "{AGENT}" --attack {attack} "$@"\n')
    os.chmod(wrapper, 0o755)
    # A box whose agent attacks from the start, and one whose agent does so once it is used.
    args = ["--provider", "process", "--agent", "none", "--empty"]
    os.makedirs(f"{DIR}/{attack}")
    make_own_dir(f"{DIR}/{attack}/up")
    os.environ["BELLHOP_AGENT"] = wrapper
    result, stdout, stderr = run(["up", "--name", f"n-{attack}", *args], f"{DIR}/{attack}/up")
    dirty = [n for n, data in (("stdout", stdout), ("stderr", stderr)) if has_controls(data)]
    result.update(attack=attack, command="up", dirty=dirty, made=[], stdout=repr(stdout[:600]), stderr=repr(stderr[:600]))
    os.environ["BELLHOP_AGENT"] = AGENT
    subprocess.run([BELLHOP, "up", "--name", box, *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state = os.environ["BELLHOP_STATE_DIR"]
    status = json.loads(subprocess.run([BELLHOP, "status", "--json", box], check=True, capture_output=True).stdout)
    with open(f"{state}/boxes/{status['id']}/attack", "w", encoding="ascii") as f:
        f.write(attack)
    return result


def main():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    attacks = ONLY or subprocess.run([AGENT, "--attacks"], check=True, capture_output=True, text=True).stdout.split()
    os.makedirs(DIR + "/home")
    with open(DIR + "/file-to-send", "wb") as f:
        f.write(b"content\n" * 100000)
    make_own_dir(DIR + "/outside")
    results = [up(a) for a in attacks]
    skip = {f"{DIR}/{a}/{w[0].rstrip('*')}" for a in attacks for w in commands(COMMANDS + LAST)} | {os.environ["BELLHOP_STATE_DIR"]}
    before = look(DIR, skip)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [(a, w) for w in commands(COMMANDS) for a in attacks if is_wanted(a, w)]
        results += pool.map(lambda j: attempt(*j), jobs)
        for w in commands(LAST):
            results += pool.map(lambda a, w=w: attempt(a, w), attacks)
    changed = differences(before, look(DIR, skip))
    for r in results:
        print(json.dumps(r))
    print(json.dumps({"attack": "", "command": "all", "status": 0, "hung": False, "max_rss_kb": 0, "dirty": [], "made": [],
                      "changed": changed}))


main()
