// The official OpenAI client against the fake: what agents do with it, and what it makes of it.
// Prints one JSON object; tests/bootstrap/fakes.bats compares it with what is expected.
import OpenAI from "openai";

const [port] = process.argv.slice(2);
const client = new OpenAI({ apiKey: "sk-test", baseURL: `http://127.0.0.1:${port}/v1` });
const bash = {
  type: "function",
  function: {
    name: "bash",
    description: "runs a command",
    parameters: { type: "object", properties: { command: { type: "string" } } },
  },
};
const ask = [{ role: "user", content: "please\nRUN: echo hi" }];
const out = {};

out.models = (await client.models.list()).data.map((m) => m.id);

const plain = await client.chat.completions.create({
  model: "fake",
  messages: [{ role: "user", content: "hello" }],
});
out.plain = plain.choices[0].message.content;
out.finish = plain.choices[0].finish_reason;

const stream = client.chat.completions.stream({
  model: "fake",
  messages: ask,
  tools: [bash],
  stream_options: { include_usage: true },
});
const called = await stream.finalChatCompletion();
const call = called.choices[0].message.tool_calls[0];
out.call = call.function.name;
out.command = JSON.parse(call.function.arguments).command;
out.call_finish = called.choices[0].finish_reason;
out.has_usage = called.usage.total_tokens > 0;

const result = { role: "tool", tool_call_id: call.id, content: "hi\nthere" };
let text = "";
for await (const chunk of await client.chat.completions.create({
  model: "fake",
  messages: [...ask, called.choices[0].message, result],
  tools: [bash],
  stream: true,
})) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
out.done = text;

try {
  await client.chat.completions.create({ model: "fake", messages: [] });
} catch (e) {
  out.refused = [e.constructor.name, e.status];
}
console.log(JSON.stringify(out));
