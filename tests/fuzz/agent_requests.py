"""The traffic of tests/fuzz/agent.py: sessions of raw bytes, each made from the seed and its own numbers alone.

A request begins as a well-formed one: made from the native API's schema (every method of rpc.def), from E2B's
definitions (every method, as JSON and protobuf), from the routes, from tests/contract/cases, or from the corpora of
the fuzz targets. It is then changed by its grammar (fields, values, headers, framing), or by its bytes, or not at
all; and its client leaves in one of the ways there are to leave, after all of it or after any byte."""

import base64
import functools
import gzip
import json
import os
import random
import re
import struct
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")


def read(path, mode="r"):
    with open(os.path.join(TOP, path), mode) as f:
        return f.read()


# ---- sessions ----

class Session:
    """pieces: what is sent, at a time each. end: read (to the end, which must come), half-close (and the same),
    look (for look_s), reset, close, vanish (without a word), stay (connected, silent)."""

    def __init__(self, pieces, end, via, look_s=0.0):
        self.pieces, self.end, self.via, self.look_s = pieces, end, via, look_s

    def to_json(self):
        return {"pieces": [p.decode("latin-1") for p in self.pieces], "end": self.end, "via": self.via, "look_s": self.look_s}

    @staticmethod
    def from_json(d):
        return Session([p.encode("latin-1") for p in d["pieces"]], d["end"], d["via"], d.get("look_s", 0.0))

    def brief(self):
        return f"{self.end} via {self.via}: {b''.join(self.pieces)[:600]!r}"


class Request:
    """waits: it may take long, so its client does not wait for its end."""

    def __init__(self, verb, target, headers=(), body=b"", waits=False):
        self.verb, self.target, self.headers, self.body, self.waits = verb, target, list(headers), body, waits

    def raw(self, close, framing="length", rnd=None):
        head = [("Host", "localhost"), *self.headers]
        body = self.body
        if framing == "chunked":
            head.append(("Transfer-Encoding", "chunked"))
            pieces, at = [], 0
            while at < len(body):
                n = rnd.randrange(1, 4000) if rnd.random() < 0.5 else len(body)
                pieces.append(b"%x\r\n%s\r\n" % (len(body[at:at + n]), body[at:at + n]))
                at += n
            body = b"".join(pieces) + b"0\r\n\r\n"
        elif body or self.verb not in ("GET", "HEAD", "DELETE", "OPTIONS"):
            head.append(("Content-Length", str(len(body))))
        if close:
            head.append(("Connection", "close"))
        text = f"{self.verb} {self.target} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head) + "\r\n"
        return text.encode("utf-8", "surrogateescape") + body


# ---- words ----

IDS = [f"c{i}" for i in range(24)]
TAGS = ["a", "b", ""]
SCRIPTS = [
    "true", "exit 3", "echo hi", "cat", "sleep 0.3", "sleep 3", "spew spew", "fork sleep 0.5", "orphan sleep 1", "orphan trap sleep 2",
    "fork setsid trap sleep 2", "trap fork fork sleep 2", "orphan orphan sleep 1", "fork exit 0 sleep 1", "stop", "fork stop",
    "orphan stop", "die", "fault", "close sleep 0.5", "setsid orphan close trap sleep 1", "spin", "spin spin fork spin", "eat eat sleep 0.2",
    "listen sleep 1", "warn echo x cat", "fork fork fork exit 0", "setpgid orphan sleep 1", "orphan setpgid spew sleep 0.5", "fork wait echo done",
]
PATHS = ["/tmp", "/tmp/d", "/tmp/d/0.txt", "/tmp/d/new", "/tmp/d/new/deep/er", "/tmp/d/link", "/tmp/x", "x", "", ".", "..", "/", "/etc/passwd",
         "/proc", "/proc/self", "/proc/self/fd/0", "/proc/1/root/tmp", "/dev/null", "/dev/full", "/dev/zero", "/bin", "/sys", "/nowhere/x",
         "/tmp/d/../d/./1.txt", "~", "/home/user", "/run/agent.sock", "/tmp/" + "n" * 255, "/" + "a/" * 600, "/tmp/\u00e9\u4e2d", "/tmp/a b\tc\n",
         "/tmp/d/2.txt", "/tmp/d/3.txt", "/srv", "/var/tmp/v"]
