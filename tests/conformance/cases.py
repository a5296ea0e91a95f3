"""The cases: what a client of any such server relies on. Each takes the server and an empty
directory of its own; an assertion that fails, a `Refused` or a deadline is a no, a `Lacks` is a
"has no such thing". A docstring says what the name does not."""

import contextlib
import io
import os
import stat
import tarfile
import threading
import time

from servers import Lacks, Refused, unpacked

ALL = []
EVERY_BYTE = bytes(range(256)) * 64


def case(area):
    def register(function):
        ALL.append((area, function.__name__.replace("_", " "), function))
        return function
    return register


@contextlib.contextmanager
def refused_as(*kinds):
    try:
        yield
    except Refused as e:
        assert e.kind in kinds, f"refused as {e}"
    else:
        raise AssertionError("not refused")


def eventually(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def alive(marker):
    """Is there a process with this argument?"""
    wanted = os.fsencode(marker)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if wanted in f.read().split(b"\0"):
                    return int(pid)
    return None


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


# ---- exec ---------------------------------------------------------------------------------------

@case("exec")
def output_code_and_both_streams_come_back(server, _):
    r = server.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (r.code, r.stdout, r.stderr) == (3, b"out\n", b"err\n"), vars(r)


@case("exec")
def binary_output_is_exact(server, directory):
    put(directory + "/bytes", EVERY_BYTE)
    assert server.run(["cat", directory + "/bytes"]).stdout == EVERY_BYTE, "not the same bytes"


@case("exec")
def a_character_is_never_cut_in_two(server, _):
    wanted = "é€𝄞".encode() * 30000
    r = server.run(["sh", "-c", "i=0; while [ $i -lt 30000 ]; do printf 'é€𝄞'; i=$((i+1)); done"])
    assert r.stdout == wanted, len(r.stdout)


@case("exec")
def arguments_arrive_as_they_are(server, _):
    odd = ["a b", "", "'", '"', "$HOME", "`id`", "*", "line\nbreak", "\\", "-n", "é", "x" * 100000]
    r = server.run(["printf", "%s\\0"] + odd)
    assert r.stdout.split(b"\0")[:-1] == [a.encode() for a in odd]


@case("exec")
def an_argument_too_long_for_the_kernel_is_named(server, _):
    with refused_as("invalid_argument"):
        server.run(["true", "a", "x" * 131072])


@case("exec")
def a_script_of_2_MB_runs(server, _):
    r = server.run(shell="echo begin\n" + ": " + "x" * 97 + "\n" * 3 + (": " + "y" * 97 + "\n") * 20000 + "echo end\n")
    assert r.stdout == b"begin\nend\n"


@case("exec")
def a_missing_program_is_not_found(server, _):
    with refused_as("not_found"):
        server.run(["no-such-program-anywhere"])


@case("exec")
def a_missing_directory_is_not_found(server, directory):
    with refused_as("not_found"):
        server.run(["true"], cwd=directory + "/missing")


@case("exec")
def the_working_directory_is_the_one_asked_for(server, directory):
    assert server.run(["pwd"], cwd=directory).stdout == os.fsencode(directory) + b"\n"


@case("exec")
def the_environment_is_what_was_asked_for(server, _):
    r = server.run(["env", "-0"], env={"A": "b c", "EMPTY": ""})
    env = dict(e.split(b"=", 1) for e in r.stdout.split(b"\0")[:-1])
    assert env[b"A"] == b"b c" and env[b"EMPTY"] == b"", env
    assert set(env) <= {b"A", b"EMPTY", b"PATH", b"HOME", b"USER", b"LOGNAME"}, sorted(env)


@case("exec")
def no_descriptor_of_the_server_leaks(server, _):
    r = server.run(["sh", "-c", "ls /proc/$$/fd"])
    assert set(r.stdout.split()) <= {b"0", b"1", b"2"}, r.stdout


@case("exec")
def stdin_is_empty_unless_given(server, _):
    assert server.run(["cat"]).stdout == b""


@case("exec")
def stdin_of_1_MB_is_exact(server, _):
    data = EVERY_BYTE * 16
    assert server.run(["sh", "-c", "cat | cksum"], stdin=data).stdout.split()[1] == str(len(data)).encode()
    assert server.run(["cat"], stdin=EVERY_BYTE).stdout == EVERY_BYTE


@case("exec")
def stdin_can_be_written_in_pieces_and_closed(server, _):
    server.start(["sh", "-c", "cat; echo closed"], "pieces", stdin=True)
    server.write("pieces", b"one ")
    eventually(lambda: server.output("pieces") == b"one ")
    server.write("pieces", b"two ")
    server.close_stdin("pieces")
    assert server.wait("pieces").code == 0
    assert server.output("pieces") == b"one two closed\n"


@case("exec")
def a_death_by_signal_is_told_from_an_exit(server, _):
    r = server.run(["sh", "-c", "kill -SEGV $$"])
    assert (r.reason, r.signal) == ("signaled", "SIGSEGV"), vars(r)
    assert server.run(["sh", "-c", "exit 139"]).reason == "exited"


@case("exec")
def a_timeout_says_so_and_keeps_the_output(server, _):
    begin = time.monotonic()
    r = server.run(["sh", "-c", "echo before; sleep 77001"], timeout_ms=500)
    assert r.reason == "timeout" and r.stdout == b"before\n", vars(r)
    assert time.monotonic() - begin < 5


@case("exec")
def a_timeout_takes_the_whole_tree(server, _):
    begin = time.monotonic()
    server.run(["sh", "-c", "sleep 77002 & sleep 77003"], timeout_ms=500)
    assert time.monotonic() - begin < 5
    eventually(lambda: not alive("77002") and not alive("77003"), 3)


@case("exec")
def a_timeout_takes_what_left_the_session(server, _):
    server.run(["sh", "-c", "setsid sh -c 'setsid sleep 77004 & sleep 77004' & sleep 77005"], timeout_ms=500)
    eventually(lambda: not alive("77004") and not alive("77005"), 3)


@case("exec")
def the_call_returns_when_the_command_ends(server, _):
    """A child in the background that holds the pipe does not hold the call."""
    begin = time.monotonic()
    r = server.run(["sh", "-c", "sleep 20 & echo done"])
    assert r.stdout == b"done\n" and time.monotonic() - begin < 5, time.monotonic() - begin


@case("exec")
def what_goes_on_in_the_background_is_left_alone(server, directory):
    script = f"(sleep 1; echo still; echo here >{directory}/late) & echo done"
    assert server.run(["sh", "-c", script]).code == 0
    eventually(lambda: os.path.exists(directory + "/late"), 8)


@case("exec")
def output_without_bound_is_counted(server, _):
    """Head and tail are kept, and the dropped bytes are counted."""
    r = server.run(["sh", "-c", "echo first; head -c 3000000 /dev/zero; echo last"])
    stream = r.extra.get("stdout")
    assert isinstance(stream, dict) or len(r.stdout) == 3000011 or r.extra.get("stdoutTruncated"), \
        f"{len(r.stdout)} of 3000011 bytes, and no word of it"
    assert isinstance(stream, dict) or len(r.stdout) == 3000011, "how much was dropped is not said"
    if isinstance(stream, dict):
        assert stream["bytes"] == 3000011 and r.stdout.startswith(b"first\n")
        tail = unpacked(stream["tail"])
        assert tail.endswith(b"last\n")
        assert len(r.stdout) + len(tail) + stream["dropped_bytes"] == 3000011


@case("exec")
def what_a_command_used_is_told(server, _):
    r = server.run(["sh", "-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"])
    if "usage" not in r.extra:
        raise Lacks("usage")
    usage = r.extra["usage"]
    assert usage["user_ms"] + usage["system_ms"] > 0 and usage["max_rss_bytes"] > 100000, usage


@case("exec")
def output_is_there_after_the_client_left(server, _):
    server.start(["sh", "-c", "echo one; sleep 0.3; echo two"], "left")
    assert server.wait("left").code == 0
    assert server.output("left") == b"one\ntwo\n"
    assert server.output("left") == b"one\ntwo\n", "reading it took it away"


@case("exec")
def the_same_id_twice_is_one_command(server, directory):
    for _ in range(2):
        try:
            server.start(["sh", "-c", f"echo x >>{directory}/ran"], "same")
        except Refused as e:
            assert e.kind != "internal" and "exists" in str(e), e
    server.wait("same")
    assert get(directory + "/ran") == b"x\n", "ran twice"


@case("exec")
def a_signal_reaches_the_command(server, _):
    server.start(["sh", "-c", "trap 'echo got; exit 5' INT; echo ready; while :; do sleep 0.05; done"], "signaled")
    eventually(lambda: server.output("signaled") == b"ready\n")
    server.signal("signaled", "SIGINT")
    assert server.wait("signaled").code == 5
    assert server.output("signaled") == b"ready\ngot\n"


@case("exec")
def a_kill_takes_the_whole_tree(server, _):
    server.start(["sh", "-c", "sleep 77006 & sleep 77006"], "killed")
    eventually(lambda: alive("77006"))
    server.kill("killed")
    eventually(lambda: not alive("77006"), 5)


@case("exec")
def what_runs_is_listed(server, _):
    server.start(["sleep", "77007"], "listed")
    assert "listed" in server.running()
    server.kill("listed")
    eventually(lambda: "listed" not in server.running())


@case("exec")
def a_terminal_is_a_terminal(server, _):
    server.start(["sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo tty"], "tty", pty=True)
    assert server.wait("tty").code == 0
    assert server.output("tty") == b"tty\r\n", server.output("tty")


@case("exec")
def a_terminal_can_be_resized(server, _):
    server.start(["sh", "-c", "read x; stty size"], "size", pty=True)
    server.resize("size", 132, 43)
    server.write("size", b"\n")
    server.wait("size")
    assert b"43 132" in server.output("size")


@case("exec")
def a_hundred_commands_run_at_once(server, directory):
    failed = []

    def one(i):
        try:
            script = f"touch {directory}/{i}; while [ ! -e {directory}/go ]; do sleep 0.1; done; echo {i}"
            if server.run(["sh", "-c", script]).stdout != b"%d\n" % i:
                failed.append(i)
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(100)]
    try:
        for t in threads:
            t.start()
        eventually(lambda: len(os.listdir(directory)) == 100 or failed, 20)
    finally:
        put(directory + "/go", b"")
        for t in threads:
            t.join()
    assert not failed, f"{len(failed)} failed, the first with {failed[0]}"


