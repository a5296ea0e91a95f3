// @opencode-ai/sdk, unmodified, against the URL and password that `bellhop up` printed: a session, a
// prompt whose tool call writes a file, a shell command, a file's content, events. Prints one
// JSON object of what came of it.
import { createOpencodeClient } from "@opencode-ai/sdk";

const [baseUrl, password, directory] = process.argv.slice(2);
const authorization = "Basic " + Buffer.from(`opencode:${password}`).toString("base64");
const client = createOpencodeClient({
  baseUrl,
  directory,
  headers: { Authorization: authorization },
  throwOnError: true,
});
const model = { providerID: "fake", modelID: "fake" };
const out = {};

const events = await client.event.subscribe();
const types = new Set();
const idle = (async () => {
  for await (const event of events.stream) {
    types.add(event.type);
    if (event.type === "session.idle") return;
  }
})();

const session = (await client.session.create({ body: { title: "from the sdk" } })).data;
out.session = session.id.startsWith("ses_");

const prompt = await client.session.prompt({
  path: { id: session.id },
  body: { model, parts: [{ type: "text", text: "please\nRUN: echo from the model >made.txt" }] },
});
await idle;
out.answer = prompt.data.parts.filter((p) => p.type === "text").map((p) => p.text).join("");

const messages = (await client.session.messages({ path: { id: session.id } })).data;
const tools = messages.flatMap((m) => m.parts).filter((p) => p.type === "tool");
out.tools = tools.map((t) => [t.tool, t.state.status, t.state.input.command]);

const shell = await client.session.shell({
  path: { id: session.id },
  body: { agent: "build", model, command: "echo shell says $((6 * 7))" },
});
const outputs = (shell.data.parts ?? []).map((p) => p.state?.output ?? "");
out.shell = outputs.join("").trim();

const file = (await client.file.read({ query: { path: "made.txt" } })).data;
out.file = file.content.trim();

out.events = ["server.connected", "session.idle"].every((t) => types.has(t));
console.log(JSON.stringify(out));
process.exit(0);
