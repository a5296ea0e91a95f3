#!/usr/bin/env python3
"""The wire contract, against the agent that ships. contract.py PART: cases | matrix | raw | encodings.
The agent: AGENT_URL, AGENT_TOKEN, AGENT_DIR (tests/lib/agent.bash). Cases are data (cases/*.json);
the matrices are made of rpc.def's rows and the document's request schemas, so a new method is in
them when it has a row, a schema and a case. Every answer is checked against the document."""
import base64
import glob
import http.client
import json
import os
import re
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import openapi  # noqa: E402

HOST, PORT = os.environ["AGENT_URL"].split("//")[1].rsplit(":", 1)
TOKEN = os.environ["AGENT_TOKEN"]
DIR = os.environ["AGENT_DIR"]
JSON = "application/json"
connection = None
failures = []
n_checks = 0


def fail(what):
    failures.append(what)
    print("#", what[:600], flush=True)


def ask(verb, path, body=None, headers=None, token=TOKEN):
    """(status, headers, body) over one kept connection."""
    global connection
    h = {} if token is None else {"Authorization": "Bearer " + token}
    h.update(headers or {})
    for attempt in (0, 1):
        if connection is None:
            connection = http.client.HTTPConnection(HOST, int(PORT), timeout=120)
        try:
            connection.request(verb, path, body, h)
            r = connection.getresponse()
            data = r.read()
            if r.will_close:
                connection.close()
                connection = None
            return r.status, r.headers, data
        except (ConnectionError, http.client.HTTPException):
            connection.close()
            connection = None
            if attempt:
                raise


def call(method, request, headers=None, raw=None, **more):
    body = raw if raw is not None else json.dumps(request).encode()
    h = {"Content-Type": JSON}
    h.update(headers or {})
    h = {k: v for k, v in h.items() if v is not None}
    path = "/bellhop.v1." + method
    status, head, data = ask("POST", path, body, h, **more)
    for problem in doc.check("POST", path, status, head["Content-Type"], data):
        fail(f"{method} {str(request)[:200]}: {problem}")
    return status, head, data


def expect_error(what, answer, status, code, field=None):
    global n_checks
    n_checks += 1
    got, head, data = answer
    try:
        error = json.loads(data)
    except ValueError:
        error = {}
    want = status if isinstance(status, tuple) else (status,)
    if got not in want or error.get("code") != code:
        return fail(f"{what}: {got} {data[:300]!r}, not {status} {code}")
    if field is not None and not (error.get("field", "") + ".").replace("[", ".").startswith(field + "."):
        fail(f"{what}: the error names {error.get('field')!r}, not {field!r}")


# ---- cases: requests and expected replies ----

def fill(value):
    if value == "$PORT":
        return int(PORT)
    if isinstance(value, str):
        return value.replace("$DIR", DIR)
    if isinstance(value, list):
        return [fill(v) for v in value]
    if isinstance(value, dict):
        return {k: fill(v) for k, v in value.items()}
    return value


def differs(got, want, where=""):
    """Differences between the answer and the expectation: objects may have more, "<...>" is any value of a type."""
    kinds = {"<any>": object, "<int>": int, "<str>": str, "<list>": list}
    if isinstance(want, str) and want in kinds:
        return None if isinstance(got, kinds[want]) else where
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return where
        for k, v in want.items():
            if k not in got:
                return f"{where}/{k}"
            bad = differs(got[k], v, f"{where}/{k}")
            if bad:
                return bad
        return None
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return where
        return next(filter(None, (differs(g, w, f"{where}/{i}") for i, (g, w) in enumerate(zip(got, want)))), None)
    return None if got == want and isinstance(got, bool) == isinstance(want, bool) else where or "/"


def cut_call(method, request, n_lines):
    """A stream whose reader leaves after so many lines."""
    c = http.client.HTTPConnection(HOST, int(PORT), timeout=120)
    c.request("POST", "/bellhop.v1." + method, json.dumps(request), {"Content-Type": JSON, "Authorization": "Bearer " + TOKEN})
    r = c.getresponse()
    data = b"".join(r.readline() for _ in range(n_lines))
    c.close()
    return r.status, r.headers["Content-Type"], data


