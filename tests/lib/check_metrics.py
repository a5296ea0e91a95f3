"""Checks Prometheus' text exposition format on standard input, with the rules of `promtool check metrics` that matter to us:
each metric has one HELP and one TYPE before its samples, which stand together; a counter's name ends with _total, and no
other's does; no series comes twice. Prints the number of samples."""

import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(\{{{LABEL}(?:,{LABEL})*\}})? ([-+]?(?:[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?|Inf)|NaN)")
SUFFIXES = {"summary": ("_sum", "_count"), "histogram": ("_sum", "_count", "_bucket")}

helps, types, seen, current = {}, {}, set(), None
text = sys.stdin.read()
assert text.endswith("\n"), "the last line has no end"
for number, line in enumerate(text[:-1].split("\n"), 1):
    where = f"line {number}: {line}"
    if line.startswith("# "):
        _, word, name, rest = line.split(" ", 3)
        table = {"HELP": helps, "TYPE": types}[word]
        assert name not in table, where
        table[name] = rest
        current = name
        continue
    found = SAMPLE.fullmatch(line)
    assert found, where
    name, labels, value = found.groups()
    assert current and (name == current or name in [current + s for s in SUFFIXES.get(types.get(current), ())]), where
    assert current in helps and current in types, where
    assert types[current] in ("counter", "gauge", "summary", "histogram"), where
    assert (types[current] == "counter") == current.endswith("_total"), where
    assert types[current] == "gauge" or not value.startswith("-"), where
    assert (name, labels) not in seen, where
    seen.add((name, labels))
print(len(seen))
