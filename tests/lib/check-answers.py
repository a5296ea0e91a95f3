#!/usr/bin/env python3
"""check-answers.py DIR WHOLE: what clients got from the agent in the tests (as tests/lib/wire recorded
it), each answer against the agent's own OpenAPI document. When WHOLE is yes, all tests were run: then each
method, each verb of each route and each query parameter must have been asked and answered with success,
and no query parameter that the document does not have. Prints rows for the results of tests/run."""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

import openapi

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire"))
import exchanges  # noqa: E402

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
            agent.wait(120)


def read_daemon_document():
    with tempfile.TemporaryDirectory() as tmp:
        read, write = os.pipe()
        daemon = subprocess.Popen([BUILD + "/bellhop-daemon", "--state-dir", tmp + "/state", "--cache-dir", tmp, "--socket",
                                   tmp + "/s", "--ready-fd", str(write)], pass_fds=[write], stdin=subprocess.DEVNULL)
        os.close(write)
        try:
            os.read(read, 1)
            c = openapi.UnixConnection(tmp + "/s")
            c.request("GET", "/v1/openapi.json")
            return json.loads(c.getresponse().read())
        finally:
            daemon.terminate()
            daemon.wait(120)


# The agent's own routes: other servers of the tests (models, proxied ones) have others.
OURS = re.compile(r"/(bellhop\.v1\.\w+/|v1/(health|ready|metrics|openapi\.json|files|archive|uploads|proxy|tunnel)\b)")

DAEMON_HOST = "bellhop"  # tests/lib/daemon.bash: the daemon has a document of its own


def is_kept_kind(kind):
    """A stream is read as far as it was recorded; a document must be complete."""
    return kind.startswith(("application/x-ndjson", "text/event-stream", "application/connect+json"))


def query_of(path):
    query = path.partition("?")[2].partition("#")[0]
    return {piece.partition("=")[0] for piece in query.split("&") if piece}


class Seen:
    """The requests that were answered with success."""

    def __init__(self, doc):
        self.doc = doc
        self.asked = collections.Counter()  # (described path, verb)
        self.parameters = collections.defaultdict(set)

    def add(self, x):
        found = self.doc.find(x.path)
        if found is None or x.status >= 400:
            return
        self.asked[found, x.verb.lower()] += 1
        if not found.startswith("/v1/proxy/"):  # its query is for who is behind it
            self.parameters[found, x.verb.lower()] |= query_of(x.path)

    def missing(self):
        for path, verbs in self.doc.doc["paths"].items():
            common = verbs.get("parameters", [])
            for verb, operation in verbs.items():
                if verb == "parameters":
                    continue
                if not self.asked[path, verb]:
                    yield f"{verb.upper()} {path} was never answered with success"
                if verb in ("head", "options"):  # HEAD is GET without its body; OPTIONS does nothing
                    continue
                known = {p["name"] for p in common + operation.get("parameters", []) if p.get("in") == "query"}
                used = self.parameters[path, verb]
                for name in sorted(known - used):
                    yield f"{verb.upper()} {path}: its parameter '{name}' was never used"
                for name in sorted(used - known):
                    yield f"{verb.upper()} {path}: it took a parameter '{name}' that is not in the document"
        for service, method, _, _ in openapi.read_methods():
            if not self.asked[f"/bellhop.v1.{service}/{method}", "post"]:
                yield f"{service}/{method} was never answered with success"


def row(name, problems):
    print("contract", name, "fail" if problems else "ok", sep="\t")
    for p in problems[:SHOWN]:
        print("#", p[:900], file=sys.stderr)
    if len(problems) > SHOWN:
        print(f"# and {len(problems) - SHOWN} more of: {name}", file=sys.stderr)


def main(directory, whole):
    doc = openapi.Document(read_document())
    daemon = openapi.Document(read_daemon_document())
    seen = Seen(doc)
    problems = collections.defaultdict(list)
    n = collections.Counter()
    for x in exchanges.read_all(directory):
        is_daemon = x.asked.get("host") == DAEMON_HOST
        if "bellhop-port" in x.asked:  # a server in a box has answered
            continue
        if not is_daemon and not OURS.match(x.path):
            continue
        file = x.test.split(":")[0]
        kind = x.fields.get("content-type", "")
        found = (daemon if is_daemon else doc).check(x.verb, x.path, x.status, kind, x.body if x.whole or is_kept_kind(kind) else None)
        n[file] += 1
        if not is_daemon:
            seen.add(x)
        if found:
            problems[file].append(f"{x.test}: {x.verb} {x.path} {x.status}: {found[0]}")
    for file in sorted(n):
        row(f"answers in {file} are as /v1/openapi.json has them ({n[file]})", problems[file])
    if whole == "yes":
        row("every method, route and parameter of the document was used, and no other", list(seen.missing()))


main(sys.argv[1], sys.argv[2])
