"""Each route of the agent with each way to send the token: URL and token in AGENT_URL and AGENT_TOKEN. The routes come from
/v1/openapi.json and from the tables of guest/dialect."""
import glob
import http.client
import json
import os
import re
import socket
import sys
from urllib.parse import urlsplit

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HOST, TOKEN = urlsplit(os.environ["AGENT_URL"]).netloc, os.environ["AGENT_TOKEN"]
OPEN = {"/v1/health", "/health", "/"}
RIGHT, OTHER = {"X-Access-Token": TOKEN}, {"X-Access-Token": "another-token"}
BEARER, OTHER_BEARER = {"Authorization": "Bearer " + TOKEN}, {"Authorization": "Bearer another-token"}
BASIC = {"Authorization": "Basic eDp5"}


def status(verb, path, headers):
    c = http.client.HTTPConnection(HOST, timeout=60)
    try:
        c.request(verb, path, headers=headers)
        return c.getresponse().status
    finally:
        c.close()


def routes():
    c = http.client.HTTPConnection(HOST, timeout=60)
    c.request("GET", "/v1/openapi.json", headers=RIGHT)
    for path, item in json.loads(c.getresponse().read())["paths"].items():
        for verb in set(item) - {"parameters"}:
            yield verb.upper(), re.sub(r"\{[^}]*\}", "1", path)
    for name in glob.glob(TOP + "/guest/dialect/*/*.c"):
        for path, verbs in re.findall(r'\.path = "(/[^"]*)",\s*\.verbs = ([^,]*),', open(name).read()):
            for verb in re.findall(r"VERB_([A-Z]+)", verbs):
                yield "POST" if verb == "ANY" else verb, path
    for name in glob.glob(TOP + "/guest/dialect/*/methods.def"):
        for service, method in re.findall(r'^R\("?([\w.]*)"?, "?(\w+)"?,', open(name).read(), re.M):
            yield "POST", f"/{service}/{method}"


def main():
    bad, n = [], 0
    for verb, path in sorted(set(routes()) - {("POST", "/init")}):  # its token is in the body
        relays, is_open = path.startswith("/v1/proxy/"), path in OPEN
        rows = [({}, False), (OTHER, False), (OTHER_BEARER, False), (RIGHT, True), (BEARER, True), ({**BEARER, **RIGHT}, True),
                ({**BASIC, **RIGHT}, True), ({**BEARER, **OTHER}, relays), ({**OTHER_BEARER, **RIGHT}, relays)]
        for headers, good in rows:
            n += 1
            got = status(verb, path, headers)
            if got == 404 and not good or (got == 401) == good and not is_open:
                bad.append(f"{verb} {path} with {headers}: {got}")
            if is_open and got == 401:
                bad.append(f"{verb} {path} with {headers}: {got}")
    for path, protocol in (("/v1/tunnel/" + sys.argv[1], "tcp"), (f"/v1/proxy/{sys.argv[1]}/", "websocket")):
        for headers, good in ((OTHER, False), (RIGHT, True)):
            n += 1
            with socket.create_connection(tuple(HOST.rsplit(":", 1)), 60) as s:
                lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{lines}\r\n".encode())
                got = int(s.recv(4096).split()[1])
            if got != (101 if good else 401):
                bad.append(f"{protocol} to {path} with {headers}: {got}")
    print("\n".join(bad) or f"{n} requests")
    return bool(bad) or n < 400


sys.exit(main())
