#!/usr/bin/env python3
"""legacy.py: E2B's Python SDK 1.0 to 1.4, unmodified, whose decoder fails on a field that it does not know."""

import asyncio
import os
from urllib.parse import urlparse

from e2b import AsyncSandbox, Sandbox

PORT = urlparse(os.environ["AGENT_URL"]).port  # these versions have no E2B_SANDBOX_URL, only a fixed port


class Box(Sandbox):
    envd_port = PORT


class AsyncBox(AsyncSandbox):
    envd_port = PORT


def same(got, wanted):
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


def shown(entries):
    return sorted((e.name, e.type.value, e.path) for e in entries)


box = Box()
files = box.files
home = "/home/user/legacy"
same(files.make_dir("legacy/d"), True)
same(files.make_dir("legacy/d"), False)
same(files.write("legacy/f", "text").path, home + "/f")
same(files.read("legacy/f"), "text")
same(box.commands.run("ln -s f legacy/link; id -un").stdout, "user\n")
same(shown(files.list("legacy")),
     [("d", "dir", home + "/d"), ("f", "file", home + "/f"), ("link", "file", home + "/link")])
same((files.exists("legacy/link"), files.exists("legacy/none")), (True, False))
same(shown([files.rename("legacy/f", "legacy/d/g")]), [("g", "file", home + "/d/g")])
watch = files.watch_dir("legacy")
files.write("legacy/h", "x")
same([e.name for e in watch.get_new_events()], ["h"] * 3)
watch.stop()
files.remove("legacy/d")
same(files.exists("legacy/d"), False)


async def by_stream():
    other = await AsyncBox.create()
    seen = asyncio.Event()
    handle = await other.files.watch_dir("legacy", on_event=lambda e: seen.set())
    await other.files.write("legacy/i", "x")
    await asyncio.wait_for(seen.wait(), 120)
    await handle.stop()
    assert "i" in [e.name for e in await other.files.list("legacy")]

asyncio.run(by_stream())