def read_cases():
    out = []
    for name in sorted(glob.glob(HERE + "/cases/*.json")):
        out += [(os.path.basename(name), c) for c in json.load(open(name))]
    return out


def said(kind, data):
    """A reply's object, or a stream's messages; an error instead of a stream counts as its only message."""
    if kind != JSON:
        return openapi.messages(kind, data)
    return json.loads(data)


def run_case(file, case):
    global n_checks
    n_checks += 1
    what = f"{file}: {case['name']}"
    if "cut_after" in case:
        status, kind, data = cut_call(case["call"], fill(case["request"]), case["cut_after"])
        head = {"Content-Type": kind}
    else:
        status, head, data = call(case["call"], fill(case.get("request", {})))
    # A stream that fails has this status, or begins with 200: that is a race.
    is_error = [list(r) for r in case.get("reply", []) if isinstance(r, dict)] == [["error"]]
    if status != case.get("status", 200) and not (is_error and status >= 400):
        return fail(f"{what}: {status} {data[:400]!r}")
    got = said(head["Content-Type"], data)
    if is_error and isinstance(got, dict):
        got = [{"error": got}]
    bad = differs(got, fill(case.get("reply", {} if isinstance(got, dict) else "<list>")))
    if bad:
        fail(f"{what}: at {bad}: {data[:600]!r}")


def part_cases():
    called = set()
    for file, case in read_cases():
        run_case(file, case)
        if case.get("status", 200) == 200:
            called.add(case["call"])
    for m in METHODS:
        if m not in called:
            fail(f"no case of tests/contract/cases calls {m} and has a reply")


# ---- matrix: each method x each kind of wrong request ----

def good_requests():
    """For each method a request that its schema accepts."""
    out = {}
    for _, case in read_cases():
        if case.get("status", 200) == 200:
            out.setdefault(case["call"], fill(case.get("request", {})))
    return out


def part_headers():
    for m in METHODS:
        good = GOOD.get(m, {})
        expect_error(f"{m} without a token", call(m, good, token=None), 401, "unauthenticated")
        expect_error(f"{m} with a wrong token", call(m, good, token=TOKEN + "x"), 401, "unauthenticated")
        expect_error(f"{m} with a token in the wrong scheme",
                     call(m, good, {"Authorization": "Basic " + TOKEN}, token=None), 401, "unauthenticated")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/proto"):
            expect_error(f"{m} as {kind}", call(m, good, {"Content-Type": kind}), 415, "invalid_argument", "Content-Type")
        for verb in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
            status, head, data = ask(verb, "/bellhop.v1." + m)
            if status != 405 or head["Allow"] != "POST":
                fail(f"{verb} {m}: {status} {data[:200]!r}")
        for encoding in ("gzip", "br", "gzip, identity", "x"):
            expect_error(f"{m} in {encoding}", call(m, good, {"Content-Encoding": encoding}), 415, "unimplemented", "Content-Encoding")
        expect_error(f"{m} in Connect's version 2", call(m, good, {"Connect-Protocol-Version": "2"}), 400,
                     "invalid_argument", "Connect-Protocol-Version")
        for timeout in ("", "-1", "1.5", "x", "99999999999"):
            expect_error(f"{m} with a timeout of '{timeout}'", call(m, good, {"Connect-Timeout-Ms": timeout}), 400,
                         "invalid_argument", "Connect-Timeout-Ms")
        expect_error(f"{m} of a web page", call(m, good, {"Origin": "http://x.example"}), 403, "permission_denied")
        expect_error(f"{m} with a declared body of 17 MB",
                     ask("POST", "/bellhop.v1." + m, None, {"Content-Type": JSON, "Content-Length": "17000000", "Expect": "100-continue"}),
                     413, "resource_exhausted")
        for name in (m + "X", m.lower(), m + "/", m.replace("/", "//"), "X." + m):
            if name not in METHODS:
                expect_error(f"unknown method {name}", ask("POST", "/bellhop.v1." + name, b"{}", {"Content-Type": JSON}), 404, "not_found")


