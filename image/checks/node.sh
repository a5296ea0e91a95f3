# shellcheck shell=sh disable=SC2154,SC2164
version "$(node --version)"
cat >server.mjs <<'JS'
import { createServer } from 'node:http';
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';

const server = createServer((request, response) => response.end(`you asked for ${request.url}`));
server.listen(0, '127.0.0.1', async () => {
    const answer = await fetch(`http://127.0.0.1:${server.address().port}/x`).then(r => r.text());
    await writeFile('out.json', JSON.stringify({ answer, hash: createHash('sha256').update('box').digest('hex') }));
    server.close();
});
JS
node server.mjs
is "what the script wrote" "$(cat out.json)" \
    "{\"answer\":\"you asked for /x\",\"hash\":\"$(printf box | sha256sum | cut -d ' ' -f 1)\"}"
is "node's major version is at least 24" "$(node -p 'Number(process.versions.node.split(".")[0]) >= 24')" true
