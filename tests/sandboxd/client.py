"""agent-sandbox's own client against the agent: AGENT_URL; AGENT_TOKEN (or none), WORK (the agent's workdir)."""
import datetime
import io
import os
from urllib.parse import urlsplit

from k8s_agent_sandbox.models import SandboxDirectConnectionConfig, SandboxInClusterConnectionConfig, SandboxdInClusterConnectionConfig
from k8s_agent_sandbox.sandbox import Sandbox
from k8s_agent_sandbox.exceptions import SandboxRequestError

URL, TOKEN, WORK = os.environ["AGENT_URL"], os.environ.get("AGENT_TOKEN"), os.environ["WORK"]
PORT = urlsplit(URL).port


class Cluster:
    """The part of a cluster that the client asks: the addresses of the pod."""
    injected_api_client = None

    def get_sandbox(self, name, namespace):
        return {"metadata": {"name": name}, "status": {"podIPs": ["127.0.0.1"]}}


def sandbox(config):
    return Sandbox("claim", "box", connection_config=config, k8s_helper=Cluster())


def refuses(call, *args, status=None, **kwargs):
    try:
        call(*args, **kwargs)
    except SandboxRequestError as e:
        assert status is None or e.status_code == status, e.status_code
        return
    raise AssertionError(f"{call}{args} was not refused")


def check_files(files, is_sandboxd):
    files.write("hello.txt", "hello\n")
    assert open(WORK + "/hello.txt").read() == "hello\n"
    assert files.read("hello.txt") == b"hello\n"
    data = bytes(range(256)) * 5000
    files.write("deep/er/gr\u00fc\u00dfe \U0001f41a.bin", io.BytesIO(data))
    assert files.read("/deep/er/gr\u00fc\u00dfe \U0001f41a.bin") == data
    out = io.BytesIO()
    assert files.read_to("deep/er/gr\u00fc\u00dfe \U0001f41a.bin", out) == len(data) and out.getvalue() == data
    files.write("empty", b"")
    assert files.read("empty") == b""
    os.symlink("deep", WORK + "/link")
    os.symlink("nowhere", WORK + "/broken")
    for root in ("", ".") if is_sandboxd else (".", "/", "deep/.."):
        entries = {e.name: e for e in files.list(root)}
        assert set(entries) == {"hello.txt", "deep", "empty", "link"}, entries
        assert entries["deep"].type == entries["link"].type == "directory" and entries["hello.txt"].type == "file"
        assert entries["hello.txt"].size == 6
        age = datetime.datetime.now(datetime.timezone.utc) - entries["hello.txt"].modified
        assert abs(age.total_seconds()) < 600, age
        assert entries["hello.txt"].mode == ("0644" if is_sandboxd else None)
    assert [e.name for e in files.list("deep/er")] == ["gr\u00fc\u00dfe \U0001f41a.bin"]
    assert files.exists("hello.txt") and files.exists("deep") and not files.exists("none") and not files.exists("broken")
    refuses(files.read, "none", status=404)
    refuses(files.list, "none", status=404)
    if not is_sandboxd:
        refuses(files.read, "../../etc/passwd", allow_unsafe_paths=True, status=403)
        refuses(files.write, "a/../../out", b"x", allow_unsafe_paths=True, status=403)
        assert not os.path.exists(WORK + "/../out")
    if is_sandboxd:
        refuses(files.delete, "deep")
        files.delete("deep", recursive=True)
        files.delete("empty")
        assert not os.path.exists(WORK + "/deep") and not os.path.exists(WORK + "/empty")
    for name in ("link", "broken", "hello.txt"):
        os.unlink(f"{WORK}/{name}")
    if not is_sandboxd:
        os.system(f"rm -r '{WORK}/deep' '{WORK}/empty'")


def check_commands(commands):
    result = commands.run("echo out; echo err >&2; pwd; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.timed_out) == (f"out\n{WORK}\n", "err\n", 3, False), result
    result = commands.run("printf 'a\\377\\000b'; kill -KILL $$")
    assert result.stdout == "a??b" and result.exit_code == -9, result
    result = commands.run("echo begun; sleep 60 & sleep 60", command_timeout=0.5)
    assert result.timed_out and result.exit_code == 124 and result.stdout == "begun\n", result
    result = commands.run("head -c 30000000 /dev/zero | tr '\\0' x")
    assert "bytes are left out" in result.stdout and result.stdout.startswith("xxx") and result.exit_code == 0


def main():
    headers = {"X-Access-Token": TOKEN} if TOKEN else {}
    direct = sandbox(SandboxDirectConnectionConfig(api_url=URL, extra_headers=headers))
    check_files(direct.files, False)
    check_commands(direct.commands)
    if TOKEN:
        refuses(sandbox(SandboxDirectConnectionConfig(api_url=URL)).commands.run, "true", status=401)
    else:
        inside = sandbox(SandboxInClusterConnectionConfig(server_port=PORT))
        check_files(inside.files, False)
        check_commands(inside.commands)
        new = sandbox(SandboxdInClusterConnectionConfig(mode="in-cluster-pod-ip", rest_port=PORT, grpc_port=1))
        check_files(new.files, True)
    print("ok")


main()
