"""refuse.py URL TOKEN DIR CASE REPEAT: refusals in mid-upload must reach Python's httpx as their status."""
import os
import sys

import httpx

url, token, directory, case, repeat = sys.argv[1:6]
MB = b"x" * 1000000


def body(n):
    if n < 2000000:
        return b"x" * n
    return (MB for _ in range(n // 1000000))


bad = 0
sizes = {"small": 1000, "1MB": 1000000, "100MB": 100000000}
for size in (sizes if case != "disk" else {"100MB": 0}):
    n = sizes[size]
    if case == "size" and size == "1MB":
        continue  # as the small one: all are over the limit
    for declared in (True, False):
        for i in range(int(repeat) if size != "100MB" and case != "size" else int(os.environ["REPEAT_LARGE"])):
            want, path, auth = {
                "head": (401, f"/v1/files/{directory}/f", "Bearer wrong"),
                "size": (413, "/bellhop.v1.System/Info", "Bearer " + token),
                "disk": (507, f"/v1/files/{directory}/tiny/f", "Bearer " + token),
            }[case]
            if case == "size":
                n = max(n, 17000000)
            headers = {"Authorization": auth, "Content-Type": "application/json"}
            if declared:
                headers["Content-Length"] = str(n)
            content = body(n)
            if not declared and isinstance(content, bytes):
                content = iter([content[:500], content[500:]])
            with httpx.Client(timeout=60) as c:
                try:
                    r = c.request("POST" if case == "size" else "PUT", url + path, headers=headers, content=content)
                    got = r.status_code
                    assert r.json()["code"]
                    again = c.get(url + "/v1/health").status_code
                except Exception as why:
                    got, again = repr(why), 0
            if got != want or again != 200:
                bad += 1
                print(f"httpx {case} {size} declared={declared} #{i}: {got}, then {again}")
sys.exit(bad > 0)
