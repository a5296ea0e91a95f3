#!/usr/bin/env python3
"""process_wire.py CASE: one case of process.Process on the wire; fails with a traceback."""

import base64
import http.client
import json
import os
import select
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from e2b_wire import (  # noqa: E402
    DEADLINE_S, Stream, b64, connection, envelope, request, same, sh, start, unary)

BASIC_ROOT = "Basic cm9vdDo="


def until(what, seconds=DEADLINE_S):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def pids():
    return [p["pid"] for p in unary("List", {})[1].get("processes", [])]


def written(pid):
    """How many bytes of a command's stdout the agent has taken."""
    return next(c["stdout"]["bytes"] for c in unary("bellhop.v1.Exec/List", {})[1]["commands"] if c["pid"] == pid)


def case_events():
    """One start, the data, one end, and the connection goes on."""
    s, pid = sh("printf out; printf err >&2; exit 3")
    assert pid > 1
    same(s.rest(), (b"out", b"err", {"exitCode": 3, "exited": True, "status": "exit status 3",
                                     "error": "exit status 3"}))
    same(s.end, {})
    s, _ = sh("true")
    same(s.rest(), (b"", b"", {"exited": True, "status": "exit status 0"}))
    s, _ = sh("printf '\\377\\000x'")
    same(s.rest()[0], b"\xff\0x")
    s, _ = sh("kill -9 $$")
    same(s.rest()[2], {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"})
    s, _ = start("no-such-program", "x")
    out, err, end = s.rest()
    same((out, end["exitCode"], end["exited"]), (b"", 127, True))
    assert b"not found" in err, err
    s, _ = start("/etc/passwd")
    same(s.rest()[2]["exitCode"], 126)


def case_eof_semantics():
    """The end waits for all who hold the output open, but not after a signal, nor after a deadline."""
    s, pid = sh("(sleep 0.3; echo second) & echo first")
    same(s.rest()[0], b"first\nsecond\n")
    for signal in "SIGNAL_SIGKILL", "SIGNAL_SIGTERM":
        s, pid = sh("sleep 600 & echo up; wait")
        same(s.event()[0], "data")
        same(unary("SendSignal", {"process": {"pid": pid}, "signal": signal}), (200, {}))
        assert s.rest()[2]["status"] in ("signal: killed", "signal: terminated")
    s, pid = sh("sleep 600 & echo up")
    same(s.event()[0], "data")
    until(lambda: not os.path.exists(f"/proc/{pid}/exe"))  # it has ended, its child holds on
    same(unary("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}), (200, {}))
    same(s.rest()[2]["status"], "exit status 0")


def case_deadline():
    """It ends the stream and the process, whether its client is there or not; the group stays."""
    for ms in 400, 4000, 40000:  # a busy machine may need more of them to get to the echo
        s = Stream("Start", {"process": {"cmd": "/bin/sh", "args": ["-c", "sleep 600 & echo $!; exec sleep 601"]}}, Connect_Timeout_Ms=str(ms))
        pid = (s.event()[1] or {}).get("pid")
        child = s.event()
        if child[0] == "data":
            break
        same(s.end["error"]["code"], "deadline_exceeded")
    same(s.rest(), (b"", b"", None))
    same(s.end, {"error": {"code": "deadline_exceeded", "message": "context deadline exceeded"}})
    assert pid not in pids()
    os.kill(int(base64.b64decode(child[1]["stdout"])), 9)
    for ms in 700, 7000, 70000:
        begun = time.monotonic()
        s, pid = sh("exec sleep 601", headers={"Connect-Timeout-Ms": str(ms)})
        s.close()
        listed = pid in pids()
        in_time = time.monotonic() - begun < ms / 1000 * 0.9
        until(lambda: pid not in pids())
        if in_time:
            break
    assert listed and in_time
    s, pid = sh("exec sleep 601")
    c = Stream("Connect", {"process": {"pid": pid}}, Connect_Timeout_Ms="300")
    same(c.rest()[2], None)
    same(c.end["error"]["code"], "deadline_exceeded")
    assert pid in pids()
    unary("SendSignal", {"process": {"pid": pid}, "signal": 9})
    for bad in "-1", "soon":
        s = Stream("Start", {"process": {"cmd": "true"}}, Connect_Timeout_Ms=bad)
        same((s.next(), s.end["error"]["code"]), (None, "invalid_argument"))


def case_disconnect():
    """A client that goes ends nothing; what is written then is not in the way, and not told again."""
    s, pid = sh("head -c 3000000 /dev/zero; echo between; exec cat", stdin=True)
    s.close()
    assert pid in pids()
    until(lambda: written(pid) == 3000008)
    c = Stream("Connect", {"process": {"pid": pid}})
    same(c.event(), ("start", {"pid": pid}))
    same(unary("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64(b"hello")}}), (200, {}))
    same(unary("CloseStdin", {"process": {"pid": pid}}), (200, {}))
    out, _, end = c.rest()
    same((out, end["status"]), (b"hello", "exit status 0"))


def case_replay():
    """By our header a client gets what it missed; what is gone is counted."""
    s, pid = sh("echo one; echo two >&2; exec cat", stdin=True)
    s.close()
    until(lambda: open(f"/proc/{pid}/comm").read() == "cat\n")
    c = Stream("Connect", {"process": {"pid": pid}}, Bellhop_Replay="1")
    unary("CloseStdin", {"process": {"pid": pid}})
    same(c.rest()[:2], (b"one\n", b"two\n"))
    s, pid = sh("head -c 5000000 /dev/zero; echo end")
    s.close()
    until(lambda: pid not in pids())
    c = Stream("Connect", {"process": {"pid": pid}}, Bellhop_Replay="1")
    n, gap = 0, 0
    while (m := c.next()) is not None:
        n += len(m["event"].get("data", {}).get("stdout", "")) * 3 // 4
        gap += m.get("gap", {}).get("bytes", 0)
    assert gap > 0 and abs(n + gap - 5000004) < 3 * 200, (n, gap)


def case_retained():
    """One that has ended is found for a while: its start and its end, by pid and by tag."""
    s, pid = sh("echo out; exit 7", tag="done")
    s.rest()
    for selector in {"pid": pid}, {"tag": "done"}:
        c = Stream("Connect", {"process": selector})
        same(c.event(), ("start", {"pid": pid}))
        same(c.event()[1]["exitCode"], 7)
        same(c.event(), (None, {}))
    for method in "SendSignal", "SendInput", "CloseStdin", "Update":
        status, error = unary(method, {"process": {"pid": pid}, "signal": 9})
        same((status, error["code"], error["message"]),
             (404, "not_found", f"process with pid {pid} not found"))


def case_selectors():
    """A tag finds its process whatever others are tagged; what is not there is said in E2B's words."""
    kept = [sh("exec sleep 600", tag=t) for t in ("a", "b", "c")]
    for t, (_, pid) in zip("abc", kept):
        c = Stream("Connect", {"process": {"tag": t}})
        same(c.event(), ("start", {"pid": pid}))
        c.close()
    infos = {p["pid"]: p for p in unary("List", {})[1]["processes"]}
    same(infos[kept[0][1]], {"pid": kept[0][1], "tag": "a",
                             "config": {"cmd": "/bin/sh", "args": ["-c", "exec sleep 600"]}})
    for t in "abc":
        same(unary("SendSignal", {"process": {"tag": t}, "signal": "SIGNAL_SIGKILL"}), (200, {}))
    same(unary("List", {}), (200, {}))
    c = Stream("Connect", {"process": {"pid": 999999}})
    same((c.next(), c.end), (None, {"error": {"code": "not_found",
                                              "message": "process with pid 999999 not found"}}))
    runs, _ = sh("exec sleep 600", tag="twice")
    same(sh("true", tag="twice")[0].rest()[2]["status"], "exit status 0")
    same(unary("SendSignal", {"process": {"tag": "twice"}, "signal": "SIGNAL_SIGKILL"}), (200, {}))
    same(runs.rest()[2]["status"], "signal: killed")
    same(unary("SendSignal", {"process": {"tag": "a"}, "signal": 15}),
         (404, {"code": "not_found", "message": "process with tag a not found"}))
    same(unary("CloseStdin", {"process": {}})[1]["code"], "unimplemented")
    same(unary("CloseStdin", {})[1]["code"], "unimplemented")


def case_input_errors():
    """Input that can't be written is an error in E2B's words."""
    pipe, pipe_pid = sh("exec cat", stdin=True)
    pty, pty_pid = sh("exec sleep 600", pty=(80, 24))
    none, none_pid = sh("exec sleep 600")
    def send(pid, value):
        status, error = unary("SendInput", {"process": {"pid": pid}, "input": value})
        return status, error.get("code"), error.get("message")
    same(send(pipe_pid, {"pty": ""})[:2], (500, "internal"))
    assert send(pipe_pid, {"pty": ""})[2].startswith("error writing to tty: tty not assigned to process")
    assert send(pty_pid, {"stdin": ""})[2].startswith("error writing to stdin: tty assigned to process")
    same(send(none_pid, {"stdin": "eA=="}),
         (500, "internal", "error writing to stdin: stdin not enabled or closed"))
    same(send(pipe_pid, {}), (501, "unimplemented", "invalid input type <nil>"))
    same(send(pipe_pid, {"stdin": ""}), (200, None, None))
    same(send(pipe_pid, {"stdin": "_-8"}), (200, None, None))
    same(send(pipe_pid, {"stdin": "!"})[1], "invalid_argument")
    status, error = unary("CloseStdin", {"process": {"pid": pty_pid}})
    same((status, error["code"]), (500, "unknown"))
    assert error["message"].startswith("error closing stdin: cannot close stdin for PTY process")
    for _ in range(2):
        same(unary("CloseStdin", {"process": {"pid": none_pid}}), (200, {}))
    same(unary("Update", {"process": {"pid": pipe_pid}, "pty": {"size": {"cols": 1, "rows": 1}}}),
         (500, {"code": "internal",
                "message": "error resizing tty: tty not assigned to process"}))
    same(unary("Update", {"process": {"pid": pipe_pid}}), (200, {}))
    same(unary("SendSignal", {"process": {"pid": pipe_pid}, "signal": 1})[1]["code"], "unimplemented")
    same(unary("SendSignal", {"process": {"pid": pipe_pid}})[1],
         {"code": "unimplemented", "message": "invalid signal: SIGNAL_UNSPECIFIED"})
    same(unary("CloseStdin", {"process": {"pid": pipe_pid}}), (200, {}))
    same(pipe.rest()[0], b"\xff\xef")
    for pid in pty_pid, none_pid:
        unary("SendSignal", {"process": {"pid": pid}, "signal": 9})


def case_who_and_where():
    """User, home, relative paths, environment."""
    script = "id -un; pwd; echo $HOME $USER $LOGNAME; echo $A-$E2B_SANDBOX"
    s, _ = sh(script, envs={"A": "b"})
    same(s.rest()[0], b"user\n/home/user\n/home/user user user\nb-true\n")
    s, _ = sh(script, headers={"Authorization": BASIC_ROOT}, cwd="/tmp")
    same(s.rest()[0], b"root\n/tmp\n/root root root\n-true\n")
    os.system(f"nsenter -t {os.environ['AGENT_PID']} -m mkdir -p /home/user/sub/dir")
    os.system(f"nsenter -t {os.environ['AGENT_PID']} -m mkdir -m 700 /home/user/closed")
    for cwd in "sub/dir", "~/sub/dir", "/home/user/sub/dir", "sub/../sub/dir":
        s, _ = sh("pwd -P", cwd=cwd)
        same(s.rest()[0], b"/home/user/sub/dir\n")
    for message, headers, code, text in (
            ({"cwd": "/nope"}, {}, "invalid_argument", "cwd '/nope' does not exist"),
            ({"cwd": "~root"}, {}, "invalid_argument",
             "failed to expand path '~root' for user 'user': cannot expand user-specific home dir"),
            ({}, {"Authorization": "Basic bm9ib2R5aGVyZTo="}, "unauthenticated",
             "invalid username: 'nobodyhere'")):
        s = Stream("Start", {"process": {"cmd": "true", **message}}, **headers)
        same((s.next(), s.end), (None, {"error": {"code": code, "message": text}}))
    s = Stream("Start", {"process": {"cmd": "pwd", "cwd": "/home/user/closed"}})
    same((s.next(), s.end["error"]["code"]), (None, "invalid_argument"))
    assert "error starting process 'pwd': " in s.end["error"]["message"], s.end
    assert "ermission denied" in s.end["error"]["message"], s.end


def case_pty():
    """A terminal's size, its changes, its input, its end."""
    s, pid = sh("stty size; read x; stty size; tty >/dev/null && echo tty", pty=(91, 33))
    text = b""
    while b"33 91" not in text:
        text += base64.b64decode(s.event()[1]["pty"])
    same(unary("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 100, "rows": 30}}}), (200, {}))
    same(unary("SendInput", {"process": {"pid": pid}, "input": {"pty": b64(b"\n")}}), (200, {}))
    text, _, end = s.rest()
    assert b"30 100" in text and b"tty" in text, text
    same(end["status"], "exit status 0")


def case_keepalive():
    """A sign of life after each interval of silence, and none while there is something to say."""
    s, pid = sh("exec sleep 600", headers={"Keepalive-Ping-Interval": "1"})
    begun = time.monotonic()
    same([s.event()[0], s.event()[0]], ["keepalive", "keepalive"])
    assert time.monotonic() - begun >= 1.8
    unary("SendSignal", {"process": {"pid": pid}, "signal": 9})
    same(s.rest()[2]["status"], "signal: killed")
    for _ in range(5):  # one that says something each tenth of a second is silent for longer on a busy machine
        s, _ = sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do echo $i; sleep 0.1; done",
                  headers={"Keepalive-Ping-Interval": "1"})
        while (e := s.event())[0] == "data":
            pass
        if e[0] == "end":
            break
        s.rest()
    same(e[0], "end")


def case_descendants():
    """A signal goes to the first process alone; with `descendants` to all of them."""
    def children(pid):
        return [int(x) for x in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    for descendants in False, True:
        s, pid = sh("sleep 600 & sleep 600 & wait")
        until(lambda: len(children(pid)) == 2)
        kids = children(pid)
        same(unary("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL",
                                  "descendants": descendants}), (200, {}))
        assert not os.path.exists(f"/proc/{pid}")
        if descendants:
            until(lambda: not any(os.path.exists(f"/proc/{k}/exe") for k in kids))
        else:
            assert all(os.path.exists(f"/proc/{k}/exe") for k in kids)
            for k in kids:
                os.kill(k, 9)
        s.rest()


def case_slow_subscribers():
    """The slow get every byte, whoever else is faster; who takes nothing is passed by, and told so."""
    size, step = 30000000, 1000000
    alone, alone_pid = sh(f"read x; head -c {size} /dev/zero; exec sleep 600", stdin=True)
    fast, pid = sh(f"read x; head -c {size} /dev/zero; exec cat", stdin=True)
    slow = Stream("Connect", {"process": {"pid": pid}})
    still = Stream("Connect", {"process": {"pid": pid}})
    same((slow.event()[0], still.event()[0]), ("start", "start"))

    def take(stream, pause_s):
        """How much comes until the stream's end, with a pause after each step."""
        n, paused_at = 0, 0
        while (event := stream.event())[0] is not None:
            n += len(base64.b64decode(event[1].get("stdout", "")))
            if n >= paused_at + step:
                paused_at = n
                time.sleep(pause_s)
            if event[0] == "end":
                same(event[1]["status"], "exit status 0")
        return n, stream.end

    with ThreadPoolExecutor() as pool:
        taken = pool.submit(take, fast, 0), pool.submit(take, slow, 0.1)
        for p in alone_pid, pid:
            unary("SendInput", {"process": {"pid": p}, "input": {"stdin": b64(b"\n")}})
        # Both commands go on, although each has a reader that takes nothing.
        for p, name in (alone_pid, "sleep\n"), (pid, "cat\n"):
            until(lambda: open(f"/proc/{p}/comm").read() == name)
        unary("CloseStdin", {"process": {"pid": pid}})
        for t in taken:
            same(t.result(), (size, {}))
    for stream in alone, still:
        n, end = take(stream, 0)
        same((n < size, end["error"]["code"]), (True, "data_loss"))
    unary("SendSignal", {"process": {"pid": alone_pid}, "signal": 9})


def case_stream_input():
    """A stream of input: a start, data as it comes, keepalives; one empty answer."""
    s, pid = sh("exec cat", stdin=True)
    c = connection()
    c.putrequest("POST", "/process.Process/StreamInput")
    c.putheader("Content-Type", "application/connect+json")
    c.putheader("Transfer-Encoding", "chunked")
    c.endheaders()
    def chunk(data):
        c.send(b"%x\r\n%s\r\n" % (len(data), data))
    whole = envelope({"start": {"process": {"pid": pid}}}) + envelope({"keepalive": {}})
    for i in range(0, len(whole), 7):
        chunk(whole[i:i + 7])
    for text in b"one", b"two":
        chunk(envelope({"data": {"input": {"stdin": b64(text)}}}))
        same(base64.b64decode(s.event()[1]["stdout"]), text)
    big = b"x" * 3000000
    chunk(envelope({"data": {"input": {"stdin": b64(big)}}}))
    c.send(b"0\r\n\r\n")
    n = 0
    while n < len(big):
        n += len(base64.b64decode(s.event()[1]["stdout"]))
    r = c.getresponse()
    same((r.status, r.headers["Content-Type"]), (200, "application/connect+json"))
    same(r.read(), envelope({}).replace(b"{}", b"{}") + envelope({}, 2))
    unary("CloseStdin", {"process": {"pid": pid}})
    same(s.rest()[2]["status"], "exit status 0")
    bad = (
        ([{"start": {"process": {"pid": 999999}}}], "not_found"),
        ([{"data": {"input": {"stdin": ""}}}], "invalid_argument"),
        ([{}], "unimplemented"),
    )
    for messages, code in bad:
        status, _, data = request("POST", "/process.Process/StreamInput",
                                  b"".join(envelope(m) for m in messages),
                                  {"Content-Type": "application/connect+json"})
        same((status, data[0]), (200, 2))
        assert f'"{code}"'.encode() in data, data


def case_stream_input_bounds():
    """Messages of 16 MB that are not whole yet: together they have the bound of all requests' bodies, 256 MB."""
    def one(pieces):
        c = connection()
        c.putrequest("POST", "/process.Process/StreamInput")
        c.putheader("Content-Type", "application/connect+json")
        c.putheader("Content-Length", "17000000")
        c.endheaders()
        c.sock.settimeout(DEADLINE_S)
        c.send(b"\0" + (16700000).to_bytes(4, "big"))
        for _ in range(pieces):
            c.send(b" " * 100000)
        return c
    streams = [one(166) for _ in range(16)] + [one(40)]
    ready = select.select([c.sock for c in streams], [], [], DEADLINE_S)[0]
    assert ready, "all of them are taken"
    assert len(ready) < len(streams) / 2, "most of them are refused"  # one is; two that come to it at once may both be
    for c in streams:
        if c.sock in ready:
            assert b'"resource_exhausted"' in c.getresponse().read()
    for c in streams:
        c.close()
    case_stream_input()


def case_stream_input_waits():
    """All of a StreamInput in one packet, for a command whose pipe is full: it arrives when there is room, and ends."""
    def one(ends_later, chunked):
        s, pid = sh("kill -STOP $$; exec cat", stdin=True)
        until(lambda: open(f"/proc/{pid}/stat").read().split()[2] == "T")
        full, pieces = b"f" * 65536, [b"%d" % i * 50 for i in range(6)]
        same(unary("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64(full)}}), (200, {}))
        body = [envelope({"start": {"process": {"pid": pid}}})]
        body += [envelope({"data": {"input": {"stdin": b64(p)}}}) for p in pieces]
        head = b"POST /process.Process/StreamInput HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\n"
        c = connection()
        c.connect()
        if chunked:
            body = b"".join(b"%x\r\n%s\r\n" % (len(b), b) for b in body)
            c.sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + body + (b"" if ends_later else b"0\r\n\r\n"))
        else:
            body = b"".join(body)
            c.sock.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        same(unary("SendSignal", {"process": {"pid": 999999}, "signal": 9})[0], 404)  # meanwhile it has come to it
        os.kill(pid, signal.SIGCONT)
        if ends_later:
            c.sock.sendall(b"0\r\n\r\n")
        r = http.client.HTTPResponse(c.sock)
        r.begin()
        same((r.status, r.read()), (200, envelope({}) + envelope({}, 2)))
        unary("CloseStdin", {"process": {"pid": pid}})
        same(s.rest()[0], full + b"".join(pieces))
        c.close()
    for _ in range(5):
        for ends_later, chunked in (False, True), (True, True), (False, False):
            one(ends_later, chunked)


def case_protocol():
    """Types, methods and names that are not there; unknown fields; pages of a browser."""
    status, headers, data = request("POST", "/process.Process/Nope", "{}")
    same((status, data), (404, b"404 page not found\n"))
    # Clients take that for "unimplemented", after a large message too.
    for path in "/process.Process/Nope", "/filesystem.Filesystem/Nope":
        same(request("POST", path, b"x" * (2 << 20))[::2], (404, b"404 page not found\n"))
    # Of several bad headers the timeout is named first.
    json_type = {"Content-Type": "application/json"}
    bad = {**json_type, "Connect-Timeout-Ms": "soon", "Content-Encoding": "br", "Connect-Protocol-Version": "7"}
    for name, code in (("Connect-Timeout-Ms", "invalid_argument"), ("Content-Encoding", "unimplemented"),
                       ("Connect-Protocol-Version", "invalid_argument")):
        data = request("POST", "/process.Process/List", "{}", bad)[2]
        same(json.loads(data)["code"], code)
        del bad[name]
    same(request("GET", "/process.Process/List")[0], 405)
    same(request("GET", "/process.Process/List")[1]["Allow"], "POST")
    status, headers, _ = request("POST", "/process.Process/List", "{}", {"Content-Type": "text/plain"})
    same((status, headers["Accept-Post"] is not None), (415, True))
    same(unary("List", {"newer": 1}), (200, {}))
    status, _, data = request("POST", "/process.Process/List", "{", {"Content-Type": "application/json"})
    same((status, b"invalid_argument" in data), (400, True))
    s = Stream("Start", {"process": {"cmd": "echo", "args": ["hi"], "newer": {}}, "newer": [],
                         "pty": None, "tag": None})
    same(s.event()[0], "start")
    same(s.rest()[0], b"hi\n")
    status, headers, _ = request("OPTIONS", "/process.Process/Start", None, {
        "Origin": "http://page", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-access-token,content-type"})
    same((status, headers["Access-Control-Allow-Origin"], headers["Access-Control-Allow-Methods"],
          headers["Access-Control-Allow-Headers"], headers["Access-Control-Max-Age"]),
         (204, "*", "POST", "x-access-token,content-type", "7200"))
    status, headers, _ = request("GET", "/health", None, {"Origin": "http://page"})
    same((status, headers["Access-Control-Allow-Origin"]), (204, "*"))
    same(request("GET", "/v1/ready", None, {"Origin": "http://page"})[0], 403)


def case_numbers():
    """Integers as protobuf's JSON has them, and what is none."""
    s, pid = sh("stty size; read x; stty size", pty=("80", 24.0))
    same(s.event()[1], {"pty": b64(b"24 80\r\n")})
    body = '{"process":{"pid":%d.0},"pty":{"size":{"cols":1e2,"rows":"3e1"}}}' % pid
    same(request("POST", "/process.Process/Update", body, {"Content-Type": "application/json"})[0], 200)
    same(unary("SendInput", {"process": {"pid": str(pid)}, "input": {"pty": b64(b"\n")}})[0], 200)
    assert s.rest()[0].endswith(b"30 100\r\n")
    s, pid = sh("exec sleep 600")
    for wrong in f"{pid} ", f" {pid}", f"{pid}.5", f"+{pid}", f'"{pid}"', "", -pid, pid + 2**32, pid + 0.5, True:
        status, error = unary("SendSignal", {"process": {"pid": wrong}, "signal": 9})
        same((wrong, status, error["code"]), (wrong, 400, "invalid_argument"))
        assert "pid' must be a whole number" in error["message"], error
    for wrong in "9", 9.5, [9]:
        same(unary("SendSignal", {"process": {"pid": pid}, "signal": wrong})[0], 400)
    same(unary("SendSignal", {"process": {"pid": pid}, "signal": 1.0})[1]["code"], "unimplemented")
    same(unary("SendSignal", {"process": {"pid": float(pid)}, "signal": 9.0}), (200, {}))
    s.rest()


def case_nul():
    """It is said, and of which variable or field."""
    def refused(**process):
        s = Stream("Start", {"process": {"cmd": "true", **process}})
        same(s.event()[0], None)
        same(s.end["error"]["code"], "invalid_argument")
        return s.end["error"]["message"]
    same(refused(envs={"GOOD": "x", "BAD": "a\0b"}), "envs['BAD'] must not contain a NUL")
    same(refused(envs={"BAD": 1}), "envs['BAD'] must be a string")
    for message in refused(args=["a\0b"]), refused(cmd="a\0b"), refused(cwd="a\0b"), refused(envs={"a\0b": "x"}):
        assert "NUL" in message, message


def resident_kib():
    with open(f"/proc/{os.environ['AGENT_PID']}/status", encoding="ascii") as f:
        return int(next(x for x in f if x.startswith("VmRSS")).split()[1])


def case_forgotten():
    """Commands that have ended cost no more than the results that are kept, a thousand of them."""
    def run(n):
        c = connection()
        for _ in range(n):
            c.request("POST", "/process.Process/Start", envelope({"process": {"cmd": "true"}}),
                      {"Content-Type": "application/connect+json"})
            assert b'"end"' in c.getresponse().read()
    run(1300)
    before = resident_kib()
    run(1500)
    until(lambda: resident_kib() < before + 1200)


def case_vanish():
    """Two hundred clients open a stream and vanish: nothing of them stays."""
    agent = os.environ["AGENT_PID"]
    s, pid = sh("exec sleep 600")
    def state():
        return (len(os.listdir(f"/proc/{agent}/fd")), resident_kib())
    def vanish(n):
        for i in range(n):
            c = socket.create_connection((os.environ["AGENT_URL"].split("/")[2].split(":")[0],
                                          int(os.environ["AGENT_PORT"])))
            if i % 2:
                method, message = "Connect", {"process": {"pid": pid}}
            else:
                method, message = "Start", {"process": {"cmd": "cat"}, "stdin": False}
            body = envelope(message)
            c.sendall(b"POST /process.Process/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
                      b"Content-Type: application/connect+json\r\n\r\n%s"
                      % (method.encode(), len(body), body))
            if i % 3:
                c.recv(10)
            if i % 5 == 0:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            c.close()
    vanish(200)  # the threads and their memory that so many need
    until(lambda: pids() == [pid])
    time.sleep(1.1)  # a sweep's time: those whose end was missed
    fds, rss = state()
    vanish(200)
    until(lambda: pids() == [pid])
    until(lambda: state()[0] <= fds)
    until(lambda: len(os.listdir(f"/proc/{agent}/task")) <= 110)
    until(lambda: state()[1] < rss + 3000)  # it is given back when all is quiet
    s.close()


globals()["case_" + sys.argv[1]]()