SIGNALS = ["KILL", "TERM", "INT", "HUP", "STOP", "CONT", "USR1", "QUIT", "SIGTERM", "TSTP", "WINCH", "RTMIN+1", "0", 0, 9, 15, 19, 64, 65, -1, "x"]
PATTERNS = ["needle", "n.*e", "(a+)+$", "[", "\\", "**", "*.txt", "**/*", "{a,b}*", "[!a]?", "(?<x>n)", "^$", "\u00e9", ".", "x{1,9999}"]
STRINGS = ["", "a", "x" * 300, "x" * 70000, "\u0000", "\ud800", "\u202e\u0007\u001b[2J", "%00", "../..", "-1", "true", "null", "\u4e2d" * 100]
NUMBERS = [0, 1, -1, 2, 7, 100, 255, 256, 499, 500, 65535, 65536, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63),
           1 << 64, 1e300, 1.5, -0.0]
ENV_NAMES = ["PATH", "HOME", "A", "LD_PRELOAD", "", "A=B", "\u00e9", "E2B_SANDBOX", "N" * 200]
WORDS = [b"\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"\0", b"\xff", b"\n", b" ", b"\t", b":", b",", b"{", b"}", b"[", b"]", b'"', b"\\u0000", b"%2e%2e/", b"%00",
         b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Content-Length: 99999999999999999999\r\n", b"Expect: 100-continue\r\n",
         b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"HTTP/1.0", b"HTTP/2.0", b"ffffffffffffffff\r\n", b"true", b"null",
         b"-1", b"18446744073709551616", b"1e999", b"GET / HTTP/1.1\r\n\r\n", b"*", b"//", b"KILL", b"tree", b"\xc0\xaf", b"\xed\xa0\x80"]

METHODS = re.findall(r'^R\("(\w+)", "(\w+)", \w+, (\w+), ([^)]*)\)', read("guest/common/wire/rpc.def"), re.M)
E2B_METHODS = re.findall(r'^R\("([\w.]+)", "(\w+)", \w+, (\w+), ([^)]*)\)', read("guest/dialect/e2b/methods.def"), re.M)
SCHEMAS = {}
for _name in ("common", "exec", "fs", "search", "archive", "system", "files"):
    SCHEMAS.update(json.loads(read(f"guest/common/wire/schema/{_name}.json")))


# ---- values of the native API, by its schema ----

def pick_text(rnd, name):
    """A string for a field of this name."""
    if name in ("path", "cwd", "source", "destination", "from", "to", "root", "target"):
        return rnd.choice(PATHS)
    if name in ("id", "hold", "tag"):
        return rnd.choice(IDS) if rnd.random() < 0.95 else rnd.choice(STRINGS)
    if name == "shell":
        return rnd.choice(SCRIPTS)
    if name == "user":
        return rnd.choice(["root", "user", "1000", "0", "1000:1000", "nobody", "", "-1", "65534"])
    if name in ("pattern", "patterns", "exclude", "include", "glob", "globs"):
        return rnd.choice(PATTERNS)
    if name in ("mode", "umask"):
        return rnd.choice(["0644", "755", "0", "7777", "8", "-1", "022"])
    if name == "signal":
        return rnd.choice(SIGNALS)
    if name == "spill_dir":
        return "/tmp"
    return rnd.choice(STRINGS) if rnd.random() < 0.3 else rnd.choice(PATHS + SCRIPTS + PATTERNS)


def pick_number(rnd, name):
    if name in ("timeout_ms", "kill_grace_ms", "ttl_ms", "debounce_ms"):
        return rnd.choice([0, 0, 1, 10, 50, 300, 1000])
    if name == "port":
        return rnd.choice([0, 1, 80, 8080, 65535, 65536])
    return rnd.choice(NUMBERS) if rnd.random() < 0.3 else rnd.randrange(0, 5000)


def pick_argv(rnd):
    program = rnd.choice(["sh", "sh", "sh", "sleep", "echo", "cat", "true", "/bin/false", "no-such-program", "/etc/passwd", "/tmp"])
    return [program, "-c", rnd.choice(SCRIPTS)] if program == "sh" else [program, rnd.choice(["0.2", "2", "x"])]


def resolve(schema):
    while "$ref" in schema:
        schema = SCHEMAS.get(schema["$ref"].rsplit("/", 1)[1], {})
    return schema


def make_value(rnd, schema, name="", depth=0):
    schema = resolve(schema)
    if name == "argv":
        return pick_argv(rnd)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rnd.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema and "properties" not in schema:
            return make_value(rnd, rnd.choice(schema[key]), name, depth)
    kinds = schema.get("type", "string")
    kind = rnd.choice([k for k in kinds if k != "null"] or ["null"]) if isinstance(kinds, list) else kinds
    if kind == "null":
        return None
    if kind == "boolean":
        return rnd.random() < 0.5
    if kind in ("integer", "number"):
        return pick_number(rnd, name)
    if kind == "array":
        items = schema.get("items", {})
        return [make_value(rnd, items, name, depth + 1) for _ in range(rnd.randrange(0, 4))]
    if kind == "object":
        return make_object(rnd, schema, name, depth)
    return pick_b64(rnd) if schema.get("contentEncoding") else pick_text(rnd, name)


