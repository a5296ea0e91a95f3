// A server in the box and clients outside it, through the agent's proxy: WebSocket by `ws`, the rest
// by node's own http and fetch. Prints "ok NAME" for each case; exits with 1 at the first failure.
//
//   node proxy_client.mjs http://127.0.0.1:PORT TOKEN
//   node proxy_client.mjs http://127.0.0.1:PORT TOKEN BOX.localhost     through the gateway, by host name
import assert from "node:assert/strict";
import dns from "node:dns";
import http from "node:http";
import { once } from "node:events";
import { WebSocket, WebSocketServer } from "ws";

const [agent, token, domain] = process.argv.slice(2);
const auth = { Authorization: `Bearer ${token}` };
let go; // ends what /sse waits for
const uploaded = [];
const seen = [];

const server = http.createServer(async (req, res) => {
  seen.push(req.headers);
  if (req.url === "/sse") {
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    res.write("data: one\n\n");
    await new Promise((done) => (go = done));
    res.end("data: two\n\n");
  } else if (req.url === "/go") {
    go();
    res.end("gone");
  } else if (req.url === "/upload") {
    for await (const piece of req) uploaded.push(piece.toString());
    res.end(uploaded.join("|"));
  } else if (req.url === "/slow") {
    setTimeout(() => res.end("late"), 20000).unref();
  } else if (req.url === "/hops") {
    res.writeHead(200, { "Keep-Alive": "timeout=77", "X-Hop": "x", Connection: "close, X-Hop", "X-Stays": "yes" });
    res.end(JSON.stringify(req.headers));
  } else {
    res.end("plain");
  }
});
const sockets = new WebSocketServer({ server });
sockets.on("connection", (ws, req) => {
  if (req.url === "/drop") ws.on("message", () => ws.terminate());
  else if (req.url === "/code") ws.on("message", () => ws.close(4001, "that is why"));
  else ws.on("message", (data, isBinary) => ws.send(data, { binary: isBinary }));
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const port = server.address().port;
const base = domain ? agent.replace("127.0.0.1", `${port}-${domain}`) : `${agent}/v1/proxy/${port}`;
if (domain) {
  // Browsers take every name below localhost for this machine; the resolver of libc does not.
  const { lookup } = dns;
  dns.lookup = (name, ...rest) => lookup(name.endsWith(".localhost") ? "127.0.0.1" : name, ...rest);
}

function connect(path, options = {}) {
  return new WebSocket(base.replace("http", "ws") + path, { headers: auth, perMessageDeflate: false, ...options });
}

async function opened(path, options) {
  const ws = connect(path, options);
  await once(ws, "open");
  return ws;
}

async function until(what, test) {
  for (let i = 0; i < 3000; i++) {
    if (test()) return;
    await new Promise((done) => setTimeout(done, 20));
  }
  assert.fail(`not within a minute: ${what}`);
}

async function echo(ws, data) {
  ws.send(data);
  const [back, isBinary] = await once(ws, "message");
  assert.equal(isBinary, typeof data !== "string");
  assert.ok(Buffer.compare(back, Buffer.from(data)) === 0);
}

const cases = {
  async "text and binary frames of any size"() {
    const ws = await opened("/echo");
    await echo(ws, "hällo");
    await echo(ws, "");
    for (const size of [1, 125, 126, 65535, 65536, 1 << 20, 5 << 20]) await echo(ws, Buffer.alloc(size, size % 251));
    ws.close();
    await once(ws, "close");
  },
  async "many frames under way in both directions"() {
    const ws = await opened("/echo");
    let n = 0;
    ws.on("message", (data) => assert.equal(data.length, 10000 + (n++ % 7)));
    for (let i = 0; i < 500; i++) ws.send(Buffer.alloc(10000 + (i % 7)));
    await until("500 echoes", () => n === 500);
    ws.terminate();
  },
  async "ping, pong, subprotocol, close code and reason"() {
    const ws = await opened("/code", { protocol: "chat" });
    ws.ping("p");
    const [pong] = await once(ws, "pong");
    assert.equal(pong.toString(), "p");
    ws.send("x");
    const [code, reason] = await once(ws, "close");
    assert.equal(code, 4001);
    assert.equal(reason.toString(), "that is why");
  },
  async "compression that both ends agreed on"() {
    const ws = await opened("/echo", { perMessageDeflate: true });
    await echo(ws, "a".repeat(200000));
    ws.terminate();
  },
  async "a hundred at once"() {
    const all = await Promise.all(Array.from({ length: 100 }, () => opened("/echo")));
    await Promise.all(all.map((ws, i) => echo(ws, `I am ${i}`)));
    assert.equal(sockets.clients.size >= 100, true);
    for (const ws of all) ws.terminate();
    await until("no client in the box", () => sockets.clients.size === 0);
  },
  async "a client that vanishes is closed in the box, and the reverse"() {
    const ws = await opened("/echo");
    await until("one client", () => sockets.clients.size === 1);
    ws.terminate();
    await until("no client", () => sockets.clients.size === 0);
    const dropped = await opened("/drop");
    dropped.send("x");
    const [code] = await once(dropped, "close");
    assert.equal(code, 1006);
  },
  async "a refused upgrade, and one without a token, have their status"() {
    for (const [options, path, status] of [[{}, "/echo", 401], [{ headers: auth }, "/echo", 426]]) {
      const request = http.get(base + path, {
        headers: { Connection: "Upgrade", Upgrade: "websocket", ...options.headers, "Sec-WebSocket-Version": "1" },
      });
      const [response] = await once(request, "response");
      response.resume();
      assert.equal(response.statusCode, status === 426 ? 400 : status);
    }
  },
  async "an event arrives before the next one is there"() {
    const response = await fetch(`${base}/sse`, { headers: auth });
    assert.equal(response.headers.get("content-type"), "text/event-stream");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    assert.equal((await reader.read()).value, "data: one\n\n");
    assert.equal(await (await fetch(`${base}/go`, { headers: auth })).text(), "gone");
    assert.equal((await reader.read()).value, "data: two\n\n");
    assert.equal((await reader.read()).done, true);
  },
  async "a piece of an upload arrives before the next one is sent"() {
    const body = new ReadableStream({
      async start(c) {
        c.enqueue(new TextEncoder().encode("one"));
        await until("the first piece", () => uploaded.length === 1);
        c.enqueue(new TextEncoder().encode("two"));
        c.close();
      },
    });
    const response = await fetch(`${base}/upload`, { method: "POST", headers: auth, body, duplex: "half" });
    assert.equal(await response.text(), "one|two");
  },
  async "headers for one hop stay on it, the token stays here, the client is told of"() {
    const request = http.get(`${base}/hops`, {
      headers: { ...auth, "X-Access-Token": token, Connection: "keep-alive, X-Mine", "X-Mine": "1", TE: "trailers",
        "X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "example.org",
        Cookie: "a=b", "Proxy-Authorization": "Basic eA==" },
    });
    const [response] = await once(request, "response");
    let text = "";
    for await (const piece of response) text += piece;
    const got = JSON.parse(text);
    for (const name of ["x-mine", "te", "authorization", "x-access-token", "proxy-authorization"])
      assert.equal(got[name], undefined, name);
    assert.equal(text.includes(token), false);
    assert.ok(got["x-forwarded-for"].startsWith("192.0.2.1, 127.0.0.1"));
    assert.equal(got["x-forwarded-proto"], "https");
    assert.equal(got["x-forwarded-host"], "example.org");
    assert.equal(got.cookie, "a=b");
    assert.equal(response.headers["x-hop"], undefined);
    assert.notEqual(response.headers["keep-alive"], "timeout=77");
    assert.equal(response.headers["x-stays"], "yes");
  },
  async "a server that does not answer in time is a 504"() {
    const response = await fetch(`${base}/slow`, { headers: { ...auth, "Bellhop-Proxy-Timeout-Ms": "200" } });
    assert.equal(response.status, 504);
    assert.deepEqual((await response.json()).code, "deadline_exceeded");
    const bad = await fetch(`${base}/slow`, { headers: { ...auth, "Bellhop-Proxy-Timeout-Ms": "soon" } });
    assert.equal(bad.status, 400);
    assert.equal((await bad.json()).field, "Bellhop-Proxy-Timeout-Ms");
    assert.equal(seen.every((h) => h["bellhop-proxy-timeout-ms"] === undefined), true);
  },
};

for (const [name, run] of Object.entries(cases)) {
  const timer = setTimeout(() => {
    console.error(`not ok ${name}: it hangs`);
    process.exit(1);
  }, 120000);
  try {
    await run();
  } catch (error) {
    console.error(`not ok ${name}`, error);
    process.exit(1);
  }
  clearTimeout(timer);
  console.log(`ok ${name}`);
}
process.exit(0);
