"""agent-sandbox's own client in a cluster: KUBECONFIG, NAMESPACE and POOL, whose pods run our agent on port 8888."""
import os

from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxInClusterConnectionConfig

NAMESPACE, POOL = os.environ["NAMESPACE"], os.environ["POOL"]


def check_box(box):
    result = box.commands.run("pwd; id -un; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("/workspace\nuser\n", "err\n", 3), result
    data = bytes(range(256)) * 5000
    box.files.write("deep/file.bin", data)
    assert box.files.read("deep/file.bin") == data
    assert box.commands.run("wc -c <deep/file.bin").stdout == f"{len(data)}\n"
    box.files.write("text", "a line\n")
    entries = {e.name: e for e in box.files.list(".")}
    assert set(entries) == {"deep", "text"} and entries["deep"].type == "directory" and entries["text"].size == 7, entries
    assert box.files.exists("text") and not box.files.exists("none")


def main():
    # It loads the configuration of a pod or KUBECONFIG by itself.
    with SandboxClient(SandboxInClusterConnectionConfig(server_port=8888)) as client:
        box = client.create_sandbox(POOL, namespace=NAMESPACE)
        print("sandbox", box.sandbox_id)
        check_box(box)
        again = client.get_sandbox(box.claim_name, namespace=NAMESPACE)
        assert again.files.read("text") == b"a line\n"
        assert client.list_all_sandboxes(NAMESPACE) == [box.claim_name]
        client.delete_sandbox(box.claim_name, namespace=NAMESPACE)
    print("ok")


main()