@case("exec")
def a_command_runs_as_another_user(server, _):
    if os.getuid() != 0:
        raise Lacks("(this run is not root's)")
    r = server.run(["sh", "-c", "id -u; id -G"], user="nobody")
    assert r.stdout == b"65534\n65534\n", r.stdout


# ---- files --------------------------------------------------------------------------------------

@case("files")
def every_byte_goes_in_and_comes_out(server, directory):
    for name, data in (("bytes", EVERY_BYTE), ("empty", b"")):
        server.write_file(f"{directory}/{name}", data)
        assert get(f"{directory}/{name}") == data, name
        assert server.read_file(f"{directory}/{name}") == data


@case("files")
def a_file_of_20_MB_is_taken(server, directory):
    data = EVERY_BYTE * 1280
    server.write_file(directory + "/large", data)
    assert get(directory + "/large") == data
    assert server.read_file(directory + "/large") == data


@case("files")
def a_part_of_a_file_can_be_read(server, directory):
    put(directory + "/f", EVERY_BYTE)
    assert server.read_file(directory + "/f", 100, 199) == EVERY_BYTE[100:200]


@case("files")
def odd_names_are_names(server, directory):
    for name in ("a b", "100%", "%41", "#", "?", "a&b=c", "+", "line\nbreak", "é", "-rf", "x" * 255):
        server.write_file(f"{directory}/{name}", name.encode())
        assert get(f"{directory}/{name}") == name.encode()
        assert server.read_file(f"{directory}/{name}") == name.encode()
    assert len(server.names(directory)) == 11


