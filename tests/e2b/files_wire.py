#!/usr/bin/env python3
"""files_wire.py CASE...: E2B's /files and filesystem.Filesystem on the wire: what its SDKs don't show, and hostile input."""

import base64
import gzip
import hashlib
import http.client
import json
import os
import socket
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from e2b_wire import URL, Stream, connection, request, same, sh, unary  # noqa: E402

FS = "filesystem.Filesystem/"
RAW = {"Content-Type": "application/octet-stream"}
HOME = "/home/user/"


def fs(method, **message):
    return unary(FS + method, message)


def target(path=None, **query):
    if path is not None:
        query["path"] = path
    return "/files?" + urllib.parse.urlencode(query)


def put(path, data, headers=None, **query):
    return request("POST", target(path, **query), data, {**RAW, **(headers or {})})


def get(path, headers=None, **query):
    return request("GET", target(path, **query), None, headers)


def refused(reply, status, message):
    got = json.loads(reply[2])
    same((reply[0], got["code"], got["message"]), (status, status, message))


def parts(*files, boundary="B", end=True):
    body = b""
    for disposition, data in files:
        body += b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % (boundary.encode(), disposition.encode(), data)
    return body + (b"--%s--\r\n" % boundary.encode() if end else b"")


def post_parts(body, path=None, headers=None, boundary="B", **query):
    head = {"Content-Type": f"multipart/form-data; boundary={boundary}", **(headers or {})}
    return request("POST", target(path, **query), body, head)


def descriptors():
    return len(os.listdir(f"/proc/{os.environ['AGENT_PID']}/fd"))


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.02)


# ---- downloads --------------------------------------------------------------------------------------

