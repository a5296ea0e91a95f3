"""A server with the part of opencode's API that `bellhop prompt` uses: conversation_agent.py PORT PASSWORD. The prompt says
what the agent does. It writes what is in its directory at its start to ~/at-start."""
import base64, http.server, json, os, sys, threading, time
with open(os.path.expanduser("~/at-start"), "w") as f:
    f.write(" ".join(sorted(os.listdir("."))))
messages, busy, lock = [], set(), threading.Lock()
login = "Basic " + base64.b64encode(("user:" + sys.argv[2]).encode()).decode()
def answer(role, text, **info):
    m = {"info": {"id": "msg_%d" % len(messages), "role": role, "time": {"created": 1}, **info}, "parts": [{"type": "text", "text": text}]}
    messages.append(m)
    return m
class H(http.server.BaseHTTPRequestHandler):
    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/h":
            return self.reply(200, {"ok": True})
        if self.headers["Authorization"] != login:
            return self.reply(401, {})
        with lock:
            if self.path == "/session/status":
                # The turn goes on only while nobody asks for its end.
                if os.path.exists("finish") and "ses_1" in busy:
                    messages[-1]["parts"][0]["text"] += ", the end"
                    messages[-1]["info"]["time"]["completed"] = 2
                    busy.clear()
                return self.reply(200, {s: {"type": "busy"} for s in busy})
            return self.reply(200, messages[-1:])
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"] or 0))
        with open("calls", "a") as f:
            f.write(self.path + "\n")
        if b"hang up" in text:
            time.sleep(60)
        with lock:
            if self.path == "/session":
                return self.reply(200, {"id": "ses_1"})
            if not self.path.startswith("/session/ses_1/"):
                return self.reply(404, {})
            if self.path.endswith("/abort"):
                if refusals := sorted(name for name in os.listdir(".") if name.startswith("refuse")):
                    os.remove(refusals[0])
                    return self.reply(503, {})
                busy.clear()
                return self.reply(200, True)
            prompt = json.loads(text)["parts"][0]["text"]
            answer("user", prompt)
            if prompt == "fail":
                answer("assistant", "", error={"name": "APIError", "data": {"message": "no model"}})
            elif prompt == "work":
                busy.add("ses_1")
                answer("assistant", "at work")
            else:
                m = answer("assistant", "you said: " + prompt)
                m["info"]["time"]["completed"] = 2
        self.send_response(204)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