@case("files")
def names_that_are_not_UTF_8_are_names(server, directory):
    path = os.fsdecode(os.fsencode(directory) + b"/caf\xe9")
    put(path, b"latin")
    assert b"caf\xe9" in server.names(directory)
    assert server.read_file(path) == b"latin"
    server.write_file(path, b"changed")
    assert get(path) == b"changed"


@case("files")
def types_and_sizes_are_told(server, directory):
    put(directory + "/file", b"12345")
    os.mkdir(directory + "/dir")
    os.symlink("missing", directory + "/link")
    assert (server.stat(directory + "/file")["type"], server.stat(directory + "/file")["size"]) == ("file", 5)
    assert server.stat(directory + "/dir")["type"] == "directory"
    assert server.stat(directory + "/link")["type"] == "symlink"
    kinds = server.names(directory)
    assert (kinds[b"file"], kinds[b"dir"], kinds[b"link"]) == ("file", "directory", "symlink"), kinds


@case("files")
def what_is_not_there_is_not_found(server, directory):
    for call in (server.read_file, server.stat, server.names, server.remove):
        with refused_as("not_found"):
            call(directory + "/missing")


@case("files")
def directories_are_made_with_their_parents(server, directory):
    server.make_dir(directory + "/a/b/c")
    assert os.path.isdir(directory + "/a/b/c")


@case("files")
def a_tree_moves(server, directory):
    os.makedirs(directory + "/old/sub")
    put(directory + "/old/sub/f", b"x")
    server.move(directory + "/old", directory + "/new")
    assert get(directory + "/new/sub/f") == b"x" and not os.path.exists(directory + "/old")