def part_raw():
    """Bodies that are no valid request."""
    deep = b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"
    bodies = {
        "not JSON": b"this is not JSON", "a cut object": b'{"a":', "an array": b"[]", "a string": b'"x"', "null": b"null",
        "a number": b"1", "two objects": b"{}{}", "trailing garbage": b"{} x", "a NUL behind": b"{}\0", "deep nesting": deep,
        "a byte order mark": b"\xef\xbb\xbf{}", "UTF-16": '{"a":1}'.encode("utf-16"), "single quotes": b"{'a':1}",
        "a comment": b"{/* */}", "invalid UTF-8": b'{"a":"\xff\xfe"}', "an overlong NUL": b'{"a":"\xc0\x80"}',
        "half a surrogate": b'{"a":"\\ud800"}', "a control character": b'{"a":"\x01"}', "a huge whole number": b'{"a":1' + b"0" * 400 + b"}",
        "a huge number": b'{"a":1e400}', "not a number": b'{"a":NaN}', "a duplicate field": b'{"a":1,"a":1}', "only spaces": b"   ",
        "a lone minus": b'{"a":-}', "leading zeros": b'{"a":01}', "an empty name": b'{"":1}', "a name with a NUL": b'{"\\u0000":1}',
    }
    for m in METHODS:
        for name, body in bodies.items():
            if len(body) > 1000 and m not in METHODS[:3]:
                continue
            expect_error(f"{m} with {name}", call(m, name, raw=body), 400, "invalid_argument")
        good = json.dumps(GOOD.get(m, {}))
        for name, behind in (("garbage", "x"), ("an object", "{}"), ("a comma", ",")):
            expect_error(f"{m} with {name} behind a good request", call(m, name, raw=(good + behind).encode()), 400, "invalid_argument")
        for field in GOOD.get(m, {}):
            twice = good[:-1] + "," + json.dumps({field: GOOD[m][field]})[1:]
            expect_error(f"{m} with '{field}' twice", call(m, twice, raw=twice.encode()), 400, "invalid_argument")


CANDIDATES = [None, True, 1, 0, -1, 1.5, 1e300, 2 ** 32, 2 ** 63 - 1, "", "x", "\0", "a\0b", [], [1], [None], ["a\0"], {}, {"x": 1},
              {"b64": "!"}, {"b64": 1}, {"b64": ""}, {"text": 1}, {"text": "x", "b64": ""}, {"b64": "AA==", "x": 1}, {"b64": "AA=="}]


def resolved(schema):
    while "$ref" in schema:
        schema = doc.doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def is_refused(schema, value):
    """By its schema; a NUL in a string is refused everywhere but in bytes and scripts."""
    if doc.problems(schema, value):
        return True
    return False


def part_fields():
    """Each field missing, unknown, of another type. The agent must refuse what the schema refuses."""
    for m in METHODS:
        schema = resolved(doc.request_schema(m))
        good = GOOD.get(m, {})
        if doc.problems(schema, good):
            fail(f"{m}: its case's request is not what its schema takes: {doc.problems(schema, good)}")
            continue
        expect_error(f"{m} with an unknown field", call(m, {**good, "frobnicate": 1}), 400, "invalid_argument", "frobnicate")
        for field in schema.get("required", []):
            less = {k: v for k, v in good.items() if k != field}
            expect_error(f"{m} without '{field}'", call(m, less), 400, "invalid_argument", field)
        for field, sub in schema["properties"].items():
            for value in CANDIDATES:
                if is_refused(sub, value):
                    expect_error(f"{m} with '{field}' {json.dumps(value)}", call(m, {**good, field: value}), 400, "invalid_argument", field)
            for value in ("a\0b", {"b64": base64.b64encode(b"a\0b").decode()}):
                if sub.get("$ref", "").endswith("/Path") or sub == {"type": "string"}:
                    if field != "pattern" and not is_refused(sub, value):
                        expect_error(f"{m} with a NUL in '{field}'", call(m, {**good, field: value}), 400, "invalid_argument", field)
            inner = resolved(sub)
            if inner.get("properties") and "text" not in inner["properties"]:
                expect_error(f"{m} with an unknown field in '{field}'", call(m, {**good, field: {"frobnicate": 1}}), 400,
                             "invalid_argument", field + ".frobnicate")
                for name, of in inner["properties"].items():
                    for value in CANDIDATES:
                        if is_refused(of, value):
                            expect_error(f"{m} with '{field}.{name}' {json.dumps(value)}", call(m, {**good, field: {name: value}}), 400,
                                         "invalid_argument", f"{field}.{name}")


