#!/usr/bin/env python3
"""oci_image.py OUT.tar NAME:TAG FILE: an OCI image of one static program, which is its entry point."""
import hashlib
import io
import json
import os
import platform
import sys
import tarfile

OCI = "application/vnd.oci.image."


def tar(members):
    """members: (name, content, mode)"""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content, mode in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = mode
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def document(value):
    return json.dumps(value).encode()


def digest(blob):
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def descriptor(kind, blob):
    return {"mediaType": OCI + kind, "digest": digest(blob), "size": len(blob)}


def main():
    out, name, path = sys.argv[1:]
    program = os.path.basename(path)
    with open(path, "rb") as file:
        layer = tar([(program, file.read(), 0o755)])
    config = document({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": ["/" + program], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    })
    manifest = document({
        "schemaVersion": 2,
        "mediaType": OCI + "manifest.v1+json",
        "config": descriptor("config.v1+json", config),
        "layers": [descriptor("layer.v1.tar", layer)],
    })
    entry = descriptor("manifest.v1+json", manifest)
    entry["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1],
    }
    index = document({"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [entry]})
    blobs = [("blobs/sha256/" + digest(blob)[7:], blob, 0o644) for blob in (layer, config, manifest)]
    layout = [("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644), ("index.json", index, 0o644)]
    with open(out, "wb") as file:
        file.write(tar(layout + blobs))


if __name__ == "__main__":
    main()
