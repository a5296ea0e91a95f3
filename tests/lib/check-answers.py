#!/usr/bin/env python3
"""check-answers.py DIR: what the tests got from the agent (agent_curl in agent.bash keeps it there),
each answer against the agent's own OpenAPI document. Prints rows for the results of tests/run."""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import openapi

BUILD = os.environ.get("BELLHOP_BUILD", openapi.TOP + "/build/release")
SHOWN = 5  # problems of one test file


def read_document():
    with tempfile.TemporaryDirectory() as tmp:
        path = tmp + "/s"
        read, write = os.pipe()
        agent = subprocess.Popen([BUILD + "/bellhopd", "--unix", path, "--auth=open", "--ready-fd", str(write)],
                                 pass_fds=[write], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        try:
            os.read(read, 1)
            c = openapi.UnixConnection(path)
            c.request("GET", "/v1/openapi.json")
            return json.loads(c.getresponse().read())
        finally:
            agent.terminate()
            agent.wait(20)


def read_heads(path):
    """The last head that curl wrote: (status, {name: value}); None when there was none."""
    try:
        text = open(path, encoding="latin1").read()
    except FileNotFoundError:
        return None
    heads = [h for h in re.split(r"\r?\n\r?\n", text) if h.startswith("HTTP/")]
    # An upgrade ends with a 101; a lone 100 says that the answer never came.
    heads = [h for h in heads if not re.match(r"HTTP/\S+ 1(?!01)\d\d", h)]
    if not heads:
        return None
    lines = heads[-1].splitlines()
    fields = dict(l.split(":", 1) for l in lines[1:] if ":" in l)
    return int(lines[0].split()[1]), {k.lower(): v.strip() for k, v in fields.items()}


def read_body(path, fields):
    """Without the head that `curl -i` wrote before it and what -w wrote behind; None: not kept."""
    try:
        body = open(path, "rb").read(4 * 1024 * 1024)
    except FileNotFoundError:
        return None
    while body.startswith(b"HTTP/1."):
        body = body.split(b"\r\n\r\n", 1)[1] if b"\r\n\r\n" in body else b""
    if "content-length" in fields:
        length = int(fields["content-length"])
        return body[:length] if len(body) >= length else None
    return body


def check(doc, record):
    """A problem of one record, or None; and which method it called with success."""
    title, verb, path = open(record).read().split("\n")[:3]
    stem = record[:-len("asked")]
    head = read_heads(stem + "head")
    if head is None:
        return title, None, None  # the agent never answered: the test's own business
    status, fields = head
    if "authorization" in path.lower():
        return title, None, None
    body = read_body(stem + "body", fields)
    called = path[len("/bellhop.v1."):] if status == 200 and path.startswith("/bellhop.v1.") else None
    kind = fields.get("content-type", "")
    if kind.startswith("application/x-ndjson") and body is not None and "transfer-encoding" in fields:
        body = re.sub(rb"\n[^{\n][^\n]*$", b"\n", body)  # of -w
    found = doc.check(verb, path, status, kind, body)
    return title, f"{verb} {path} {status}: {found[0]}" if found else None, called


def main(directory):
    doc = openapi.Document(read_document())
    problems = collections.defaultdict(list)
    n = collections.Counter()
    for record in sorted(glob.glob(directory + "/*.asked")):
        title, problem, _ = check(doc, record)
        file = title.split(":")[0]
        n[file] += 1
        if problem:
            problems[file].append(f"{title}: {problem}")
    for file in sorted(n):
        name = f"answers in {file} are as /v1/openapi.json has them ({n[file]})"
        print("contract", name, "fail" if problems[file] else "ok", sep="\t")
        for p in problems[file][:SHOWN]:
            print("#", p[:900], file=sys.stderr)
        if len(problems[file]) > SHOWN:
            print(f"# and {len(problems[file]) - SHOWN} more in {file}", file=sys.stderr)


main(sys.argv[1])
