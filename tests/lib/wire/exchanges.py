"""exchanges.py: the requests and answers in what record.c has written. What can not be told apart any
more (a request that was not HTTP, a body that was not kept) is left out."""
import collections
import os
import struct

Exchange = collections.namedtuple("Exchange", "test verb path asked status fields body whole")
FRAME = struct.Struct("<QII")


class Stream:
    """One direction of a connection. Bytes that were not kept are holes."""

    def __init__(self):
        self.parts = []  # bytes, or the length of a hole
        self.closed = False

    def add(self, data):
        if isinstance(data, bytes) and self.parts and isinstance(self.parts[-1], bytearray):
            self.parts[-1] += data
        else:
            self.parts.append(bytearray(data) if isinstance(data, bytes) else data)

    def line(self):
        """Up to a line feed, without it and a CR; None when there is no whole one."""
        if not self.parts or isinstance(self.parts[0], int) or (end := self.parts[0].find(b"\n")) < 0:
            return None
        line = bytes(self.parts[0][:end])
        self.parts[0] = self.parts[0][end + 1:]
        return line.rstrip(b"\r")

    def take(self, n):
        """(what is kept of the next n bytes up to the first hole, whether that is all)."""
        out, kept = bytearray(), True
        while n > 0 and self.parts:
            part = self.parts[0]
            size = part if isinstance(part, int) else len(part)
            used = min(n, size)
            if isinstance(part, int):
                kept = False
                self.parts[0] = part - used
            else:
                if kept:
                    out += part[:used]
                self.parts[0] = part[used:]
            if used == size:
                self.parts.pop(0)
            n -= used
        return bytes(out), kept and n == 0

    def rest(self):
        return self.take(1 << 60)[0]


def read_head(stream):
    """(first line, {name: value}); None when there is none."""
    while (first := stream.line()) == b"":
        pass
    fields = {}
    while first is not None:
        line = stream.line()
        if line is None:
            return None
        if not line:
            return first.decode("latin1"), fields
        name, _, value = line.decode("latin1").partition(":")
        fields[name.strip().lower()] = value.strip()
    return None


def read_chunks(stream):
    out, whole = bytearray(), True
    while True:
        size = stream.line()
        try:
            n = int(size.split(b";")[0], 16)
        except (AttributeError, ValueError):
            return bytes(out), False
        piece, kept = stream.take(n)
        if whole:
            out += piece
        whole = whole and kept
        if not kept and not stream.parts:
            return bytes(out), False
        while (line := stream.line()) and n == 0:
            pass
        if n == 0:
            return bytes(out), whole


def read_body(stream, fields, until_close):
    if "chunked" in fields.get("transfer-encoding", "").lower():
        return read_chunks(stream)
    if fields.get("content-length", "").isdigit():
        return stream.take(int(fields["content-length"]))
    if not until_close:
        return b"", True
    whole = stream.closed and not any(isinstance(p, int) for p in stream.parts)
    return stream.rest(), whole


def read_requests(stream):
    while (head := read_head(stream)) is not None:
        words = head[0].split(" ")
        if len(words) != 3:
            return
        yield words[0], words[1], head[1]
        read_body(stream, head[1], False)


def read_answers(stream, verbs):
    """verbs: of the requests, in order; what an answer has depends on it."""
    n = 0
    while (head := read_head(stream)) is not None:
        words = head[0].split(" ")
        if not head[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            return
        status = int(words[1])
        if 100 <= status < 200 and status != 101:
            continue
        verb = verbs[n] if n < len(verbs) else ""
        n += 1
        if verb == "HEAD" or status in (101, 204, 304):
            body, whole = b"", True
        else:
            body, whole = read_body(stream, head[1], True)
        yield status, head[1], body, whole
        if status == 101:
            return


def read_file(path):
    """The exchanges of one process."""
    data = open(path, "rb").read()
    sent, got = collections.defaultdict(Stream), collections.defaultdict(Stream)
    test, at = "-", 0
    while at + FRAME.size <= len(data):
        connection, length, kind = FRAME.unpack_from(data, at)
        at += FRAME.size
        kind = chr(kind)
        if kind in "TSR":
            piece = data[at:at + length]
            at += length
        if kind == "T":
            test = piece.decode("latin1")
        elif kind in "Ss":
            sent[connection].add(piece if kind == "S" else length)
        elif kind in "Rr":
            got[connection].add(piece if kind == "R" else length)
        elif kind == "C":
            got[connection].closed = True
    for connection in sent:
        requests = list(read_requests(sent[connection]))
        answers = read_answers(got[connection], [r[0] for r in requests])
        for (verb, target, asked), (status, fields, body, whole) in zip(requests, answers):
            if target.startswith("http://"):
                target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
            yield Exchange(test, verb, target, asked, status, fields, body, whole)


def read_all(directory):
    for name in sorted(os.listdir(directory)):
        yield from read_file(os.path.join(directory, name))