# ---- parameters: each route accepts those of the document ----

def source_words():
    """Every quoted word of the server's sources: the names that it knows are among them."""
    out = set()
    for name in glob.glob(openapi.TOP + "/guest/http/*.c") + glob.glob(openapi.TOP + "/guest/api/**/*.c", recursive=True):
        out |= set(re.findall(r'"([a-z][a-z_]{1,24})"', open(name).read()))
    return out


def part_parameters():
    """Each route and verb with each name: refused as unknown when, and only when, the document has none."""
    global n_checks
    words = source_words()
    paths = {"/v1/ready": "/v1/ready", "/v1/archive": "/v1/archive", "/v1/files/{path}": f"/v1/files/{DIR}/parameters",
             "/v1/files": f"/v1/files?path={DIR}/parameters"}
    for described, path in paths.items():
        verbs = doc.doc["paths"][described]
        for verb in verbs:
            if verb in ("parameters", "options"):  # OPTIONS does nothing
                continue
            known = {p["name"] for p in verbs.get("parameters", []) + verbs[verb].get("parameters", []) if p["in"] == "query"}
            for name in sorted(words | known | {"frobnicate"}):
                n_checks += 1
                status, head, data = ask(verb.upper(), f"{path}{'&' if '?' in path else '?'}{name}=1", b"" if verb in ("put", "post", "patch") else None)
                # The reply to HEAD has no body that could name it.
                refused = status == 400 if verb == "head" else b"unknown parameter '%s'" % name.encode() in data
                if verb != "head" and refused != (name not in known) or verb == "head" and name not in known and not refused:
                    fail(f"{verb.upper()} {described}?{name}: {status}, {'in' if name in known else 'not in'} the document: {data[:200]!r}")


# ---- encodings: the same answer in each ----

def envelope(request):
    body = json.dumps(request).encode()
    return struct.pack(">BI", 0, len(body)) + body


def stream_of(m, kind, request):
    """(messages, end) of a method that streams, in this encoding."""
    if kind == "application/connect+json":
        return call(m, request, {"Content-Type": kind, "Connect-Protocol-Version": "1"}, raw=envelope(request))
    return call(m, request, {"Accept": kind})


def shape(messages):
    """The kinds of messages with their fields; the values differ from call to call."""
    out = []
    for m in messages:
        inner = list(m.values())[0] if len(m) == 1 else None
        if "keepalive" not in m:
            out.append([sorted(m), sorted(inner) if isinstance(inner, dict) else None])
    return out


