#!/usr/bin/env python3
"""The claims of the tree's texts about the tree, one check an argument; prints the wrong ones.

  comments   the C files and functions that comments of C files name are there
  tests      the tests that docs/security-model.md names are there
  links      links and paths in the Markdown files lead somewhere
  targets    the make targets that they name are there
"""

import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FILES = [
    pathlib.Path(name)
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=TOP, check=True, text=True, stdout=subprocess.PIPE,
    ).stdout.splitlines()
    if (TOP / name).exists()
]
NAMES = {f.name for f in FILES}
FOLDERS = {str(p) for f in FILES for p in f.parents}


def text(path):
    return (TOP / path).read_text(encoding="utf-8", errors="replace")


def markdown():
    return [f for f in FILES if f.suffix == ".md" and f.parts[0] != "tests" or f.name == "README.md"]


def comments():
    """A name with a folder is a path; system headers, and libraries' functions, are not ours."""
    ours = [f for f in FILES if f.suffix in (".c", ".h", ".def") and f.parts[0] in ("guest", "host-client")]
    comment_of_c = re.compile(r"/\*.*?\*/", re.S)
    used = {word for f in ours for word in re.findall(r"\w+", comment_of_c.sub("", text(f)))}
    for f in ours:
        for comment in comment_of_c.finditer(text(f)):
            for name in re.findall(r"\b([a-z]\w*_\w+)\(\)", comment.group()):
                if name not in used and not name.startswith("archive_"):
                    yield f"{f}: {name}()"
            for name in re.findall(r"(?<![\w./<-])([\w-]+(?:/[\w-]+)*\.[ch])\b", comment.group()):
                if not any(str(other) == name or str(other).endswith("/" + name) for other in FILES):
                    yield f"{f}: {name}"


def tests():
    titles = set()
    for f in FILES:
        if f.parts[0] == "tests" and f.suffix == ".bats":
            titles |= set(re.findall(r'^@test "(.*)" \{', text(f), re.M))
        elif f.parts[0] == "tests" and f.suffix == ".c":
            titles |= set(re.findall(r"^TEST\((\w+)\)", text(f), re.M))
    for name in re.findall(r"`((?:oci|isolation|network_(?:none|user|host)|hostimage)_[a-z0-9_*]+)`", text("docs/security-model.md")):
        if not any(re.fullmatch(name.replace("*", ".*"), title) for title in titles):
            yield f"docs/security-model.md: {name}"


def is_there(f, name):
    """As it is written: from the file's folder, from the top, from a program's own folder."""
    near = (f.parent, pathlib.Path(), pathlib.Path("guest"), pathlib.Path("host-client"), pathlib.Path("tests"),
            pathlib.Path("docs"))
    paths = {str(f) for f in FILES} | FOLDERS
    stems = {re.sub(r"\.[a-z]+$", "", p) for p in paths}
    for folder in near:
        path = str(pathlib.Path(*[p for p in (folder / name.rstrip("/")).parts]))
        parts = []
        for part in path.split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part != ".":
                parts.append(part)
        path = "/".join(parts)
        if path in paths or path in stems:
            return True
        if "*" in path and any(pathlib.PurePath(p).match(path) for p in paths):
            return True
    return False


def links():
    first = {f.parts[0] for f in FILES if len(f.parts) > 1} - {"image"}
    for f in markdown():
        for name in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", text(f)):
            if not is_there(f, name):
                yield f"{f}: link to {name}"
        for name in re.findall(r"`([\w.-]+/[\w./*-]+)`", text(f)):
            if name.split("/")[0] in first and not is_there(f, name):
                yield f"{f}: {name}"
        for name in re.findall(r"`([\w.-]+\.(?:md|bats|def|sh))`", text(f)):
            if name not in NAMES:
                yield f"{f}: {name}"


def targets():
    known = set(re.findall(r"^([a-z][a-z-]*):", text("Makefile"), re.M))
    for f in markdown():
        for name in re.findall(r"`(?:sudo )?make ([a-z][a-z-]*)", text(f)):
            if name not in known:
                yield f"{f}: make {name}"


def main():
    bad = sorted(set({"comments": comments, "tests": tests, "links": links, "targets": targets}[sys.argv[1]]()))
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
