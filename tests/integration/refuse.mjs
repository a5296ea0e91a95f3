// refuse.mjs URL TOKEN DIR CASE REPEAT: the same for node's fetch (undici).
const [url, token, dir, which, repeat] = process.argv.slice(2);
const sizes = { small: 1000, "1MB": 1000000, "100MB": 100000000 };
const MB = Buffer.alloc(1000000, 120);
let bad = 0;
const stream = n => {
  let left = n;
  return new ReadableStream({
    pull(c) {
      if (!left) return c.close();
      const k = Math.min(left, MB.length);
      left -= k;
      c.enqueue(MB.subarray(0, k));
    },
  });
};
for (const size of which === "disk" ? ["100MB"] : Object.keys(sizes)) {
  if (which === "size" && size === "1MB") continue; // as the small one: all are over the limit
  for (const declared of [true, false]) {
    for (let i = 0; i < (size === "100MB" || which === "size" ? Number(process.env.REPEAT_LARGE) : repeat); i++) {
      let n = sizes[size];
      const [want, path, auth] = {
        head: [401, `/v1/files/${dir}/f`, "Bearer wrong"],
        size: [413, "/bellhop.v1.System/Info", "Bearer " + token],
        disk: [507, `/v1/files/${dir}/tiny/f`, "Bearer " + token],
      }[which];
      if (which === "size") n = Math.max(n, 17000000);
      let got, again = 0;
      try {
        // fetch declares the length of a buffer, and chunks a stream.
        const r = await fetch(url + path, {
          method: which === "size" ? "POST" : "PUT",
          headers: { Authorization: auth, "Content-Type": "application/json" },
          body: declared ? Buffer.alloc(n, 120) : stream(n),
          duplex: "half",
        });
        got = r.status;
        if (!(await r.json()).code) got = "no code";
        again = (await fetch(url + "/v1/health")).status;
      } catch (why) {
        got = `${why} ${why.cause}`;
      }
      if (got !== want || again !== 200) {
        bad++;
        console.log(`fetch ${which} ${size} declared=${declared} #${i}: ${got}, then ${again}`);
      }
    }
  }
}
process.exit(bad ? 1 : 0);