def pick_b64(rnd):
    return base64.b64encode(rnd.randbytes(rnd.randrange(0, 60))).decode()


def make_object(rnd, schema, name, depth):
    value = {}
    if name == "env":
        return {rnd.choice(ENV_NAMES): rnd.choice(STRINGS + ["/bin"]) for _ in range(rnd.randrange(0, 3))}
    if name in ("stdin", "data"):
        return rnd.choice([{"text": "input\n"}, {"text": "x" * 5000}, {"b64": pick_b64(rnd)}])
    for key, sub in schema.get("properties", {}).items():
        # each of the many fields of Run can make the request invalid
        if key in schema.get("required", ()) or rnd.random() < (0.15 if depth == 0 else 0.4):
            value[key] = make_value(rnd, sub, key, depth + 1)
    return value


def native(rnd, service=None, method=None):
    rows = [r for r in METHODS if service in (None, r[0]) and method in (None, r[1])]
    service, method, kind, flags = rnd.choice(rows)
    name = f"{service}.{method}"
    message = make_value(rnd, {"$ref": f"/{name}.Request"})
    if name in ("Exec.Run", "Exec.Start"):
        message.pop("shell" if rnd.random() < 0.5 else "argv", None)
        if "shell" not in message and "argv" not in message:
            message["shell"] = rnd.choice(SCRIPTS)
        # the few fields that make the request invalid
        for key, keep in (("umask", ["022", "0", "8"]), ("user", ["root", "user", "user", "1000", "nobody"]), ("cwd", ["/tmp", "/", "/tmp/d", "x"])):
            if key in message:
                message[key] = rnd.choice(keep)
        for key in ("limits", "rlimits", "lossless", "id"):
            if rnd.random() < 0.7:
                message.pop(key, None)
        if rnd.random() < 0.5:
            message["id"] = rnd.choice(IDS)
        if rnd.random() < 0.2:
            message["limits"] = {k: v for k, v in (("memory_bytes", 64 << 20), ("pids", 6), ("cpu_millis", 500)) if rnd.random() < 0.6}
        if rnd.random() < 0.6:
            message |= {"timeout_ms": rnd.choice([1, 20, 200]), "kill_grace_ms": rnd.choice([0, 0, 10, 100])}
        if rnd.random() < 0.3:
            message["kill_on_exit"] = True
    return native_request(name, message, kind)


def native_request(name, message, kind=None):
    if kind is None:
        kind = next((k for s, m, k, _ in METHODS if f"{s}.{m}" == name), "UNARY")
    return Request("POST", f"/bellhop.v1.{name.replace('.', '/', 1)}", [("Content-Type", "application/json")],
                   json.dumps(message).encode(), waits=kind == "SOURCE")


def signals(rnd, _):
    """Requests that end commands in every way, also commands that are gone."""
    name = rnd.choice(IDS)
    return native_request("Exec.Signal", {"id": name, "signal": rnd.choice(SIGNALS[:12]), "tree": rnd.random() < 0.8})


# ---- E2B, by its definitions ----

def read_proto():
    text = re.sub(r"//.*", "", read("guest/dialect/e2b/e2b.proto"))
    messages = {name: re.findall(r"(optional|repeated)\s+(\w+)\s+(\w+)\s*=\s*(\d+)", body)
                for name, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.S)}
    calls = dict(re.findall(r"rpc (\w+)\((\w+)\)", text))
    return messages, calls


PROTO, PROTO_CALLS = read_proto()


def make_message(rnd, kind, harvest, depth=0):
    """A message as (field, number, type, value): for JSON and for protobuf."""
    fields = []
    for label, sub, name, number in PROTO.get(kind, ()):
        must = name in ("process", "path", "source", "destination", "start", "cmd") or (kind == "ProcessSelector" and name == "pid")
        if not must and rnd.random() < 0.5 or kind == "ProcessSelector" and name == "tag" and fields:
            continue
        for _ in range(rnd.randrange(0, 3) if label == "repeated" else 1):
            fields.append((name, int(number), sub, make_proto_value(rnd, kind, sub, name, harvest, depth), label))
    if kind == "ProcessConfig":
        argv = pick_argv(rnd)
        fields = [f for f in fields if f[0] not in ("cmd", "args")]
        fields += [("cmd", 1, "string", argv[0], "optional")] + [("args", 2, "string", a, "repeated") for a in argv[1:]]
    return fields