def case_ranges():
    data = os.urandom(100000)
    put("r.html", data)
    status, h, body = get("r.html")
    same((status, body, h["Accept-Ranges"], h["Vary"].split(",")[0]), (200, data, "bytes", "Accept-Encoding"))
    same((h["Content-Disposition"], h["Content-Type"], h["ETag"]), ("inline; filename=r.html", "text/html; charset=utf-8", None))
    for name, worded in [("a b.txt", 'filename="a b.txt"'), ('q"\\', 'filename="q\\"\\\\"'), ("a=b", 'filename="a=b"'), ("a\tb", 'filename="a\tb"'),
                         ("{a}'*%~", "filename={a}'*%~"), ("a b\u20ac{}'", "filename*=utf-8''a%20b%E2%82%AC{}%27")]:
        same(put(name, b"")[0], 200)
        same(get(name)[1]["Content-Disposition"], "inline; " + worded)
    status, h, body = get("r.html", {"Range": "bytes=10-19"})
    same((status, body, h["Content-Range"]), (206, data[10:20], "bytes 10-19/100000"))
    status, h, body = get("r.html", {"Range": "bytes=-5", "Accept-Encoding": "gzip"})
    same((status, body, h["Content-Encoding"]), (206, data[-5:], None))
    status, h, body = get("r.html", {"Range": "bytes=0-0,5000-5001"})
    assert status == 206 and h["Content-Type"].startswith("multipart/byteranges") and data[5000:5002] in body
    status, h, _ = get("r.html", {"Range": "bytes=100000-"})
    same((status, h["Content-Range"]), (416, "bytes */100000"))
    status, h, body = get("r.html", {"Range": "bytes=0-9,100-109"})
    same((status, h["Content-Range"], body), (206, "bytes 0-109/100000", data[:110]))
    put("empty", b"")
    for wanted in "bytes=0-", "bytes=0-9", "bytes=-5":
        status, h, body = get("empty", {"Range": wanted})
        same((wanted, status, h["Content-Range"], body), (wanted, 200, None, b""))
    date = get("r.html")[1]["Last-Modified"]
    old = "Sun, 06 Nov 1994 08:49:37 GMT"
    for headers, want in [({"If-Modified-Since": date}, 304), ({"If-Modified-Since": old}, 200),
                          ({"If-Modified-Since": "nonsense"}, 200), ({"If-None-Match": "*"}, 304),
                          ({"If-None-Match": '"x"', "If-Modified-Since": date}, 200),
                          ({"If-Unmodified-Since": old}, 412), ({"If-Unmodified-Since": date}, 200),
                          ({"If-Match": '"x"'}, 412), ({"Range": "bytes=0-1", "If-Range": date}, 206),
                          ({"Range": "bytes=0-1", "If-Range": old}, 200), ({"Range": "bytes=0-1", "If-Range": '"x"'}, 200)]:
        status, h, body = get("r.html", headers)
        same((headers, status), (headers, want))
        if status == 304:  # of no other length than the file has
            same((body, h["Content-Length"], h["Transfer-Encoding"], h["Last-Modified"]), (b"", "100000", None, date))
    same(get("/proc/version", {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"})[::2], (304, b""))


def case_coding():
    text = b"all work and no play " * 30000
    put("c.txt", text)
    status, h, body = get("c.txt", {"Accept-Encoding": "gzip"})
    same((status, h["Content-Encoding"], h["Content-Type"]), (200, "gzip", "text/plain; charset=utf-8"))
    assert len(body) < len(text) / 10
    same(gzip.decompress(body), text)
    same(get("c.txt", {"Accept-Encoding": "gzip, deflate, br"})[1]["Content-Encoding"], None)
    same(gzip.decompress(get("/proc/version", {"Accept-Encoding": "gzip"})[2]), open("/proc/version", "rb").read())
    refused(get("c.txt", {"Accept-Encoding": "br, *;q=0"}), 406,
            "error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]")
    refused(get("c.txt", {"Accept-Encoding": "gzip, identity;q=0", "Range": "bytes=0-1"}), 406,
            "identity encoding not acceptable for Range or conditional request")
    packed = gzip.compress(text)
    for headers in [{"Content-Encoding": "gzip"}, {"Content-Encoding": "GZIP"}]:
        same(put("c2.txt", packed, headers)[0], 200)
        same(get("c2.txt")[2], text)
    body = gzip.compress(parts(('name="file"; filename="c3.txt"', text), ('name="file"; filename="c4.txt"', b"")))
    same(post_parts(body, headers={"Content-Encoding": "gzip"})[0], 200)
    same((get("c3.txt")[2], get("c4.txt")[2]), (text, b""))
    refused(put("c5", text, {"Content-Encoding": "br"}), 400,
            "error decompressing request body: unsupported Content-Encoding: br, supported: [gzip]")
    refused(put("c5", packed[:-9], {"Content-Encoding": "gzip"}), 400, "gzip: unexpected EOF")
    refused(put("c5", b"plain", {"Content-Encoding": "gzip"}), 400, "gzip: incorrect header check")
    same(put("c5", packed, {"Content-Encoding": "identity"})[0], 200)


# ---- uploads ----------------------------------------------------------------------------------------

# An empty token is none, as for envd: the signature decides.
def case_signed():
    def sign(operation, path, token):
        return "v1_" + base64.b64encode(hashlib.sha256(f"{path}:{operation}::{token}".encode()).digest()).decode().rstrip("=")
    token, empty = os.environ["AGENT_TOKEN"], {"X-Access-Token": ""}
    same(put("s", b"x", empty, signature=sign("write", "s", token))[0], 200)
    same(get("s", empty, signature=sign("read", "s", token))[0::2], (200, b"x"))
    refused(get("s", empty, signature=sign("read", "s", "guess")), 401, "invalid signature")
    refused(get("s", empty), 401, "missing signature query parameter")
    refused(get("s", {"X-Access-Token": "guess"}, signature=sign("read", "s", token)), 401,
            "access token present in header but does not match")
    same(unary("List", {}, **{"X_Access_Token": ""})[0], 401)


# The exact user agent selects the format of E2B's first clients, as in envd.
def case_legacy():
    old, new = {"User_Agent": "connect-python"}, {"User_Agent": "connect-python/1"}
    os.symlink("f", f"/proc/{os.environ['AGENT_PID']}/root{HOME}l")
    put("f", b"x")
    brief = {"name": "l", "path": HOME + "l", "type": "FILE_TYPE_FILE"}
    for method, message, reply in (
            ("Stat", {"path": "l"}, {"entry": brief}),
            ("Move", {"source": "l", "destination": "l2"}, {"entry": {**brief, "name": "l2", "path": HOME + "l2"}}),
            ("MakeDir", {"path": "d"}, {"entry": {"name": "d", "path": HOME + "d", "type": "FILE_TYPE_DIRECTORY"}})):
        same(unary(FS + method, message, **old), (200, reply))
    entries = unary(FS + "ListDir", {"path": ""}, **old)[1]["entries"]
    same([sorted(e) for e in entries], [["name", "path", "type"]] * 3)
    whole = unary(FS + "Stat", {"path": "l2"}, **new)[1]["entry"]
    same((whole["isSymlink"], whole["symlinkTarget"], whole["mode"]), (True, HOME + "f", 0o644))
    same("isSymlink" in unary(FS + "Stat", {"path": "f"})[1]["entry"], False)
    for headers, told in (old, False), (new, True):
        s = Stream(FS + "WatchDir", {"path": "d", "includeEntry": True}, **headers)
        same(s.next(), {"start": {}})
        put("d/x", b"x")
        same("entry" in s.next()["filesystem"], told)
        s.close()
        fs("Remove", path="d/x")


def case_words():
    refused(request("POST", "/files", b"x", RAW), 400, "path query parameter is required for raw body upload")
    refused(request("POST", target("x"), b"x", {"Content-Type": "text/plain"}), 400,
            "unsupported content type: text/plain, expected multipart/form-data or application/octet-stream")
    refused(request("POST", target("x"), b""), 400,
            "unsupported content type: , expected multipart/form-data or application/octet-stream")
    refused(get("x", username="nobodyhere"), 401, "error looking up user 'nobodyhere': user: unknown user nobodyhere")
    refused(put("x", b"", username="nobodyhere"), 401, "error looking up user 'nobodyhere': user: unknown user nobodyhere")
    refused(get("~root/x"), 400, "error expanding and resolving path '~root/x': failed to expand path '~root/x' for user "
            "'user': cannot expand user-specific home dir")
    refused(get("none"), 404, f"path '{HOME}none' does not exist")
    refused(get("/home"), 400, "path '/home' is a directory")
    refused(get(None), 400, f"path '{HOME.rstrip('/')}' is a directory")
    put("file", b"1")
    refused(put("file/below", b"2"), 500, f"error ensuring directories: path is a file: {HOME}file")
    refused(put("/home", b"2"), 400, "path is a directory: /home")
    refused(put("file", b"2", {"X-Metadata-A": "x" * 4090}), 400, "invalid metadata: total metadata size 4100 exceeds 4096 bytes")
    same(get("file")[2], b"1")
    status, headers, body = put("/home/../home/user/./odd", b"3")
    same(json.loads(body), [{"name": "odd", "path": "/home/../home/user/./odd", "type": "file"}])
    same(get("file", signature_expiration="soon")[0], 400)
    same(request("PUT", target("file"), b"x", RAW)[0], 405)
    same(fs("Stat", path="none"), (404, {"code": "not_found", "message": f"file not found: lstat {HOME}none: no such file or directory"}))
    same(fs("MakeDir", path="file"), (400, {"code": "invalid_argument",
                                            "message": f"path already exists but it is not a directory: {HOME}file"}))
    same(fs("MakeDir", path="/home"), (409, {"code": "already_exists", "message": "directory already exists: /home"}))
    same(fs("ListDir", path="file"), (400, {"code": "invalid_argument", "message": f"path is not a directory: {HOME}file"}))
    same(fs("Remove", path="none"), (200, {}))
    same(fs("Remove", path="/")[0], 500)
    same(fs("ListDir", path="/home/user", depth=0, unknown={"a": 1})[0], 200)
    same(unary(FS + "Stat", {"path": "~"}, Authorization="Basic cm9vdDo=")[1]["entry"]["path"], "/root")
    same(unary(FS + "Stat", {"path": "~"}, Authorization="Basic bm9wZTo="),
         (401, {"code": "unauthenticated", "message": "invalid username: 'nope'"}))
    same(fs("GetWatcherEvents", watcherId="w0"), (404, {"code": "not_found", "message": "watcher with id w0 not found"}))
    same(fs("RemoveWatcher", watcher_id="w0")[0], 404)
    fs("MakeDir", path="d1/d2/d3")
    for depth, n in [(2, 2), ("2", 2), (2.0, 2), ("2e0", 2), ("1.0", 1), (None, 1), ("0", 1)]:
        same((depth, len(fs("ListDir", path="d1", depth=depth)[1]["entries"])), (depth, n))
    same(len(json.loads(request("POST", "/" + FS + "ListDir", '{"path":"d1","depth":2e0}', {"Content-Type": "application/json"})[2])["entries"]), 2)
    for depth in [1.5, "1.5", -1, "-1", "", " 2", "2 ", "two", "0x2", "NaN", 4294967296, "4294967296", 1e300, True, [2]]:
        same((depth, fs("ListDir", path="d1", depth=depth)), (depth, (400, {"code": "invalid_argument",
             "message": "field 'depth' must be a whole number from 0 to 4294967295"})))


def case_parts():
    status, _, body = post_parts(parts(
        ('name="file"; filename="p/one two.txt"', b"1\r\n--Bx\r\n"), ('name="other"', b"passed over"),
        ('name="file"; filename="x"; filename*=utf-8\'\'p/%e2%82%ac', b"2"), ('name=file; filename="p/a%22b"', b"3")))
    same([f["path"] for f in json.loads(body)], [HOME + "p/one two.txt", HOME + "p/€", HOME + "p/a%22b"])
    same((get("p/one two.txt")[2], get("p/€")[2], get("p/a%22b")[2]), (b"1\r\n--Bx\r\n", b"2", b"3"))
    same(json.loads(post_parts(parts(), boundary='"B"')[2]), [])
    same(json.loads(post_parts(parts(('name="file"', b"4")), path="p/named")[2])[0]["path"], HOME + "p/named")
    same(post_parts(parts(('name="file"; filename="p/quoted"', b"5"), boundary="a b"), boundary='"a b"')[0], 200)
    refused(post_parts(parts(('name="file"', b"x"))), 400,
            "error getting multipart custom part file name: filename not found in Content-Disposition header")
    reply = post_parts(parts(('name="file"; filename="p/1"', b"a"), ('name="file"; filename="p/2"', b"b"),
                             ('name="file"; filename="p/3"', b"c"), ('name="file"; filename="/home/user/p/1"', b"d")))
    refused(reply, 400, f"you cannot upload multiple files to the same path '{HOME}p/1' in one upload request, only the first "
            f"specified file was uploaded, also the following files were uploaded: {HOME}p/2, {HOME}p/3")
    same(get("p/1")[2], b"a")
    refused(request("POST", "/files", b"x", {"Content-Type": "multipart/form-data"}), 400,
            "error parsing multipart form: no multipart boundary param in Content-Type")
    cut = "error reading form: multipart: the body ends before its last delimiter"
    put("p/kept", b"as it was")
    for body in [b"", b"no delimiter", parts(('name="file"; filename="p/cut"', b"half"), end=False)]:
        refused(post_parts(body), 400, cut)
    same(get("p/kept")[2], b"as it was")
    refused(post_parts(parts(('name="file"; filename*=utf-8\'\'a%00b', b""))), 400, "a part's file name: a NUL in the request's address")
    refused(post_parts(b"--B\r\nX: " + b"x" * 20000), 400, "a part's headers of more than 16384 bytes")
    # deeper than a path may be long, in no time that grows with its square
    deep = "d/" * 2500
    same(put(deep + "f", b"deep")[0], 200)
    same(get(deep + "f")[2], b"deep")
    same(fs("MakeDir", path=deep + "e")[0], 200)
    # many, and all of them
    many = parts(*((f'name="file"; filename="many/{i}"', b"%d" % i) for i in range(2000)))
    same(len(json.loads(post_parts(many)[2])), 2000)
    same(fs("ListDir", path="many")[1]["entries"][1]["name"], "1")


# A client that disconnects in the middle leaves a part of the file, as with envd, and nothing else.
def case_gone():
    before = descriptors()
    for i in range(60):
        s = socket.create_connection((URL.hostname, URL.port))
        s.sendall(b"POST /files?path=gone%d HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
                  b"Content-Length: 1000000\r\n\r\n" % (i % 5) + b"x" * 200000)
        s.close()
    same(request("GET", "/health")[0], 204)
    until(lambda: descriptors() <= before + 2)
    for i in range(5):
        assert 0 <= len(get(f"gone{i}")[2]) <= 200000
    same(put("gone0", b"whole")[0], 200)
    same(get("gone0")[2], b"whole")


# An invalid or aborted upload destroys no more than it must.
def case_kept():
    packed = gzip.compress(b"new" * 100000)
    coding = {"Content-Encoding": "gzip"}
    put("kept", b"as it was")
    for body, words in [(b"this is no gzip", "gzip: incorrect header check"), (b"", "gzip: unexpected EOF"), (packed[:5], "gzip: unexpected EOF"),
                        (packed[:10], "gzip: unexpected EOF"), (packed[:10] + b"\xff" * 50, "gzip: invalid block type")]:
        for name in ["kept", "not-made"]:
            refused(put(name, body, coding), 400, words)
            refused(request("POST", target(name), iter([body]), {**RAW, **coding}), 400, words)
        same((get("kept")[2], get("not-made")[0]), (b"as it was", 404))
    refused(put("/home", packed, coding), 400, "path is a directory: /home")
    same((put("kept", gzip.compress(b""), coding)[0], get("kept")[::2]), (200, (200, b"")))
    same((put("made", gzip.compress(b""), coding)[0], get("made")[::2]), (200, (200, b"")))

    # The file has the bytes that had arrived, and a longer old file is truncated to them.
    def cut(name, head, body):
        put(name, b"o" * 300000)
        s = socket.create_connection((URL.hostname, URL.port))
        s.sendall(b"POST /files?path=%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (name.encode(), head) + body)
        s.close()
    octets = b"Content-Type: application/octet-stream\r\n"
    disposition = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
    data = os.urandom(50000).replace(b"\r", b"")
    much = data * 200
    for i in range(10):
        cut("cut1", octets + b"Content-Length: 100000\r\n", data)
        cut("cut2", octets + b"Transfer-Encoding: chunked\r\n", b"%x\r\n" % 100000 + data)
        cut("cut3", b"Content-Type: multipart/form-data; boundary=B\r\nContent-Length: 100000\r\n", disposition + data)
        cut("cut4", octets + b"Content-Encoding: gzip\r\nContent-Length: 100000\r\n", gzip.compress(data)[:-8])
        cut("cut5", octets + b"Content-Length: 100000000\r\n", much)
        cut("cut6", octets + b"Content-Length: 100000\r\n", data[:5000])
        cut("cut7", octets + b"Transfer-Encoding: chunked\r\n", b"".join(b"1f4\r\n" + data[i:i + 500] + b"\r\n" for i in range(0, 5000, 500)) + b"1f")
        for name, wanted in [("cut1", data), ("cut2", data), ("cut3", data), ("cut4", data), ("cut5", much), ("cut6", data[:5000]), ("cut7", data[:5000])]:
            until(lambda: get(name)[2] == wanted)


def case_dotdot():
    nowhere = HOME + "no/../made"
    same(fs("MakeDir", path=nowhere), (500, {"code": "internal",
         "message": f"failed to create directory: mkdir {nowhere}: no such file or directory"}))
    same(fs("MakeDir", path=nowhere + "/a/../b")[0], 500)
    refused(put(nowhere + "/f", b""), 500, f"error opening file: open {nowhere}/f: no such file or directory")
    put("source", b"1")
    same(fs("Move", source="source", destination=nowhere + "/f")[1]["code"], "not_found")
    same([fs("Stat", path=p)[0] for p in ["made", "no"]], [404, 404])
    # Relative ones are cleaned first, as there.
    same(fs("MakeDir", path="no/../made")[1]["entry"]["path"], HOME + "made")
    # It leads up from what is there, by links too.
    same(fs("MakeDir", path=HOME + "made/./..//made/../x/")[0], 200)
    same(fs("Stat", path="x")[1]["entry"]["type"], "FILE_TYPE_DIRECTORY")
    fs("MakeDir", path="far/away")
    sh("ln -s far/away near")[0].rest()
    same(fs("MakeDir", path=HOME + "near/../y/z")[1]["entry"]["path"], HOME + "near/../y/z")
    same((fs("Stat", path="far/y/z")[0], fs("Stat", path="y")[0]), (200, 404))
    same(put(HOME + "near/../w/f", b"1")[0], 200)
    same(get("far/w/f")[2], b"1")


# The reason is at the end of a message, however long the path in it is.
def case_long():
    put("x", b"")
    name = "n\u20ac" * 900
    messages = [fs(method, path=name)[1]["message"] for method in ["Stat", "MakeDir", "ListDir", "Remove"]]
    messages += [json.loads(reply[2])["message"] for reply in [get(name), put(name, b"")]]
    for message in messages:
        assert message.endswith("n\u20acn\u20ac: filename too long") or message.endswith("has more than 255 bytes"), message
        assert "/home/user/n\u20acn\u20ac" in message and "\ufffd" not in message, message
    assert sum(" ... " in message for message in messages) >= 4, messages
    deep = HOME + "d/" * 1500
    same(fs("Stat", path=deep)[1]["message"][-40:], "d/d/d/d/d/d/d/: no such file or directory"[-40:])


# HTTP as clients and proxies write it.
def case_http():
    def raw(head, body=b""):
        s = socket.create_connection((URL.hostname, URL.port))
        s.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        r = http.client.HTTPResponse(s)
        r.begin()
        data = r.read()
        s.close()
        return r.status, data
    put("h", b"h")
    host = "Host: localhost\n"
    same(raw(f"POST /files?path=h HTTP/1.1\n{host}Content-Type: application/octet-stream \nContent-Length: 3 \t \n", b"new")[0], 200)
    same(get("h")[2], b"new")
    stat = f"{host}Content-Type: application/json\t\nContent-Length: 12 \nAuthorization: Basic cm9vdDo= \n"
    same(json.loads(raw("POST /filesystem.Filesystem/Stat HTTP/1.1\n" + stat, b'{"path":"~"}')[1])["entry"]["path"], "/root")
    same(raw(f"POST /files?path=h HTTP/1.1\n{host}Content-Type: application/octet-stream\nContent-Length: 3 3\n", b"new")[0], 400)
    for form in ["http://localhost", "HTTP://127.0.0.1:49983", "https://[::1]"]:
        same(raw(f"GET {form}/files?path=h HTTP/1.1\n{host}"), (200, b"new"))
        same(raw(f"POST {form}/filesystem.Filesystem/Stat HTTP/1.1\n" + stat, b'{"path":"~"}')[0], 200)
        same(raw(f"GET {form} HTTP/1.1\n{host}")[0], 200)  # agent-sandbox's "/"; envd: 404
        same(raw(f"GET {form}?path=h HTTP/1.1\n{host}")[0], 200)
    for form in ["http://", "http:///files?path=h", "http://u@localhost/files?path=h"]:
        same(raw(f"GET {form} HTTP/1.1\n{host}")[0], 400)
    same(raw(f"GET ftp://localhost/files?path=h HTTP/1.1\n{host}")[0], 404)
    # A body that a GET has is taken and not looked at; the connection goes on.
    c = connection()
    for path, wanted in [("/files?path=h", 200), ("/health", 204), ("/envs", 200), ("/metrics", 200), ("/files?path=none", 404)]:
        for body in [b"x", b"x" * 1000000, iter([b"x" * 1000, b"y" * 100000])]:
            c.request("GET", path, body, {"Content-Type": "text/plain"}, encode_chunked=True)
            r = c.getresponse()
            same((path, r.status), (path, wanted))
            r.read()
        same(request("GET", path, b"x" * 1100000)[0], 413)


def case_compose():
    def compose(*sources, to="co/all", **more):
        body = json.dumps({"source_paths": sources, "destination": to, **more})
        return request("POST", "/files/compose", body, {"Content-Type": "application/json"})
    data = [os.urandom(n) for n in (300000, 0, 5)]
    for i, d in enumerate(data):
        put(f"co/{i}", d)
    put("new/all", b"old")
    status, _, body = compose("co/0", "~/co/1", HOME + "co/2", to="new/all")
    same((status, json.loads(body)), (200, {"path": HOME + "new/all", "name": "all", "type": "file"}))
    same(get("new/all")[2], b"".join(data))
    same(fs("ListDir", path="co")[1], {})
    same(fs("Stat", path="new/all")[1]["entry"]["owner"], "user")
    same([e["name"] for e in fs("ListDir", path="new")[1]["entries"]], ["all"])
    refused(compose(), 400, "source_paths must not be empty")
    refused(compose("co/0", to=""), 400, "destination is required")
    refused(compose("new/all", to="/home/user/new/all"), 400, 'source path "new/all" cannot be the same as destination')
    for other in ("new//all", "new/./all", "co/../new/all"):
        refused(compose(other, to="new/all"), 400, f'source path "{other}" cannot be the same as destination')
    refused(compose("new/all", "co/none"), 404, "source file not found: co/none")
    refused(compose("co"), 400, "source path is not a regular file: co")
    refused(compose("new/all", username="nobodyhere"), 401, "error looking up user 'nobodyhere': user: unknown user nobodyhere")
    same(request("POST", "/files/compose", b"{", {"Content-Type": "application/json"})[0], 400)
    same(get("new/all")[2], b"".join(data))
    # Through a link to its directory a source is the destination: the result is not removed.
    stream, _ = sh("ln -s new linked")
    stream.rest()
    put("co/more", b"more")
    same(compose("linked/all", "co/more", to="new/all")[0], 200)
    same(get("new/all")[2], b"".join(data) + b"more")
    same(fs("ListDir", path="co")[1], {})


# On a disk of 1 MB.
def case_full():
    at = "/home/small/"
    big = b"x" * 3000000
    refused(put(at + "f", big), 507, "attempted to write 3000000 bytes: not enough disk space available")
    refused(post_parts(parts(('name="file"', big)), path=at + "f")[0:3], 507,
            f"attempted to write {len(parts(('name=' + chr(34) + 'file' + chr(34), big)))} bytes: not enough disk space available")
    refused(put(at + "f", gzip.compress(big), {"Content-Encoding": "gzip"}), 507,
            f"attempted to write {len(gzip.compress(big))} bytes: not enough disk space available")
    fs("Remove", path=at + "f")
    put(at + "keep", b"as it was")
    put("one", big)
    reply = request("POST", "/files/compose", json.dumps({"source_paths": ["one"], "destination": at + "keep"}))
    refused(reply, 507, "not enough disk space available")
    same((get(at + "keep")[2], len(get("one")[2])), (b"as it was", len(big)))
    same([e["name"] for e in fs("ListDir", path=at)[1]["entries"]], ["keep"])


# ---- watches ----------------------------------------------------------------------------------------

def told(s):
    message = s.next()
    ((kind, value),) = message.items()
    return (value["type"].replace("EVENT_TYPE_", ""), value["name"]) if kind == "filesystem" else kind


# The next n events; the kernel merges repeated events only until somebody reads them.
def happened(s, seen, n):
    new = []
    while len(new) < n:
        what = told(s)
        if what != "keepalive" and what not in seen[-1:]:
            seen.append(what)
            new.append(what)
    return new


def case_watch():
    fs("MakeDir", path="w")
    s = Stream(FS + "WatchDir", {"path": "w"}, Keepalive_Ping_Interval="1")
    same(told(s), "start")
    same(told(s), "keepalive")
    seen = []
    put("w/f", b"x" * 100000, {"X-Metadata-A": "b"})
    same(happened(s, seen, 4), [("CREATE", "f"), ("CHMOD", "f"), ("WRITE", "f"), ("CHMOD", "f")])
    fs("Move", source="w/f", destination="w/g")
    same(happened(s, seen, 2), [("RENAME", "f"), ("CREATE", "g")])
    fs("Remove", path="w")
    same(happened(s, seen, 2), [("REMOVE", "g"), ("REMOVE", ".")])
    same(told(s), "keepalive")  # it goes on, as with envd
    s.close()
    for ms in "300", "3000", "30000":  # a busy machine may need more of them to start
        s = Stream(FS + "WatchDir", {"path": "."}, Connect_Timeout_Ms=ms)
        first = s.next()
        if first is not None:
            break
    assert "start" in first, first
    same((s.next(), s.end["error"]), (None, {"code": "deadline_exceeded", "message": "context deadline exceeded"}))
    for path, code in [("none", "not_found"), ("/proc/version", "invalid_argument")]:
        s = Stream(FS + "WatchDir", {"path": path})
        same((s.next(), s.end["error"]["code"]), (None, code))


# A tree that is created, moved and removed faster than events can be reported.
def case_tree():
    def events():
        return [(e["type"].replace("EVENT_TYPE_", ""), e["name"]) for e in fs("GetWatcherEvents", watcherId=w)[1].get("events", [])]
    fs("MakeDir", path="tree")
    w = fs("CreateWatcher", path="tree", recursive=True)[1]["watcherId"]
    assert len(w) == 21 and w[0] == "w" and w.isalnum() and w.islower(), w
    for i in range(30):
        fs("MakeDir", path=f"tree/{i}/a/b")
        put(f"tree/{i}/a/b/f", b"x")
    got = events()
    for i in range(30):
        for what in [("CREATE", f"{i}"), ("CREATE", f"{i}/a"), ("CREATE", f"{i}/a/b"), ("CREATE", f"{i}/a/b/f"), ("WRITE", f"{i}/a/b/f")]:
            assert what in got, what
        same(got.count(("CREATE", f"{i}/a/b/f")), 1)
    fs("Move", source="tree/0/a", destination="tree/1/moved")
    put("tree/1/moved/b/new", b"x")
    same(events(), [("RENAME", "0/a"), ("CREATE", "1/moved"), ("CREATE", "1/moved/b/new"), ("CHMOD", "1/moved/b/new"),
                    ("WRITE", "1/moved/b/new")])
    fs("Move", source="tree/2", destination="outside")
    put("outside/a/b/f", b"y")
    same(events(), [("RENAME", "2")])
    fs("Move", source="outside", destination="tree/back")
    put("tree/back/a/b/f", b"z")
    got = events()
    assert got[0] == ("CREATE", "back") and ("WRITE", "back/a/b/f") in got, got
    fs("Remove", path="tree/1")
    assert ("REMOVE", "1/moved/b/new") in events()
    same(fs("RemoveWatcher", watcherId=w), (200, {}))
    same(fs("RemoveWatcher", watcherId=w)[0], 404)


# Events that nobody fetches are bounded, and so is the number of watchers.
def case_bounds():
    fs("MakeDir", path="b")
    w = fs("CreateWatcher", path="b")[1]["watcherId"]
    name = "n" * 200
    c = connection()
    for i in range(100):  # twice 200 events of about 250 bytes: 10 MB
        c.request("POST", "/files", parts(*((f'name="file"; filename="b/{name}{j}"', b"") for j in range(300))),
                  {"Content-Type": "multipart/form-data; boundary=B"})
        same(c.getresponse().read()[:1], b"[")
    status, reply = fs("GetWatcherEvents", watcherId=w)
    same((status, reply), (500, {"code": "internal", "message": "watcher error: fsnotify: queue or buffer overflow"}))
    same(fs("GetWatcherEvents", watcherId=w)[0], 500)
    fs("RemoveWatcher", watcherId=w)
    before = descriptors()
    ids = []
    while True:
        status, reply = fs("CreateWatcher", path="b")
        if status != 200:
            break
        ids.append(reply["watcherId"])
    same((len(ids), reply["code"]), (256, "resource_exhausted"))
    for w in ids:
        same(fs("RemoveWatcher", watcherId=w)[0], 200)
    until(lambda: descriptors() <= before)


# The listing of a directory is bounded in bytes, too: each of these links takes 4 KB of it.
def case_list_bounds():
    box = f"/proc/{os.environ['AGENT_PID']}/root/home/user/"
    deep = HOME + "deep/" + "/".join(["d" * 250] * 15)
    fs("MakeDir", path=deep)
    fs("MakeDir", path="links")
    for i in range(18000):
        os.symlink(deep, f"{box}links/{i}")
    same(fs("ListDir", path="links"), (429, {"code": "resource_exhausted",
         "message": "the entries of /home/user/links have more than 67108864 bytes: ask for less depth"}))
    for i in range(2000):
        os.unlink(f"{box}links/{i}")
    status, reply = fs("ListDir", path="links")
    same((status, len(reply["entries"])), (200, 16000))


# The reply of an upload is bounded: with 4,000 bytes of metadata each, at about 4,200 files.
def case_reply_bounds():
    headers = {f"X-Metadata-K{i}": "v" * 188 for i in range(20)}
    body = parts(*((f'name="file"; filename="noted/{i}"', b"") for i in range(5000)))
    status, _, reply = post_parts(body, headers=headers)
    message = "the paths and metadata of one upload have more than 16777216 bytes"
    same((status, json.loads(reply)["message"]), (400, message))
    same(post_parts(parts(*((f'name="file"; filename="noted/{i}"', b"") for i in range(4000))), headers=headers)[0], 200)


# More at once than the kernel has instances for, on few directories and on many, E2B's and the native.
def case_many():
    before = descriptors()
    dirs = [f"many/{i}" for i in range(50)]
    for d in dirs:
        fs("MakeDir", path=d)
    streams = [(d, Stream(FS + "WatchDir", {"path": d})) for d in dirs * 5 + dirs[:1] * 50]
    polled = [(d, fs("CreateWatcher", path=d)[1]["watcherId"]) for d in dirs]
    native = []
    for d in dirs:
        c = connection()
        c.request("POST", "/bellhop.v1.Fs/Watch", json.dumps({"path": "/home/user/" + d}), {"Content-Type": "application/json"})
        native.append((d, c, c.getresponse()))
    for _, _, r in native:
        assert b'"started"' in r.readline()
    for _, s in streams:
        same(told(s), "start")
    for d in dirs:
        put(d + "/f", b"x")
    wanted = ["CREATE", "CHMOD", "WRITE"]
    for _, s in streams:
        same([told(s) for _ in wanted], [(what, "f") for what in wanted])
    for _, w in polled:
        events = fs("GetWatcherEvents", watcherId=w)[1]["events"]
        same([e["type"] for e in events], ["EVENT_TYPE_" + what for what in wanted])
        same(fs("RemoveWatcher", watcherId=w), (200, {}))
    for d, c, r in native:
        same(json.loads(r.readline())["event"], {"type": "created", "path": f"/home/user/{d}/f", "directory": False})
        r.close()
        c.close()
    for _, s in streams:
        s.close()
    until(lambda: descriptors() <= before)


# Clients that watch and vanish leave nothing.
def case_vanish():
    before, threads = descriptors(), len(os.listdir(f"/proc/{os.environ['AGENT_PID']}/task"))
    for _ in range(4):
        streams = [Stream(FS + "WatchDir", {"path": ".", "recursive": True}) for _ in range(50)]
        for s in streams:
            same(told(s), "start")
        for s in streams:
            s.connection.sock.close() if s.connection.sock else None
            s.close()
        until(lambda: descriptors() <= before + 2)
    until(lambda: len(os.listdir(f"/proc/{os.environ['AGENT_PID']}/task")) <= threads + 16)
    w = fs("CreateWatcher", path=".")[1]["watcherId"]
    same(fs("RemoveWatcher", watcherId=w)[0], 200)


# ---- --root and --read-only -------------------------------------------------------------------------

# The agent's root is /home/user/root; beside it is a secret.
def case_root():
    out = "/home/user/secret"
    os.environ["LC_ALL"] = "C.UTF-8"
    for path in [out, "/home/user/root/../secret", "/home/user/root/link", "/home/user/root/dirlink/secret", "~/../secret",
                 "../user/secret", "/etc/passwd", "/proc/self/environ"]:
        status, _, body = get(path)
        assert status in (403, 404) and b"hidden" not in body, (path, status, body)
        assert put(path, b"overwritten")[0] in (403, 500), path
        assert post_parts(parts((f'name="file"; filename="{path}"', b"overwritten")))[0] in (403, 500), path
        for method in ("Stat", "ListDir", "MakeDir", "Remove", "WatchDir", "CreateWatcher"):
            if method == "WatchDir":
                s = Stream(FS + method, {"path": path})
                assert s.next() is None and "error" in s.end, (method, path)
            elif path.endswith("link") and method in ("Stat", "Remove"):
                continue  # the link itself is inside
            else:
                status, reply = fs(method, path=path)
                assert status != 200 or method == "Remove" and path != out, (method, path, reply)
        assert fs("Move", source=path, destination="/home/user/root/stolen")[0] != 200 or path.endswith("link"), path
        assert request("POST", "/files/compose", json.dumps({"source_paths": [path], "destination": "/home/user/root/x"}))[0] != 200
    inside = "/home/user/root/in"
    same(put(inside, b"fine")[0], 200)
    same(get(inside)[2], b"fine")
    assert fs("Move", source=inside, destination=out)[0] != 200
    assert request("POST", "/files/compose", json.dumps({"source_paths": [inside], "destination": out}))[0] != 200
    entry = fs("Stat", path="/home/user/root/link2")[1]["entry"]
    same((entry["symlinkTarget"], entry.get("type")), ("/home/user/root/link2", None))


def case_readonly():
    same(get("/etc/passwd")[0], 200)
    same(put("x", b"x")[0], 403)
    same(request("POST", "/files/compose", b"{}")[0], 403)
    for method in ("MakeDir", "Move", "Remove"):
        same(fs(method)[0], 403)
    same(fs("ListDir", path="/")[0], 200)


for name in sys.argv[1:]:
    globals()[f"case_{name}"]()
