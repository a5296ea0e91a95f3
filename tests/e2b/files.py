#!/usr/bin/env python3
"""files.py CASE...: cases about files with E2B's own SDK, unmodified; watches by asking and by a stream."""

import asyncio
import io
import os
import sys
import urllib.error
import urllib.request

from e2b import (
    AsyncSandbox, FileNotFoundException, FilesystemEventType as T, FileType, InvalidArgumentException, Sandbox,
)

sandbox = Sandbox.create()
files = sandbox.files


def rejects(kind, call, *args, **more):
    try:
        call(*args, **more)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def case_files():
    info = files.write("py/a ü.txt", "hällo")
    assert (info.name, info.path) == ("a ü.txt", "/home/user/py/a ü.txt"), info
    assert files.read("py/a ü.txt") == "hällo"
    assert files.write("py/bytes", os.urandom(300000)).path == "/home/user/py/bytes"
    assert len(files.read("py/bytes", format="bytes")) == 300000
    assert sum(map(len, files.read("py/bytes", format="stream"))) == 300000
    files.write("py/stream", io.BytesIO(b"x" * 100000))
    assert files.get_info("py/stream").size == 100000
    many = files.write_files([{"path": f"py/{i}/f", "data": str(i)} for i in range(20)])
    assert [f.path for f in many] == [f"/home/user/py/{i}/f" for i in range(20)]
    assert files.write("py/z", "z" * 100000, gzip=True, metadata={"Kind": "zip"}).metadata == {"kind": "zip"}
    assert files.read("py/z", gzip=True) == "z" * 100000
    assert files.get_info("py/z").metadata == {"kind": "zip"}
    assert files.make_dir("py/d") and not files.make_dir("py/d")
    assert [e.type for e in files.list("py") if e.name in ("d", "z")] == [FileType.DIR, FileType.FILE]
    assert len(files.list("py", depth=2)) == len(files.list("py")) + 20
    assert files.rename("py/z", "py/d/y").path == "/home/user/py/d/y"
    assert files.exists("py/d/y") and not files.exists("py/z")
    files.remove("py/d")
    assert not files.exists("py/d/y")
    rejects(FileNotFoundException, files.read, "py/none")
    rejects(FileNotFoundException, files.get_info, "py/none")
    rejects(InvalidArgumentException, files.list, "py/bytes")


# A link is marked as one, with its target. The SDK leaves dangling links out of lists.
def case_links():
    files.write("pl/file", "x")
    sandbox.commands.run("cd pl && mkdir dir && ln -s file to-file && ln -s dir to-dir && ln -s none to-none")
    told = {e.name: (e.type, e.symlink_target) for e in files.list("pl")}
    assert told == {
        "file": (FileType.FILE, None), "dir": (FileType.DIR, None),
        "to-file": (FileType.SYMLINK, "/home/user/pl/file"), "to-dir": (FileType.SYMLINK, "/home/user/pl/dir")}, told
    assert files.get_info("pl/to-none").type == FileType.SYMLINK
    assert files.rename("pl/to-file", "pl/renamed").type == FileType.SYMLINK


def names(events):
    return [(e.type, e.name) for e in events]


# A client that asks at once gets every event that it has caused.
def case_watch():
    files.make_dir("pw")
    handle = files.watch_dir("pw", include_entry=True)
    files.write("pw/f", "x")
    events = handle.get_new_events()
    assert names(events) == [(T.CREATE, "f"), (T.CHMOD, "f"), (T.WRITE, "f")], events
    assert events[0].entry.path == "/home/user/pw/f"
    assert handle.get_new_events() == []
    files.write("pw/f", "y")
    told = names(handle.get_new_events())  # emptied and written: the kernel makes one event of two that nobody has read
    assert told[0] == (T.CHMOD, "f") and set(told[1:]) == {(T.WRITE, "f")} and len(told) <= 3, told
    files.write("pw/g", "", metadata={"a": "b"})
    told = names(handle.get_new_events())  # the owner and the metadata: likewise
    assert told[0] == (T.CREATE, "g") and set(told[1:]) == {(T.CHMOD, "g")} and len(told) <= 3, told
    files.rename("pw/f", "pw/h")
    files.remove("pw/h")
    assert names(handle.get_new_events()) == [(T.RENAME, "f"), (T.CREATE, "h"), (T.REMOVE, "h")]
    handle.stop()
    rejects(Exception, handle.get_new_events)
    tree = files.watch_dir("pw", recursive=True)
    files.make_dir("pw/a/b")
    files.write("pw/a/b/c", "x")
    told = names(tree.get_new_events())
    assert {(T.CREATE, "a"), (T.CREATE, "a/b"), (T.CREATE, "a/b/c"), (T.WRITE, "a/b/c")} <= set(told), told
    tree.stop()
    rejects(FileNotFoundException, files.watch_dir, "pw/none")


async def watch_by_stream():
    other = await AsyncSandbox.create()
    seen, done = [], asyncio.Event()

    def on_event(e):
        seen.append((e.type, e.name))
        if e.type == T.WRITE:
            done.set()
    await other.files.make_dir("as")
    handle = await other.files.watch_dir("as", on_event=on_event)
    await other.files.write("as/f", "x")
    await asyncio.wait_for(done.wait(), 120)
    assert seen == [(T.CREATE, "f"), (T.CHMOD, "f"), (T.WRITE, "f")], seen
    await handle.stop()


def case_stream():
    asyncio.run(watch_by_stream())


def case_signed():
    files.write("signed.txt", "signed")
    url = sandbox.download_url("signed.txt", use_signature_expiration=60)
    assert urllib.request.urlopen(url).read() == b"signed"
    e = rejects(urllib.error.HTTPError, urllib.request.urlopen, url.replace("signed.txt", "other"))
    assert (e.code, e.read()) == (401, b'{"code":401,"message":"invalid signature"}')


for name in sys.argv[1:]:
    globals()[f"case_{name}"]()
# The HTTP client of the SDK has threads of its own, on which Python, as it ends, aborts now and then.
sys.stdout.flush()
os._exit(0)