def make_proto_value(rnd, kind, sub, name, harvest, depth):
    if sub in PROTO:
        return make_message(rnd, sub, harvest, depth + 1)
    if sub == "bool":
        return rnd.random() < 0.5
    if name == "pid":
        return int(harvest.get("PID", 300)) if rnd.random() < 0.4 else rnd.choice([0, 1, 2, rnd.randrange(3, 30), rnd.randrange(300, 500)])
    if name == "signal":
        return rnd.choice([9, 15, 9, 15, 0, 1])
    if name == "watcher_id":
        return harvest.get("WATCHER", "w")
    if sub in ("uint32", "int32", "int64", "sint32"):
        return rnd.choice([0, 1, 5, 80, 1000, 100000, (1 << 31) - 1])
    if sub == "bytes":
        return rnd.choice([b"", b"x\n", b"\x04", b"y" * 3000])
    if name == "tag":
        return rnd.choice(TAGS + IDS[:3])
    if name in ("path", "source", "destination", "cwd"):
        return rnd.choice(PATHS)
    if name == "key":
        return rnd.choice(ENV_NAMES)
    return rnd.choice(STRINGS[:3])


SIGNAL_NAMES = {9: "SIGNAL_SIGKILL", 15: "SIGNAL_SIGTERM", 0: "SIGNAL_UNSPECIFIED"}


def proto_json(fields):
    out = {}
    for name, _, sub, value, label in fields:
        key = re.sub(r"_(\w)", lambda m: m[1].upper(), name)
        if sub.endswith("Entry"):
            pair = {f[0]: f[3] for f in value}
            out.setdefault(key, {})[pair.get("key", "")] = pair.get("value", "")
            continue
        if sub in PROTO:
            value = proto_json(value)
        elif sub == "bytes":
            value = base64.b64encode(value).decode()
        elif sub == "Signal":
            value = SIGNAL_NAMES.get(value, value)
        if label == "repeated":
            out.setdefault(key, []).append(value)
        else:
            out[key] = value
    return out


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def proto_bytes(fields):
    out = b""
    for _, number, sub, value, _ in fields:
        if sub in PROTO:
            value = proto_bytes(value)
        elif isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(number << 3) + varint(int(value))
    return out


def basic(rnd):
    return [("Authorization", "Basic " + base64.b64encode(rnd.choice([b"user:", b"root:", b"nobody:", b"x"])).decode())] if rnd.random() < 0.4 else []


def e2b(rnd, harvest, method=None):
    service, method, kind, flags = rnd.choice([r for r in E2B_METHODS if method in (None, r[1])])
    is_stream = kind == "INFLOW" or kind == "SOURCE" and "SINGLE" not in flags
    n = rnd.randrange(1, 4) if kind == "INFLOW" else 1
    bodies = []
    as_proto = rnd.random() < 0.4
    for _ in range(n):
        fields = make_message(rnd, PROTO_CALLS[method], harvest)
        bodies.append(proto_bytes(fields) if as_proto else json.dumps(proto_json(fields)).encode())
    kind_name = "proto" if as_proto else "json"
    headers = basic(rnd) + ([("Connect-Timeout-Ms", rnd.choice(["1", "50", "1000", "x"]))] if rnd.random() < 0.2 else [])
    if is_stream:
        body = b"".join(struct.pack(">BI", 0, len(b)) + b for b in bodies)
        headers += [("Content-Type", f"application/connect+{kind_name}"), ("Connect-Protocol-Version", "1")]
    else:
        body = bodies[0]
        headers.append(("Content-Type", f"application/{kind_name}"))
    return Request("POST", f"/{service}/{method}", headers, body, waits=kind != "UNARY")


# ---- the byte routes ----

def quoted(path):
    return urllib.parse.quote(path.encode("utf-8", "surrogatepass"), safe="/")


ROUTES = json.loads(read("guest/common/wire/schema/routes.json"))
QUERY_VALUES = {"user": ["user", "root", "x"], "cwd": ["/tmp", "/tmp/d", "x"], "mode": ["0600", "0755", "9"], "format": ["tar", "zip", "x"],
                "compression": ["gzip", "zstd", "none", "x"], "strip": ["0", "1", "x"], "path": PATHS, "exclude": PATTERNS, "include": PATTERNS}


