"""The three servers behind one interface, so that a case is written once.

A server is started on a free port with a fresh directory and ended by its process id. What a
protocol has no word for is `Lacks`; what it refuses is `Refused` with the kind that its error
states: a client can act on no more than that.
"""

import base64
import http.client
import json
import os
import re
import secrets
import subprocess
import threading
import time
import urllib.parse

CALL_S = 30  # no call of any case may take longer
READ_MAX = 64 << 20


class Lacks(Exception):
    """The protocol cannot say it."""


class Refused(Exception):
    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Result:
    """How a command ended. `reason` and `signal` are None where the protocol does not say."""

    def __init__(self, code, reason, signal, stdout, stderr, extra=None):
        self.code, self.reason, self.signal = code, reason, signal
        self.stdout, self.stderr, self.extra = stdout, stderr, extra or {}


class Http:
    def __init__(self, port, headers):
        self.port, self.headers = port, headers

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_S)
        try:
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            reply = connection.getresponse()
            return reply.status, dict((k.lower(), v) for k, v in reply.getheaders()), reply.read(READ_MAX)
        finally:
            connection.close()


class Program:
    """The server's process: its environment has something that no command may see."""

    def __init__(self, argv, directory, ready):
        os.makedirs(directory)
        env = {"PATH": os.environ["PATH"], "HOME": directory, "SERVERS_OWN_SECRET": "1"}
        self.log = open(os.path.join(directory, "log"), "w+b")
        self.process = subprocess.Popen(
            argv, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + 20
        while not ready():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{argv[0]} did not start: see {directory}/log")
            time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def answers(port, path):
    def probe():
        try:
            return Http(port, {}).call("GET", path)[0] in (200, 204, 401)
        except OSError:
            return False
    return probe


def quoted(path):
    return urllib.parse.quote_from_bytes(os.fsencode(path))


def packed(data):
    """Bytes as Bellhop's JSON has them."""
    return {"b64": base64.b64encode(data).decode()}


def unpacked(value):
    if "b64" in value:
        return base64.b64decode(value["b64"])
    return value.get("text", "").encode()


def wire_path(path):
    raw = os.fsencode(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return packed(raw)


class Bellhop:
    name = "bellhop"

    def __init__(self, program, directory):
        self.token = secrets.token_hex(16)
        os.makedirs(directory)
        token_file = os.path.join(directory, "token")
        with open(os.open(token_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(self.token)
        listening = os.path.join(directory, "ready")
        ready = open(listening, "w+")
        os.set_inheritable(ready.fileno(), True)
        argv = [program, "--listen", "127.0.0.1:0", "--token-file", token_file, "--ready-fd", "1"]
        self.program = Program(["/bin/sh", "-c", 'exec "$@" >"$0"', listening] + argv,
                               os.path.join(directory, "home"), lambda: os.path.getsize(listening) > 0)
        ready.close()
        with open(listening) as f:
            port = int(json.loads(f.readline())["tcp"][0].rsplit(":", 1)[1])
        self.http = Http(port, {"Authorization": f"Bearer {self.token}"})

    def stop(self):
        self.program.stop()

    def _rpc(self, method, **request):
        status, _, body = self.http.call("POST", f"/bellhop.v1.{method}", json.dumps(request),
                                         {"Content-Type": "application/json"})
        reply = json.loads(body)
        if status != 200 or "code" in reply:
            raise Refused(reply["code"], reply["message"])
        return reply

    def _bytes(self, method, path, body=None, headers=None, query=""):
        status, head, data = self.http.call(method, "/v1/files/" + quoted(path) + query, body, headers)
        if status >= 400:
            error = json.loads(data) if data else {"code": status, "message": ""}
            kind = "changed" if status == 412 else error["code"]
            raise Refused(kind, error["message"])
        return status, head, data

    @staticmethod
    def _command(argv, shell, cwd, env, user):
        request = {"shell": shell} if shell is not None else {
            "argv": [wire_path(a) if isinstance(a, str) else packed(a) for a in argv]}
        request.update({k: v for k, v in (("cwd", cwd), ("env", env), ("user", user)) if v is not None})
        return request

    @staticmethod
    def _result(reply):
        end = reply["exit"]
        streams = [unpacked(reply[s]) if s in reply else b"" for s in ("stdout", "stderr")]
        return Result(end["code"], end["reason"], end["signal"], *streams, reply)

    def run(self, argv=None, shell=None, cwd=None, env=None, stdin=None, timeout_ms=None, user=None):
        request = self._command(argv, shell, cwd, env, user)
        if stdin is not None:
            request["stdin"] = packed(stdin)
        if timeout_ms is not None:
            request.update(timeout_ms=timeout_ms, kill_grace_ms=500)
        return self._result(self._rpc("Exec/Run", **request))

    def start(self, argv, name, stdin=False, pty=False):
        """Closes the connection at once: later calls must not need it."""
        request = dict(self._command(argv, None, None, None, None), id=name)
        if pty:
            request["pty"] = {"cols": 80, "rows": 24}
        elif stdin:
            request["stdin_open"] = True
        connection = http.client.HTTPConnection("127.0.0.1", self.http.port, timeout=CALL_S)
        connection.request("POST", "/bellhop.v1.Exec/Start", json.dumps(request),
                           {**self.http.headers, "Content-Type": "application/json"})
        first = json.loads(connection.getresponse().readline())
        connection.close()
        if "code" in first:
            raise Refused(first["code"], first["message"])
        return first["start"]["pid"]

    def output(self, name, stream="stdout"):
        data, offset = b"", 0
        while True:
            reply = self._rpc("Exec/Read", id=name, stream=stream, offset=offset)
            if reply["next_offset"] == offset:
                return data
            data, offset = data + unpacked(reply), reply["next_offset"]

    def write(self, name, data):
        self._rpc("Exec/Write", id=name, data=packed(data))

    def close_stdin(self, name):
        self._rpc("Exec/CloseStdin", id=name)

    def signal(self, name, signal):
        self._rpc("Exec/Signal", id=name, signal=signal)

    def kill(self, name):
        self._rpc("Exec/Signal", id=name, signal="SIGKILL", tree=True)

    def resize(self, name, cols, rows):
        self._rpc("Exec/Resize", id=name, cols=cols, rows=rows)

    def wait(self, name, timeout_ms=10000):
        return self._result(self._rpc("Exec/Wait", id=name, timeout_ms=timeout_ms))

    def running(self):
        return [c["id"] for c in self._rpc("Exec/List")["commands"] if c["state"] == "running"]

    def read_file(self, path, first=None, last=None):
        headers = {} if first is None else {"Range": f"bytes={first}-{last}"}
        return self._bytes("GET", path, headers=headers)[2]

    def write_file(self, path, data, tag=None):
        self._bytes("PUT", path, data, {"If-Match": tag} if tag else {})

    def tag(self, path):
        return self._bytes("HEAD", path)[1]["etag"]

    def remove_if(self, path, tag):
        self._rpc("Fs/Remove", path=wire_path(path), if_match=tag.strip('"'))

    def stat(self, path):
        entry = self._rpc("Fs/Stat", path=wire_path(path), follow=False)
        return {"type": entry["type"], "size": entry["size"], "target": entry.get("target")}

    def names(self, path):
        entries = self._rpc("Fs/List", path=wire_path(path))["entries"]
        return {unpacked(e["name"]) if isinstance(e["name"], dict) else e["name"].encode(): e["type"]
                for e in entries}

    def make_dir(self, path):
        self._rpc("Fs/MakeDir", path=wire_path(path))

    def move(self, old, new):
        self._rpc("Fs/Move", **{"from": wire_path(old), "to": wire_path(new)})

    def copy(self, old, new):
        self._rpc("Fs/Copy", **{"from": wire_path(old), "to": wire_path(new)}, recursive=True)

    def remove(self, path, recursive=False):
        self._rpc("Fs/Remove", path=wire_path(path), recursive=recursive)

    def edit(self, path, old, new):
        self._rpc("Fs/Edit", path=wire_path(path), edits=[{"old": packed(old), "new": packed(new)}])

    def unpack(self, path, archive):
        status, _, body = self.http.call("PUT", "/v1/archive?path=" + quoted(path), archive)
        if status >= 400:
            raise Refused(json.loads(body)["code"], json.loads(body)["message"])


class SandboxAgent:
    name = "sandbox-agent"

    def __init__(self, program, directory):
        port = free_port()
        token = secrets.token_hex(16)
        argv = [program, "server", "--host", "127.0.0.1", "--port", str(port), "--token", token, "--no-telemetry"]
        self.program = Program(argv, directory, answers(port, "/v1/health"))
        self.http = Http(port, {"Authorization": f"Bearer {token}"})
        self.ids = {}

    def stop(self):
        self.program.stop()

    def _call(self, method, route, body=None, content_type="application/json", **query):
        query = "?" + "&".join(f"{k}={quoted(v)}" for k, v in query.items()) if query else ""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body)
        status, _, data = self.http.call(method, "/v1/" + route + query, body, {"Content-Type": content_type})
        if status >= 400:
            try:
                error = json.loads(data)
            except ValueError:
                error = {"title": f"HTTP {status}", "detail": data[:200].decode(errors="replace")}
            # The kind is in the type; that a path is not there, only the text says.
            raise Refused(error.get("type", "").rsplit(":", 1)[-1] or error["title"], error.get("detail"))
        return data

    def _json(self, *args, **kwargs):
        return json.loads(self._call(*args, **kwargs))

    @staticmethod
    def _command(argv, cwd, env):
        if any(isinstance(a, bytes) for a in argv):
            raise Lacks("arguments are text")
        request = {"command": argv[0], "args": argv[1:]}
        request.update({k: v for k, v in (("cwd", cwd), ("env", env)) if v is not None})
        return request

    def run(self, argv=None, shell=None, cwd=None, env=None, stdin=None, timeout_ms=None, user=None):
        if user is not None or stdin is not None:
            raise Lacks("another user" if user is not None else "stdin of a run")
        request = self._command(["sh", "-c", shell] if shell is not None else argv, cwd, env)
        if timeout_ms is not None:
            request["timeoutMs"] = timeout_ms
        reply = self._json("POST", "processes/run", request)
        reason = "timeout" if reply["timedOut"] else "exited" if reply["exitCode"] is not None else None
        return Result(reply["exitCode"], reason, None, reply["stdout"].encode(), reply["stderr"].encode(), reply)

    def start(self, argv, name, stdin=False, pty=False):
        request = dict(self._command(argv, None, None), interactive=stdin or pty, tty=pty)
        reply = self._json("POST", "processes", request)
        self.ids[name] = reply["id"]
        return reply["pid"]

    def output(self, name, stream="stdout"):
        entries = self._json("GET", f"processes/{self.ids[name]}/logs")["entries"]
        return b"".join(base64.b64decode(e["data"]) for e in entries if e["stream"] in (stream, "pty"))

    def write(self, name, data):
        self._json("POST", f"processes/{self.ids[name]}/input",
                   {"data": base64.b64encode(data).decode(), "encoding": "base64"})

    def close_stdin(self, name):
        raise Lacks("closing stdin")

    def signal(self, name, signal):
        if signal not in ("SIGTERM", "SIGKILL"):
            raise Lacks("signals but TERM and KILL")
        self._json("POST", f"processes/{self.ids[name]}/" + ("stop" if signal == "SIGTERM" else "kill"))

    def kill(self, name):
        self.signal(name, "SIGKILL")

    def resize(self, name, cols, rows):
        self._json("POST", f"processes/{self.ids[name]}/terminal/resize", {"cols": cols, "rows": rows})

    def wait(self, name, timeout_ms=10000):
        end = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < end:
            reply = self._json("GET", f"processes/{self.ids[name]}")
            if reply["status"] == "exited":
                code = reply.get("exitCode")
                return Result(code, None if code is None else "exited", None, b"", b"", reply)
            time.sleep(0.02)
        raise Refused("deadline_exceeded", "still running")

    def running(self):
        back = {v: k for k, v in self.ids.items()}
        return [back.get(p["id"]) for p in self._json("GET", "processes")["processes"] if p["status"] == "running"]

    def read_file(self, path, first=None, last=None):
        data = self._call("GET", "fs/file", path=path)
        if first is not None and len(data) != last - first + 1:
            raise Lacks("ranges (ignored)")
        return data

    def write_file(self, path, data, tag=None):
        self._call("PUT", "fs/file", data, "application/octet-stream", path=path)

    def tag(self, path):
        raise Lacks("conditions")

    def stat(self, path):
        entry = self._json("GET", "fs/stat", path=path)
        return {"type": entry["entryType"], "size": entry["size"], "target": None}

    def names(self, path):
        return {e["name"].encode(): e["entryType"] for e in self._json("GET", "fs/entries", path=path)}

    def make_dir(self, path):
        self._call("POST", "fs/mkdir", path=path)

    def move(self, old, new):
        self._call("POST", "fs/move", {"from": old, "to": new})

    def copy(self, old, new):
        raise Lacks("copy")

    def remove(self, path, recursive=False):
        self._call("DELETE", "fs/entry", path=path, recursive="true" if recursive else "false")

    def edit(self, path, old, new):
        raise Lacks("edit")

    def unpack(self, path, archive):
        self._call("POST", "fs/upload-batch", archive, "application/x-tar", path=path)


class Codex:
    """JSON-RPC over WebSocket. Its processes belong to their connection, which is kept; a command's
    own timeout and the end of its stdin are not in the protocol."""

    name = "codex"

    def __init__(self, program, directory):
        import websocket  # Debian's python3-websocket

        listening = os.path.join(directory, "log")
        address = re.compile(rb"ws://127\.0\.0\.1:\d+")

        def ready():
            with open(listening, "rb") as f:
                return address.search(f.read())
        self.program = Program([program, "exec-server", "--listen", "ws://127.0.0.1:0"], directory, ready)
        self.address = ready().group().decode()
        self.connect = websocket.create_connection
        self.closed = websocket.WebSocketException
        self.threads = threading.local()  # a connection each: it serves one request at a time
        self.home = directory

    def stop(self):
        self.program.stop()

    def _connection(self):
        if getattr(self.threads, "socket", None) is None:
            # It takes a client that sends Origin for a browser, and refuses it.
            self.threads.socket = self.connect(self.address, timeout=CALL_S, suppress_origin=True)
            self.threads.last = 0
            self._exchange("initialize", clientName="conformance")
            self._send(method="initialized", params={})
        return self.threads.socket

    def _send(self, **message):
        self._connection().send(json.dumps({"jsonrpc": "2.0", **message}))

    def _exchange(self, method, **params):
        self.threads.last += 1
        self._send(id=self.threads.last, method=method, params=params)
        while True:
            reply = json.loads(self.threads.socket.recv())
            if reply.get("id") == self.threads.last:
                return reply

    def _call(self, method, **params):
        self._connection()
        try:
            reply = self._exchange(method, **params)
        except (OSError, self.closed) as e:
            self.threads.socket = None
            raise Refused("unavailable", f"the connection was closed ({e})")
        if "error" in reply:
            error = reply["error"]
            kind = {-32004: "not_found", -32600: "invalid_argument", -32602: "invalid_argument"}
            raise Refused(kind.get(error["code"], "internal"), error["message"])
        return reply["result"]

    @staticmethod
    def _uri(path):
        return "file://" + quoted(path)

    def start(self, argv, name, stdin=False, pty=False, cwd=None, env=None):
        if any(isinstance(a, bytes) for a in argv):
            raise Lacks("arguments are text")
        default = {k: v for k, v in (("PATH", os.environ["PATH"]), ("HOME", self.home))}
        self._call("process/start", processId=name, argv=argv, cwd=self._uri(cwd or self.home),
                   env={**default, **(env or {})}, tty=pty, pipeStdin=stdin, arg0=None)
        return None

    def _read(self, name, wait_ms=0, until_closed=False):
        streams, after = {"stdout": b"", "stderr": b"", "pty": b""}, 0
        end = time.monotonic() + CALL_S
        while True:
            reply = self._call("process/read", processId=name, afterSeq=after, maxBytes=1 << 20, waitMs=wait_ms)
            for chunk in reply["chunks"]:
                streams[chunk["stream"]] += base64.b64decode(chunk["chunk"])
                after = chunk["seq"]
            if reply["closed"] or not until_closed and not reply["chunks"]:
                return reply, streams
            if time.monotonic() > end:
                raise Refused("deadline_exceeded", "still running")

    def run(self, argv=None, shell=None, cwd=None, env=None, stdin=None, timeout_ms=None, user=None):
        for what, value in (("another user", user), ("closing stdin", stdin), ("a timeout", timeout_ms)):
            if value is not None:
                raise Lacks(what)
        name = secrets.token_hex(8)
        self.start(["sh", "-c", shell] if shell is not None else argv, name, cwd=cwd, env=env)
        reply, streams = self._read(name, 1000, True)
        return Result(reply["exitCode"], None, None, streams["stdout"], streams["stderr"], reply)

    def output(self, name, stream="stdout"):
        streams = self._read(name)[1]
        return streams[stream] or streams["pty"]

    def write(self, name, data):
        self._call("process/write", processId=name, chunk=base64.b64encode(data).decode(), writeId=secrets.token_hex(4))

    def close_stdin(self, name):
        raise Lacks("closing stdin")

    def signal(self, name, signal):
        if signal != "SIGINT":
            raise Lacks("signals but INT")
        self._call("process/signal", processId=name, signal="interrupt")

    def kill(self, name):
        self._call("process/terminate", processId=name)

    def resize(self, name, cols, rows):
        raise Lacks("resize")

    def wait(self, name, timeout_ms=10000):
        reply, streams = self._read(name, 1000, True)
        return Result(reply["exitCode"], None, None, streams["stdout"], streams["stderr"], reply)

    def running(self):
        raise Lacks("a list of processes")

    def read_file(self, path, first=None, last=None):
        if first is not None:
            raise Lacks("ranges")
        return base64.b64decode(self._call("fs/readFile", path=self._uri(path))["dataBase64"])

    def write_file(self, path, data, tag=None):
        self._call("fs/writeFile", path=self._uri(path), dataBase64=base64.b64encode(data).decode())

    def tag(self, path):
        raise Lacks("conditions")

    def stat(self, path):
        entry = self._call("fs/getMetadata", path=self._uri(path))
        kinds = [k for k, f in (("symlink", "isSymlink"), ("directory", "isDirectory"), ("file", "isFile")) if entry[f]]
        return {"type": kinds[0] if kinds else None, "size": entry["size"], "target": None}

    def names(self, path):
        entries = self._call("fs/readDirectory", path=self._uri(path))["entries"]
        return {e["fileName"].encode(): "directory" if e["isDirectory"] else "file" if e["isFile"] else None
                for e in entries}

    def make_dir(self, path):
        self._call("fs/createDirectory", path=self._uri(path), recursive=True)

    def move(self, old, new):
        raise Lacks("move")

    def copy(self, old, new):
        self._call("fs/copy", sourcePath=self._uri(old), destinationPath=self._uri(new), recursive=True)

    def remove(self, path, recursive=False):
        self._call("fs/remove", path=self._uri(path), recursive=recursive, force=False)

    def edit(self, path, old, new):
        raise Lacks("edit")

    def unpack(self, path, archive):
        raise Lacks("archives")


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
