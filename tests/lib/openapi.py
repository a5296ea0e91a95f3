"""Checks an answer against /v1/openapi.json: used by the contract tests as they go, and by check-answers.py for the
answers that the other tests got. An answer may have nothing that the document does not describe."""
import http.client
import json
import os
import re
import socket
import struct

import jsonschema

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# HTTP statuses without a counterpart among the sixteen codes.
OTHER_STATUS = {
    400: "data_loss", 502: "unavailable", 405: "unimplemented", 408: "deadline_exceeded", 412: "aborted", 413: "resource_exhausted",
    410: ("aborted", "data_loss", "invalid_argument", "resource_exhausted", "permission_denied", "not_found"),
    415: ("invalid_argument", "unimplemented"), 416: "out_of_range", 426: "invalid_argument",
    503: "resource_exhausted", 507: "resource_exhausted", 431: ("resource_exhausted", "invalid_argument"),
}


def read_codes():
    text = open(TOP + "/guest/common/errors.def").read()
    return {m[1]: int(m[2]) for m in re.finditer(r'X\(\w+, "(\w+)", (\d+)\)', text)}


def read_methods():
    """[(service, method, kind, flags)] of rpc.def."""
    text = open(TOP + "/guest/common/wire/rpc.def").read()
    return [(m[1], m[2], m[3], m[4]) for m in
            re.finditer(r'^R\("(\w+)", "(\w+)", \w+, (\w+), ([^)]*)\)', text, re.M)]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=120):
        super().__init__("box", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def closed(schema):
    """The same, with every object that names its properties closed against others."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: closed(v) for k, v in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        out["additionalProperties"] = False
    return out


class Document:
    def __init__(self, doc):
        self.doc = doc
        self.components = closed(doc["components"])
        self.codes = read_codes()
        self.validators = {}

    def validator(self, schema):
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            whole = {"components": self.components, **closed(schema)}
            self.validators[key] = jsonschema.Draft202012Validator(whole)
        return self.validators[key]

    def problems(self, schema, value):
        found = jsonschema.exceptions.best_match(self.validator(schema).iter_errors(value))
        if found is None:
            return []
        where = "/".join(str(p) for p in found.absolute_path)
        return [f"at '{where}': {found.message[:300]}"]

    def request_schema(self, method):
        return {"$ref": f"#/components/schemas/{method.replace('/', '.')}.Request"}

    def find_whole(self, path):
        """The described path of a raw request path, without its query."""
        path = path.split("?")[0]
        if path in self.doc["paths"]:
            return path
        for p in self.doc["paths"]:
            if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(p)), path):
                return p
        for p in self.doc["paths"]:
            if p.endswith("{path}") and re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(p[:-6])) + ".*", path):
                return p
        return None

    def find(self, path):
        """Also for a path that only begins as one of the document."""
        found = self.find_whole(path)
        for p in self.doc["paths"] if found is None else ():
            if "{" in p and path.startswith(p[:p.index("{")]):
                return p
        return found

    def check_error(self, status, body):
        out = self.problems({"$ref": "#/components/schemas/Error"}, body)
        if out:
            return out
        want = self.codes.get(body["code"])
        other = OTHER_STATUS.get(status, ())
        if status != want and body["code"] not in (other if isinstance(other, tuple) else (other,)):
            out.append(f"status {status} with code {body['code']}")
        return out

    def check(self, verb, path, status, content_type, body):
        """Problems of one answer, as a list of strings. body: bytes, maybe with more behind a
        document (what curl -w wrote); None: not known."""
        kind = (content_type or "").split(";")[0].strip().lower()
        found = self.find(path)
        if found is None:
            return [] if status in (400, 401, 403, 404) and kind == "application/json" else \
                [f"{verb} {path}: not in the document, and answered with {status}"]
        op = self.doc["paths"][found].get(verb.lower())
        if any("x-passed-to" in o for o in self.doc["paths"][found].values()):
            return []  # the box's agent has answered, by its own document
        if found.startswith("/v1/proxy/") and kind != "application/json":
            return []
        if op is None and status == 404 and self.find_whole(path) is None:
            return []  # no such route
        if op is None:
            return [] if status in (405, 401, 400, 403, 413, 431) else [f"{verb} {path}: not in the document, and answered with {status}"]
        response = op["responses"].get(str(status))
        if response and "$ref" in response:
            name = response["$ref"].rsplit("/", 1)[1]
            response = self.doc["components"]["responses"][name]
        if response is None and status < 400:
            return [f"status {status} is not described"]
        if found.startswith("/v1/proxy/"):
            return []
        is_error = status >= 400 and (response is None or "/Error" in json.dumps(response))
        if response is None:
            response = op["responses"]["default"]
        content = response.get("content")
        if not content or verb == "HEAD":
            return []
        if "*/*" not in content and kind not in content:
            return [f"'{kind}' is no type of it"]
        if body is None:
            return []
        try:
            return self.check_body(content, kind, status, is_error, body)
        except (ValueError, struct.error, KeyError) as why:
            return [f"not {kind}: {why}: {body[:200]!r}"]

    def check_body(self, content, kind, status, is_error, body):
        schema = content.get(kind, {}).get("schema")
        if kind == "application/json":
            value, _ = json.JSONDecoder().raw_decode(body.decode())
            if is_error and isinstance(value, dict) and "code" in value:
                return self.check_error(status, value)
            return self.problems(schema, value)
        out = []
        for value in messages(kind, body):
            out += self.problems(schema, value)
            if "error" in value and set(value) == {"error"}:
                out += self.problems({"$ref": "#/components/schemas/Error"}, value["error"])
            if out:
                break
        return out


def messages(kind, body):
    """The messages of a stream. A last piece that was cut is left out."""
    out = []
    if kind == "application/x-ndjson":
        for line in body.split(b"\n")[:-1]:
            out.append(json.loads(line))
    elif kind == "text/event-stream":
        for event in body.split(b"\n\n")[:-1]:
            lines = [l for l in event.split(b"\n") if not l.startswith(b":")]
            name = [l[7:] for l in lines if l.startswith(b"event: ")]
            data = b"\n".join(l[6:] for l in lines if l.startswith(b"data: "))
            if name and name[0] == b"message":
                out.append(json.loads(data))
            elif name and name[0] == b"error":
                value = json.loads(data)
                out.append(value if "error" in value else {"error": value})
    elif kind == "application/connect+json":
        while len(body) >= 5:
            flags, n = struct.unpack(">BI", body[:5])
            if len(body) < 5 + n:
                break
            out.append(json.loads(body[5:5 + n]))
            body = body[5 + n:]
    return out if len(out) <= 400 else out[:200] + out[-200:]