def query(rnd, route, verb, **options):
    """Parameters of this route, as the agent's document has them."""
    route = ROUTES[route]
    verb = {"head": "get"}.get(verb.lower(), verb.lower())
    rows = route.get("parameters", []) + route.get(verb, {}).get("parameters", [])
    for name in [p["name"] for p in rows if p.get("in") == "query"]:
        if name not in options and rnd.random() < 0.2:
            options[name] = rnd.choice(QUERY_VALUES.get(name, ["true", "false", "true", "1", "x"]))
    return "?" + urllib.parse.urlencode({k: v.encode("utf-8", "surrogatepass") for k, v in options.items()}) if options else ""


def some_headers(rnd, harvest, *names):
    values = {
        "Range": ["bytes=0-3", "bytes=-5", "bytes=5-", "bytes=9-1", "bytes=0-0,2-3,5-", "bytes=0-99999999999999999999", "x"],
        "If-Match": ["*", '"x"', harvest.get("ETAG", '"y"'), 'W/"x", "y"'], "If-None-Match": ["*", '"x"', harvest.get("ETAG", '"y"')],
        "If-Range": ['"x"', harvest.get("ETAG", '"y"'), "Wed, 21 Oct 2015 07:28:00 GMT"],
        "If-Modified-Since": ["Wed, 21 Oct 2015 07:28:00 GMT", "x"],
        "Content-Range": ["bytes 0-4/5", "bytes 0-4/*", "bytes 5-9/100", "bytes */5"], "Upload-Complete": ["?0", "?1", "x"],
        "Upload-Length": ["5", "100000", "99999999999999999999", "-1"], "Upload-Offset": ["0", "5", "100"],
        "Content-Digest": ["sha-256=:AAAA:", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"], "Repr-Digest": ["sha-256=:AAAA:", "x"],
        "Want-Repr-Digest": ["sha-256=1"], "Accept-Encoding": ["gzip", "gzip;q=1, identity;q=0", "*"], "Content-Encoding": ["gzip", "br", "identity"],
        "Expect": ["100-continue"], "X-Metadata-A": ["b", "\u00e9", "x" * 5000], "Accept": ["text/plain", "application/json"], "Origin": ["http://a"],
        "Content-Type": ["application/octet-stream", "multipart/form-data; boundary=b-", "application/partial-upload", "application/x-tar", "text/plain"],
        "Bellhop-Proxy-Timeout-Ms": ["1", "100", "x"], "Upgrade": ["websocket", "tcp"], "Connection": ["Upgrade", "keep-alive", "close, x"],
        "Sec-WebSocket-Key": ["dGhlIHNhbXBsZSBub25jZQ=="],
    }
    return [(n, rnd.choice(values[n])) for n in names if rnd.random() < 0.15]


def some_body(rnd):
    kind = rnd.randrange(4)
    if kind == 0:
        return rnd.randbytes(rnd.randrange(0, 300))
    if kind == 1:
        return b"line\n" * rnd.randrange(0, 20000)
    if kind == 2:
        return gzip.compress(b"z" * rnd.randrange(0, 200000), mtime=0)
    return corpus(rnd, rnd.choice(["archive", "unpack", "multipart"]))


def files(rnd, harvest):
    verb = rnd.choice(["GET", "GET", "HEAD", "PUT", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"])
    target = "/v1/files/" + quoted(rnd.choice(PATHS)) + query(rnd, "files", verb)
    headers = some_headers(rnd, harvest, "Range", "If-Match", "If-None-Match", "If-Range", "Content-Range", "Upload-Complete", "Upload-Length",
                           "Content-Digest", "Repr-Digest", "Want-Repr-Digest", "Accept-Encoding", "Expect", "Content-Type")
    # /dev/zero has no end
    return Request(verb, target, headers, some_body(rnd) if verb in ("PUT", "POST", "PATCH") else b"", waits="dev" in target)


def uploads(rnd, harvest):
    verb = rnd.choice(["GET", "HEAD", "PATCH", "PATCH", "DELETE"])
    target = harvest.get("UPLOAD", "/v1/uploads/x") if rnd.random() < 0.8 else "/v1/uploads/" + quoted(rnd.choice(PATHS))
    headers = some_headers(rnd, harvest, "Upload-Offset", "Upload-Complete", "Content-Digest", "Content-Type", "Upload-Length")
    if verb == "PATCH" and rnd.random() < 0.7:
        headers += [("Content-Type", "application/partial-upload"), ("Upload-Offset", rnd.choice(["0", "5"])), ("Upload-Complete", "?1")]
    return Request(verb, target, headers, some_body(rnd) if verb == "PATCH" else b"")


def archive(rnd, harvest):
    verb = rnd.choice(["GET", "PUT", "POST", "HEAD"])
    path = rnd.choice(["/tmp/d", "/tmp/a", "/tmp", "/tmp/d/new", "/etc", *PATHS])
    target = "/v1/archive" + query(rnd, "archive", verb, path=path)
    body = corpus(rnd, rnd.choice(["archive", "unpack"]))[rnd.randrange(0, 3):] if verb != "GET" else b""
    return Request(verb, target, some_headers(rnd, harvest, "Content-Type", "Content-Encoding", "Expect", "Accept-Encoding"), body,
                   waits=path in ("/", "/dev", "/proc", "/sys", "..") or "dev" in path)


def proxy(rnd, harvest):
    port = rnd.choice(["1", "22", "0", "65536", "x", "8080", "49983"])
    verb = rnd.choice(["GET", "POST", "PUT", "CONNECT", "OPTIONS"])
    target = rnd.choice(["/v1/proxy/", "/v1/tunnel/"]) + port + rnd.choice(["", "/", "/x?y=z", "//x"])
    return Request(verb, target, some_headers(rnd, harvest, "Bellhop-Proxy-Timeout-Ms", "Upgrade", "Connection", "Sec-WebSocket-Key", "Expect"),
                   some_body(rnd) if verb in ("POST", "PUT") else b"", waits=True)


def e2b_files(rnd, harvest):
    verb = rnd.choice(["GET", "POST", "POST", "OPTIONS"])
    compose = verb == "POST" and rnd.random() < 0.2
    target = ("/files/compose" if compose else "/files") + "?" + urllib.parse.urlencode(
        {"path": rnd.choice(PATHS).encode("utf-8", "surrogatepass"), "username": rnd.choice(["user", "root", "x"])})
    headers = some_headers(rnd, harvest, "Range", "Accept-Encoding", "Content-Encoding", "X-Metadata-A", "If-Modified-Since", "Origin", "Expect") + basic(rnd)
    body = b""
    if compose:
        body = json.dumps({"sources": [rnd.choice(PATHS) for _ in range(rnd.randrange(0, 4))], "destination": rnd.choice(PATHS)}).encode()
        headers.append(("Content-Type", "application/json"))
    elif verb == "POST" and rnd.random() < 0.6:
        parts = b"".join(b'--b-\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n'
                         % (rnd.choice([b"a", b"/tmp/m", b"../x", b""]), some_body(rnd)[:5000]) for _ in range(rnd.randrange(0, 4)))
        body = parts + b"--b---" if rnd.random() < 0.8 else corpus(rnd, "multipart")[1:]
        body = body.replace(b"--b---", b"--b---\r\n")
        headers.append(("Content-Type", "multipart/form-data; boundary=b-"))
    elif verb == "POST":
        body = some_body(rnd)
        headers.append(("Content-Type", "application/octet-stream"))
    return Request(verb, target, headers, body, waits="dev" in target)


def small(rnd, harvest):
    verb = rnd.choice(["GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "PUT", "TRACE", "X"])
    target = rnd.choice(["/v1/health", "/v1/ready?fresh=true", "/v1/metrics", "/v1/openapi.json", "/health", "/envs", "/metrics", "/init", "/", "*", "",
                         "http://x/v1/health", "/v1/files", "/v1/none", "/bellhop.v1.Exec/None", "/process.Process/None", "/%", "//", "/v1/health?" + "a" * 9000])
    body = b""
    if target == "/init":
        message = {"envVars": {rnd.choice(ENV_NAMES): rnd.choice(STRINGS[:4])}, "defaultUser": rnd.choice(["user", "x"]), "defaultWorkdir": rnd.choice(PATHS),
                   "timestamp": "2026-01-01T00:00:00Z", "accessToken": ""}
        body = json.dumps({k: v for k, v in message.items() if rnd.random() < 0.5}).encode()
        verb = "POST"
    return Request(verb, target, some_headers(rnd, harvest, "Accept", "Origin", "Expect", "Content-Type", "Connection", "Upgrade"), body,
                   waits="ready" in target)


# ---- inputs from other tests ----

@functools.lru_cache(None)
def corpus_files(name):
    found = []
    for kind in ("corpus", "regress"):
        directory = os.path.join(HERE, kind, name)
        for f in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            found.append((f, read(os.path.join(directory, f), "rb")))
    return found


def corpus(rnd, name):
    return rnd.choice(corpus_files(name))[1]


@functools.lru_cache(None)
def cases():
    found = []
    for name in ("archive", "exec", "fs", "search", "system"):
        for case in json.loads(read(f"tests/contract/cases/{name}.json")):
            if "call" in case and "request" in case:
                found.append((case["call"].replace("/", "."), json.dumps(case["request"]).replace("$DIR", "/tmp/d")))
    return found


def kept(rnd, harvest):
    """A case of the contract, or an input of a fuzz target, in a request that brings it to the same parser."""
    if rnd.random() < 0.4:
        name, text = rnd.choice(cases())
        return native_request(name, json.loads(text))
    name = rnd.choice(["rpc", "exec_request", "envelope", "e2b_proto", "e2b_query", "gate", "uri", "range", "http1", "multipart", "glob", "grep",
                       "list_cursor", "fields", "values", "gitignore", "fs_path", "json_write", "lossy"])
    file, data = rnd.choice(corpus_files(name))
    header = [("Content-Type", "application/json")]
    text = urllib.parse.quote(data.replace(b"\r", b"").replace(b"\n", b""), safe="/?&=%")
    if name == "rpc":
        return Request("POST", "/bellhop.v1." + file.rsplit("-", 1)[0].replace(".", "/"), header, data[1:].replace(b"$DIR", b"/tmp/d"), waits=True)
    if name == "exec_request":
        return Request("POST", "/bellhop.v1.Exec/" + rnd.choice(["Run", "Start"]), header, data, waits=True)
    if name == "envelope":
        return Request("POST", "/process.Process/" + rnd.choice(["Start", "StreamInput"]), [("Content-Type", "application/connect+json")], data, waits=True)
    if name == "e2b_proto":
        return Request("POST", "/process.Process/" + rnd.choice(["SendInput", "SendSignal", "Update"]), [("Content-Type", "application/proto")],
                       data[rnd.randrange(0, 3):], waits=True)
    if name == "e2b_query":
        return Request("GET", "/files?" + text[:4000])
    if name == "uri":
        return Request("GET", text[:4000] or "/")
    if name == "range":
        return Request("GET", "/v1/files//tmp/d/3.txt", [("Range", data[2:].decode("latin-1").replace("\r", "").replace("\n", ""))])
    if name in ("glob", "grep", "gitignore"):
        return native_request("Search." + rnd.choice(["Glob", "Grep"]), {"path": "/tmp", "pattern": data.decode("latin-1")})
    return Request("POST", rnd.choice(["/init", "/bellhop.v1.Fs/List", "/v1/files//tmp/x", "/files?path=/tmp/y"]), header, data)


# ---- changes ----

def change_value(rnd, value, depth=0):
    """Changes one place of a JSON value."""
    if isinstance(value, dict) and value and rnd.random() < 0.85:
        key = rnd.choice(list(value))
        how = rnd.randrange(6)
        value = dict(value)
        if how == 0:
            del value[key]
        elif how == 1:
            value[rnd.choice(["x", "", "id", "path", "tree", key + "x", "\u0000"])] = value[key]
        else:
            value[key] = change_value(rnd, value[key], depth + 1)
        return value
    if isinstance(value, list) and value and rnd.random() < 0.7:
        value = list(value)
        i = rnd.randrange(len(value))
        if rnd.random() < 0.2:
            return value * rnd.choice([2, 300])
        value[i] = change_value(rnd, value[i], depth + 1)
        return value
    nested = "x"
    if rnd.random() < 0.1:
        for _ in range(rnd.choice([10, 200, 5000])):
            nested = [nested]
    return rnd.choice([None, True, False, rnd.choice(NUMBERS), rnd.choice(STRINGS), rnd.choice(PATHS), [], {}, [value], {"b64": "!"}, {"text": value}, nested])


def by_grammar(rnd, q):
    how = rnd.randrange(5)
    if how <= 1 and q.body[:1] == b"{":
        try:
            message = json.loads(q.body)
        except ValueError:
            return q
        for _ in range(rnd.choice([1, 1, 2])):
            message = change_value(rnd, message)
        try:
            q.body = json.dumps(message).encode()
        except RecursionError:
            return q
        if rnd.random() < 0.1:
            q.body = q.body.replace(b"{", b'{"id":"c0",', 1)  # maybe twice
    elif how == 2 and q.headers:
        i = rnd.randrange(len(q.headers))
        if rnd.random() < 0.3:
            del q.headers[i]
        elif rnd.random() < 0.5:
            q.headers.insert(0, q.headers[i])
        else:
            q.headers[i] = (q.headers[i][0], rnd.choice([" ", "", "\u00e9", "x" * 9000, q.headers[i][1] + " ", "\t" + q.headers[i][1], q.headers[i][1].upper()]))
    elif how == 3:
        q.verb = rnd.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "post", "CONNECT", "PRI"])
    else:
        q.headers += [rnd.choice([("Transfer-Encoding", "chunked"), ("Content-Length", "0"), ("Content-Length", "7, 7"), ("Transfer-Encoding", "gzip, chunked"),
                                  ("Expect", "100-continue"), ("Connection", "close"), ("Host", "y"), ("X", "y" * 20000), ("Upgrade", "h2c"), ("TE", "trailers")])]
    q.waits = True  # its meaning is unknown now
    return q


def by_bytes(rnd, data, other):
    data = bytearray(data)
    for _ in range(rnd.choice([1, 1, 2, 4, 16])):
        at = rnd.randrange(len(data) + 1)
        how = rnd.randrange(7)
        if how == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << rnd.randrange(8)
        elif how == 1 and data:
            data[min(at, len(data) - 1)] = rnd.randrange(256)
        elif how == 2:
            del data[at:at + rnd.choice([1, 2, 8, 100])]
        elif how == 3:
            data[at:at] = rnd.choice(WORDS)
        elif how == 4:
            piece = bytes(data[at:at + rnd.randrange(1, 80)])
            data[at:at] = piece * rnd.choice([1, 2, 50])
        elif how == 5:
            data[at:] = other[rnd.randrange(len(other) + 1):]
        else:
            data[at:at + 4] = struct.pack(">I", rnd.choice([0, 1, 0xffffffff, 0x7fffffff, 0x10000]))
    return bytes(data)


KINDS = [
    (20, lambda rnd, h: native(rnd, "Exec", rnd.choice(["Run", "Start"]))), (8, signals), (8, lambda rnd, h: native(rnd, "Exec")),
    (8, lambda rnd, h: native(rnd)), (6, lambda rnd, h: native(rnd, "Fs")), (3, lambda rnd, h: native(rnd, "System")),
    (10, lambda rnd, h: e2b(rnd, h)), (8, lambda rnd, h: e2b(rnd, h, "Start")), (5, lambda rnd, h: e2b(rnd, h, "SendSignal")),
    (6, files), (3, uploads), (3, archive), (2, proxy), (4, e2b_files), (4, small), (8, kept),
]


def make_request(rnd, harvest):
    return rnd.choices([k for _, k in KINDS], [w for w, _ in KINDS])[0](rnd, harvest)


def cut_up(rnd, data):
    """Splits it into one or a few pieces."""
    if rnd.random() < 0.7 or len(data) < 2:
        return [data]
    cuts = sorted({rnd.randrange(1, len(data)) for _ in range(rnd.choice([1, 1, 3, 10]))})
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]


def make_session(rnd, harvest):
    via = rnd.choice(["tcp", "tcp", "tcp", "unix"])
    q = make_request(rnd, harvest)
    is_chunked = rnd.random() < 0.15
    way = rnd.random()
    look_s = rnd.choice([0.0, 0.005, 0.05, 0.2])
    if way < 0.30:  # unchanged; the answer must be complete
        data = q.raw(close=not q.waits, framing="chunked" if is_chunked else "length", rnd=rnd)
        return Session(cut_up(rnd, data), "look" if q.waits else "read", via, look_s or 0.005)
    if way < 0.45:  # several on one connection
        data = b"".join(make_request(rnd, harvest).raw(close=False) for _ in range(rnd.randrange(1, 6))) + q.raw(close=True)
        return Session(cut_up(rnd, data), rnd.choice(["half-close", "look", "reset"]), via, look_s or 0.005)
    if way < 0.65:
        data = by_grammar(rnd, q).raw(close=rnd.random() < 0.5, framing="chunked" if is_chunked else "length", rnd=rnd)
    elif way < 0.85:
        data = by_bytes(rnd, q.raw(close=rnd.random() < 0.5), make_request(rnd, harvest).raw(close=False))
    else:
        data = q.raw(close=False)
        data = data[:rnd.randrange(len(data) + 1)]
    if not data:
        data = b"G"
    end = rnd.choices(["half-close", "look", "reset", "close", "vanish", "stay"], [30, 20, 20, 20, 5, 5])[0]
    return Session(cut_up(rnd, data), "reset" if end == "vanish" and via == "unix" else end, via, look_s)


def maker(seed, number):
    """make(client, i, harvest): the i-th session of a client, always the same."""
    return lambda client, i, harvest: make_session(random.Random(f"{seed}:{number}:{client}:{i}"), harvest)
