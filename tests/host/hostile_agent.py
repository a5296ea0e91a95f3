"""A guest agent that answers as a JSON file says, for the host's client to be tested against:

    hostile_agent.py SCENARIO

Prints its URL and serves until it is killed. The file is read anew for each request:

    stat      the answer of Fs/Stat; {"follow": ...} beside it is that of a Stat that follows links
    entries   of an archive: {"name", "type": "file" (default), "dir", "link", "hard", "fifo",
              "data", "target", "mode"}
    cut       bytes of the archive that are sent
    raw       base64: sent as the archive, instead
    manifest  the entries of Archive/Manifest
    missing   the answer of Archive/Missing
"""
import base64
import http.server
import io
import json
import sys
import tarfile

TYPES = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE,
         "hard": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE}


def make_tar(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for e in entries:
            info = tarfile.TarInfo(e["name"])
            data = e.get("data", "").encode()
            info.type = TYPES[e.get("type", "file")]
            info.size = len(data) if info.type == tarfile.REGTYPE else 0
            info.linkname = e.get("target", "")
            info.mode = e.get("mode", 0o644)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Agent(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            data = b""
            while n := int(self.rfile.readline(), 16):
                data += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def archive(self, scenario):
        data = make_tar(scenario.get("entries", []))
        if "raw" in scenario:
            data = base64.b64decode(scenario["raw"])
        self.answer(data[:scenario.get("cut", len(data))], "application/x-tar")

    def serve(self):
        body = self.read_body()
        with open(sys.argv[1], encoding="utf-8") as f:
            scenario = json.load(f)
        if self.path.startswith("/v1/archive") and self.command in ("GET", "POST"):
            self.archive(scenario)
        elif self.path.endswith("Fs/Stat"):
            follow = json.loads(body).get("follow")
            stat = scenario.get("stat", {"type": "file"})
            self.answer(stat.get("follow", stat) if follow else stat)
        elif self.path.endswith("Archive/Manifest"):
            lines = [{"entry": {"type": "file", "size": 1, "mode": "0644", "mtime": "2020-01-01T00:00:00.000000000Z",
                                **e}} for e in scenario.get("manifest", [])]
            lines.append({"end": {}})
            self.answer("".join(json.dumps(x) + "\n" for x in lines).encode(), "application/x-ndjson")
        elif self.path.endswith("Archive/Missing"):
            self.answer(scenario.get("missing", {}))
        else:  # health, and what a client does before it is asked for anything
            self.answer({"exit": {"code": 0}, "stdout": {"text": "/x\n"}})

    do_GET = do_POST = do_PUT = serve


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
