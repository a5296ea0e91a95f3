"""Many writers on a few files by every conditional way there is; nothing may be lost.

usage: files_race.py PORT TOKEN DIR

1. Adders read a number and write it back one larger under If-Match: by PUT, by Edit, and by PUT through
   a second name (a hard link) of the file. The number must be the number of additions.
2. Takers take a token away and put it back by Move and by DELETE with a tag: each token is always with
   one taker. Appenders PATCH lines to one file: each line must be there once.
"""

import http.client
import json
import os
import sys
import threading

port, token, base = int(sys.argv[1]), sys.argv[2], sys.argv[3]
failures = []


class Agent:
    def __init__(self):
        self.c = http.client.HTTPConnection("127.0.0.1", port, timeout=180)

    def call(self, method, target, body=None, **headers):
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        self.c.request(method, target, body, {"Authorization": f"Bearer {token}", **headers})
        r = self.c.getresponse()
        return r.status, r.headers, r.read()

    def rpc(self, method, **params):
        status, _, body = self.call("POST", f"/bellhop.v1.Fs/{method}", json.dumps(params), Content_Type="application/json")
        return status, json.loads(body)


def run(*workers):
    def guarded(fn, args):
        try:
            fn(Agent(), *args)
        except Exception as e:  # a worker that fails fails the whole
            failures.append(repr(e))

    threads = [threading.Thread(target=guarded, args=(fn, args)) for fn, *args in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def add_by_put(a, path, times):
    while times:
        _, h, body = a.call("GET", f"/v1/files/{path}")
        status, _, _ = a.call("PUT", f"/v1/files/{path}", str(int(body) + 1), If_Match=h["ETag"])
        assert status in (200, 412), status
        times -= status == 200


def add_by_edit(a, path, times):
    while times:
        _, h, body = a.call("GET", f"/v1/files/{path}")
        edits = [{"old": {"text": body.decode()}, "new": {"text": str(int(body) + 1)}}]
        status, reply = a.rpc("Edit", path=path, edits=edits, if_match=h["ETag"])
        assert status == 200 or reply["code"] in ("aborted", "not_found", "failed_precondition"), reply
        times -= status == 200


def add_by_delete(a, path, times):
    """Removes the file and creates it again: no other client may do so with the same tag."""
    while times:
        status, h, body = a.call("GET", f"/v1/files/{path}")
        if status == 404:
            continue
        status, _, _ = a.call("DELETE", f"/v1/files/{path}", If_Match=h["ETag"])
        assert status in (204, 412, 404), status
        if status != 204:
            continue
        status, _, _ = a.call("PUT", f"/v1/files/{path}", str(int(body) + 1), If_None_Match="*")
        assert status == 201, status
        times -= 1


def add_by_move(a, path, times, mine):
    """Moves the file to a name of its own."""
    while times:
        status, h, body = a.call("GET", f"/v1/files/{path}")
        if status == 404:
            continue
        status, reply = a.rpc("Move", **{"from": path, "to": mine, "if_match": h["ETag"]})
        assert status == 200 or reply["code"] in ("aborted", "not_found"), reply
        if status != 200:
            continue
        assert a.call("PUT", f"/v1/files/{mine}", str(int(body) + 1))[0] == 200
        status, reply = a.rpc("Move", **{"from": mine, "to": path, "to_if_none_match": "*"})
        assert status == 200, reply
        times -= 1


def append(a, path, name, times):
    for i in range(times):
        status, _, body = a.call("PATCH", f"/v1/files/{path}?append=true", f"{name} {i}\n")
        assert status in (200, 201), body


def number(path):
    with open(path, encoding="ascii") as f:
        return int(f.read())


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


path = f"{base}/n"
write(path, "0")
run(*[(add_by_put, path, 40)] * 4, *[(add_by_edit, path, 40)] * 4)
assert number(path) == 320, number(path)

path = f"{base}/links"
write(path, "0")
os.link(path, path + "2")
run((add_by_put, path, 30), (add_by_put, path + "2", 30), (add_by_edit, path, 30), (add_by_edit, path + "2", 30))
assert number(path) == number(path + "2") == 120, number(path)

path = f"{base}/away"
write(path, "0")
run(*[(add_by_delete, path, 20)] * 3, *[(add_by_move, path, 20, f"{base}/mine{i}") for i in range(3)])
assert number(path) == 120, number(path)

path = f"{base}/log"
run(*[(append, path, f"w{i}", 30) for i in range(6)])
with open(path, encoding="ascii") as f:
    lines = f.read().splitlines()
assert sorted(lines) == sorted(f"w{i} {j}" for i in range(6) for j in range(30)), len(lines)
print("no update was lost")
