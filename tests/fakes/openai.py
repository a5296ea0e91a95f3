#!/usr/bin/env python3
"""A fake of the OpenAI chat completions API for tests: no model, a script.

What it does with the last message of a request:
  from the user, with a line "RUN: COMMAND", and a tool called "bash" on offer
      -> a call of that tool with {"command": COMMAND}
  from a tool -> "DONE" and the first line of the tool's result
  otherwise -> "RECEIVED", how many characters the user's text has, and its SHA-256

Answers come whole or, with "stream": true, as server-sent events in small pieces. Each exchange is
appended to --record FILE as one line of JSON. --ready FILE gets the port once it listens.
Needs nothing but Python's standard library: it is also run inside boxes.
"""

import argparse
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE_CHARS = 7


def text_of(message):
    """A message's text, whether it is a string or a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(p.get("text", "") for p in content if p.get("type") == "text")


def offers_bash(request):
    return any(t.get("function", {}).get("name") == "bash" for t in request.get("tools") or [])


def decide(request):
    """The scripted answer: ("text", text) or ("call", command)."""
    last = request["messages"][-1]
    text = text_of(last)
    if last["role"] == "tool":
        return "text", "DONE " + text.strip().partition("\n")[0][:200]
    run = re.search(r"^RUN: (.+)$", text, re.MULTILINE)
    if run and offers_bash(request):
        return "call", run.group(1).strip()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return "text", f"RECEIVED {len(text)} {digest}"


class Fake(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fake-openai"

    def log_message(self, *args):
        pass

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, message):
        self.reply(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def do_GET(self):
        if self.path == "/v1/models":
            model = {"id": "fake", "object": "model", "created": 0, "owned_by": "bellhop"}
            self.reply(200, {"object": "list", "data": [model]})
        else:
            self.refuse(404, f"no such path: {self.path}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            return self.refuse(404, f"no such path: {self.path}")
        try:
            request = json.loads(body)
            kind, what = decide(request)
        except (ValueError, KeyError, IndexError, TypeError) as e:
            return self.refuse(400, f"not a chat completions request: {e!r}")
        self.server.remember(request, self.headers.get("Authorization"), kind, what)
        if request.get("stream"):
            self.stream(request, kind, what)
        else:
            self.whole(request, kind, what)

    def head(self, request, kind_of_object):
        return {
            "id": f"chatcmpl-{self.server.count}",
            "object": kind_of_object,
            "created": 0,
            "model": request.get("model", "fake"),
        }

    def usage(self, request, what):
        prompt = len(json.dumps(request["messages"])) // 4
        completion = len(what) // 4 + 1
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def call(self, command):
        arguments = json.dumps({"command": command, "description": "runs the command"})
        return {
            "id": f"call_{self.server.count}",
            "type": "function",
            "function": {"name": "bash", "arguments": arguments},
        }

    def whole(self, request, kind, what):
        message = {"role": "assistant", "content": what if kind == "text" else None}
        if kind == "call":
            message["tool_calls"] = [self.call(what)]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "stop" if kind == "text" else "tool_calls",
        }
        answer = self.head(request, "chat.completion")
        answer.update(choices=[choice], usage=self.usage(request, what))
        self.reply(200, answer)

    def deltas(self, kind, what):
        yield {"role": "assistant", "content": ""}
        if kind == "text":
            for i in range(0, len(what), PIECE_CHARS):
                yield {"content": what[i : i + PIECE_CHARS]}
            return
        call = self.call(what)
        arguments = call["function"]["arguments"]
        call["function"]["arguments"] = ""
        yield {"tool_calls": [{"index": 0, **call}]}
        for i in range(0, len(arguments), PIECE_CHARS):
            piece = {"arguments": arguments[i : i + PIECE_CHARS]}
            yield {"tool_calls": [{"index": 0, "function": piece}]}

    def event(self, value):
        data = value if isinstance(value, str) else json.dumps(value)
        piece = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def stream(self, request, kind, what):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = self.head(request, "chat.completion.chunk")
        for delta in self.deltas(kind, what):
            self.event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        end = {"index": 0, "delta": {}, "finish_reason": "stop" if kind == "text" else "tool_calls"}
        self.event({**head, "choices": [end]})
        if (request.get("stream_options") or {}).get("include_usage"):
            self.event({**head, "choices": [], "usage": self.usage(request, what)})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port, record):
        super().__init__(("127.0.0.1", port), Fake)
        self.record = record
        self.lock = threading.Lock()
        self.count = 0

    def remember(self, request, authorization, kind, what):
        with self.lock:
            self.count += 1
            if not self.record:
                return
            line = {"authorization": authorization, "request": request, kind: what}
            with open(self.record, "a", encoding="utf-8") as f:
                f.write(json.dumps(line) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready", help="a file that gets the port")
    parser.add_argument("--record", help="a file that gets each exchange")
    args = parser.parse_args()
    server = Server(args.port, args.record)
    if args.ready:
        with open(args.ready, "w", encoding="ascii") as f:
            f.write(f"{server.server_address[1]}\n")
    server.serve_forever()


if __name__ == "__main__":
    main()