@case("files")
def a_tree_is_copied_with_modes_and_links(server, directory):
    os.makedirs(directory + "/old/sub")
    put(directory + "/old/sub/f", b"x")
    os.chmod(directory + "/old/sub/f", 0o741)
    os.symlink("f", directory + "/old/sub/link")
    server.copy(directory + "/old", directory + "/new")
    assert get(directory + "/new/sub/f") == b"x"
    assert stat.S_IMODE(os.stat(directory + "/new/sub/f").st_mode) == 0o741
    assert os.readlink(directory + "/new/sub/link") == "f"


@case("files")
def a_full_directory_goes_only_when_asked(server, directory):
    os.mkdir(directory + "/d")
    put(directory + "/d/f", b"x")
    try:
        server.remove(directory + "/d")
    except Refused:
        pass
    assert os.path.exists(directory + "/d/f"), "removed without being asked"
    server.remove(directory + "/d", recursive=True)
    assert not os.path.exists(directory + "/d")


@case("files")
def a_removed_link_leaves_its_target(server, directory):
    os.mkdir(directory + "/d")
    put(directory + "/d/f", b"x")
    os.symlink("d", directory + "/link")
    server.remove(directory + "/link", recursive=True)
    assert not os.path.lexists(directory + "/link") and get(directory + "/d/f") == b"x"


@case("files")
def a_write_keeps_the_mode(server, directory):
    put(directory + "/script", b"old")
    os.chmod(directory + "/script", 0o750)
    server.write_file(directory + "/script", b"new")
    assert stat.S_IMODE(os.stat(directory + "/script").st_mode) == 0o750


@case("files")
def a_write_through_a_link_keeps_the_link(server, directory):
    put(directory + "/target", b"old")
    os.symlink("target", directory + "/link")
    server.write_file(directory + "/link", b"new")
    assert os.path.islink(directory + "/link") and get(directory + "/target") == b"new"


@case("files")
def a_reader_never_sees_half_a_write(server, directory):
    path, seen, over = directory + "/f", set(), threading.Event()
    put(path, b"0" * 1500000)

    def watch():
        while not over.is_set():
            data = get(path)
            seen.add((len(data), data[:1], data[-1:]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for i in range(30):
            server.write_file(path, b"%d" % (i % 10) * 1500000)
    finally:
        over.set()
        watcher.join()
    torn = [s for s in seen if s[0] != 1500000 or s[1] != s[2]]
    assert not torn, torn[:3]


@case("files")
def a_lost_update_is_refused(server, directory):
    path = directory + "/f"
    put(path, b"one")
    tag = server.tag(path)
    put(path, b"two")
    with refused_as("changed"):
        server.write_file(path, b"three", tag)
    assert get(path) == b"two"
    with refused_as("changed", "aborted"):
        server.remove_if(path, tag)
    server.write_file(path, b"three", server.tag(path))
    assert get(path) == b"three"


@case("files")
def an_edit_replaces_exact_text_or_nothing(server, directory):
    path = directory + "/f"
    put(path, b"a = 1\nb = 1\n")
    server.edit(path, b"a = 1", b"a = 2")
    assert get(path) == b"a = 2\nb = 1\n"
    for old in (b"missing", b" = "):
        try:
            server.edit(path, old, b"!")
        except Refused:
            pass
        assert get(path) == b"a = 2\nb = 1\n"


@case("files")
def proc_has_content(server, _):
    assert server.read_file("/proc/version").startswith(b"Linux")


def a_tar():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for i in range(12):
            info = tarfile.TarInfo(f"sub/file{i}")
            info.size, info.mode = 50000, 0o640
            tar.addfile(info, io.BytesIO(b"%d" % (i % 10) * 50000))
        info = tarfile.TarInfo("sub/link")
        info.type, info.linkname = tarfile.SYMTYPE, "file1"
        tar.addfile(info)
    return out.getvalue()


@case("files")
def an_archive_is_unpacked(server, directory):
    server.unpack(directory + "/t", a_tar())
    assert get(directory + "/t/sub/file3") == b"3" * 50000
    assert stat.S_IMODE(os.stat(directory + "/t/sub/file3").st_mode) == 0o640
    assert os.readlink(directory + "/t/sub/link") == "file1"


@case("files")
def half_an_archive_leaves_nothing(server, directory):
    os.mkdir(directory + "/t")
    with contextlib.suppress(Refused):
        server.unpack(directory + "/t", a_tar()[:400000])
    assert os.listdir(directory + "/t") == [], os.listdir(directory + "/t")


@case("files")
def an_archive_cannot_leave_its_directory(server, directory):
    os.mkdir(directory + "/t")
    for name in ("../escaped", f"{directory}/escaped"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
        with contextlib.suppress(Refused):
            server.unpack(directory + "/t", out.getvalue())
    assert os.listdir(directory) == ["t"]
