// A user of pi in a box: speaks pi's JSON lines through the guest agent's Exec/Write and Exec/Attach
// on the command "agent", as an editor would. One prompt, read from a file; prints the answer's
// text, the session's id and what the tools did as one JSON object.
import { readFileSync } from "node:fs";
import { request } from "node:http";

const [socketPath, token, promptFile] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };

function post(method, params, onLine) {
  return new Promise((resolve, reject) => {
    const path = `/bellhop.v1.Exec/${method}`;
    const req = request({ socketPath, path, method: "POST", headers }, (res) => {
      let text = "";
      res.setEncoding("utf8");
      res.on("data", (chunk) => {
        text += chunk;
        if (!onLine) return;
        const lines = text.split("\n");
        text = lines.pop();
        for (const line of lines) if (line) onLine(JSON.parse(line), req);
      });
      if (onLine) return res.on("error", resolve).on("close", resolve);
      res.on("end", () => {
        const value = JSON.parse(text);
        res.statusCode === 200 ? resolve(value) : reject(new Error(text));
      });
    });
    req.on("error", reject);
    req.end(JSON.stringify(params));
  });
}

const send = (message) =>
  post("Write", { id: "agent", data: { text: JSON.stringify(message) + "\n" } });

const events = [];
const offset = (await post("Get", { id: "agent" })).stdout.bytes;
let buffer = Buffer.alloc(0);
const attached = post("Attach", { id: "agent", stdout_offset: offset }, ({ data }, req) => {
  if (data?.stream !== "stdout") return;
  const bytes = data.b64 ? Buffer.from(data.b64, "base64") : Buffer.from(data.text);
  buffer = Buffer.concat([buffer, bytes]);
  for (let at; (at = buffer.indexOf(10)) >= 0; buffer = buffer.subarray(at + 1))
    events.push(JSON.parse(buffer.subarray(0, at).toString()));
  if (events.some((e) => e.id === "state")) req.destroy();
  else if (events.some((e) => e.type === "agent_end") && !events.asked) {
    events.asked = true;
    send({ id: "state", type: "get_state" });
  }
});

await send({ id: "ask", type: "prompt", message: readFileSync(promptFile, "utf8") });
await attached;

const texts = (message) =>
  (message.content ?? []).filter((c) => c.type === "text").map((c) => c.text).join("");
const end = events.find((e) => e.type === "agent_end");
const state = events.find((e) => e.id === "state");
const tools = events.filter((e) => e.type === "tool_execution_end");
console.log(
  JSON.stringify({
    accepted: events.find((e) => e.id === "ask").success,
    answer: texts(end.messages.at(-1)),
    session: state.data.sessionId,
    messages: state.data.messageCount,
    tools: tools.map((t) => [t.toolName, t.isError]),
  }),
);