def part_encodings():
    kinds = ("application/x-ndjson", "text/event-stream", "application/connect+json")
    for file, case in read_cases():
        m = case["call"]
        kind, flags = ROWS[m]
        if kind != "SOURCE" or "cut_after" in case or not case.get("repeat", True):
            continue
        if case.get("status", 200) != 200:
            # An error before the first message has its own status, but in Connect, where it is the end.
            request = fill(case.get("request", {}))
            status, head, data = stream_of(m, kinds[2], request)
            flag, n = struct.unpack(">BI", data[:5])
            error = json.loads(data[5:]) if flag == 2 else {"error": {"code": None}}
            if status != 200 or flag != 2 or error["error"]["code"] != case["reply"]["code"]:
                fail(f"{file}: {case['name']} in Connect: {status} {data[:300]!r}")
            continue
        seen = {}
        for k in kinds:
            request = fill(case.get("request", {}))
            status, head, data = stream_of(m, k, request)
            if head["Content-Type"] == JSON and status >= 400:
                seen[k] = shape([{"error": json.loads(data)}])
                continue
            if status != 200 or head["Content-Type"] != k:
                fail(f"{file}: {case['name']} as {k}: {status} {head['Content-Type']} {data[:300]!r}")
                continue
            seen[k] = shape(openapi.messages(k, data))
            ends = {kinds[0]: b"}\n", kinds[1]: b"event: end\ndata: {}\n\n", kinds[2]: struct.pack(">BI", 2, 2) + b"{}"}
            if seen[k] and seen[k][-1][0] == ["error"]:
                continue
            if not data.endswith(ends[k]):
                fail(f"{m}: the stream has no end: {data[-60:]!r}")
            if k == kinds[2]:
                seen[k] = seen[k][:-1]
            if "SINGLE" in flags and len(seen[k]) != 1:
                fail(f"{m} as {k}: {len(seen[k])} messages, not one")
        if len({json.dumps(s) for s in seen.values()}) > 1:
            fail(f"{file}: {case['name']}: the encodings differ: {seen}")
    for m in METHODS:
        if ROWS[m][0] == "SOURCE":
            for name, raw in (("no envelope", b"{}"), ("a compressed one", b"\1\0\0\0\2{}"), ("an end", b"\2\0\0\0\2{}"),
                              ("a short one", b"\0\0\0\0\5{}"), ("a long one", b"\0\0\0\0\1{}"), ("two", b"\0\0\0\0\2{}" * 2),
                              ("4 GB announced", b"\0\xff\xff\xff\xff{}"), ("nothing", b""), ("half a head", b"\0\0\0")):
                status, head, data = call(m, name, {"Content-Type": kinds[2]}, raw=raw)
                flag, n = struct.unpack(">BI", data[:5]) if status == 200 and len(data) > 5 else (0, 0)
                error = json.loads(data[5:])["error"] if flag == 2 else {}
                if error.get("code") not in ("invalid_argument", "unimplemented"):
                    fail(f"{m} with {name}: {status} {data[:200]!r}")
        else:
            expect_error(f"{m} as a stream", call(m, {}, {"Content-Type": kinds[2]}, raw=envelope({})), 415, "invalid_argument", "Content-Type")


def part_deadline():
    """Connect-Timeout-Ms ends a waiting call in every encoding, and its command."""
    slow = {"argv": ["sleep", "600"], "id": "late"}
    for n, kind in enumerate((JSON, "application/x-ndjson", "text/event-stream", "application/connect+json")):
        for m in ("Exec/Run", "Exec/Start"):
            # Run sends nothing before its end, and so has a status of its own; Start has sent its start, for
            # which a machine that is busy enough may need more time.
            for ms in 300, 3000, 15000:
                request = {**slow, "id": f"late-{m[5:]}-{n}-{ms}"}
                headers = {"Connect-Timeout-Ms": str(ms)}
                start = time.monotonic()
                if kind == "application/connect+json":
                    answer = call(m, request, {**headers, "Content-Type": kind}, raw=envelope(request))
                else:
                    answer = call(m, request, {**headers, **({} if kind == JSON else {"Accept": kind})})
                took = time.monotonic() - start
                status, head, data = answer
                if m == "Exec/Run" or status != 504:
                    break
            if b'"deadline_exceeded"' not in data or not ms / 1000 - 0.05 < took < 60:
                fail(f"{m} in {kind} with a deadline: {status} after {took:.2f} s: {data[:300]!r}")
            if status != (504 if m == "Exec/Run" and kind != "application/connect+json" else 200):
                fail(f"{m} in {kind} with a deadline: {status}")
            if m == "Exec/Run":
                status, head, data = call("Exec/Wait", {"id": request["id"], "timeout_ms": 60000})
                if json.loads(data).get("exit", {}).get("reason") != "canceled":
                    fail(f"the command of a late Run: {data[:300]!r}")
            else:
                call("Exec/Signal", {"id": request["id"], "signal": "KILL"})
    status, head, data = call("System/Info", {}, {"Connect-Timeout-Ms": "60000", "Connect-Protocol-Version": "1"})
    if status != 200:
        fail(f"Info with time enough: {status} {data[:200]!r}")


ROWS = {f"{s}/{n}": (kind, flags) for s, n, kind, flags in openapi.read_methods()}
METHODS = list(ROWS)
status, _, data = ask("GET", "/v1/openapi.json")
assert status == 200, status
doc = openapi.Document(json.loads(data))
GOOD = good_requests()
for part in sys.argv[1:]:
    globals()["part_" + part]()
print(f"# {n_checks} checks, {len(failures)} failures")
sys.exit(1 if failures or not sys.argv[1:] else 0)
