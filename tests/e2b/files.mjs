// files.mjs CASE...: cases about files with E2B's own SDK, unmodified.
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import {
  FileNotFoundError, FilesystemEventType as T, FileType, getSignature, InvalidArgumentError, NotEnoughSpaceError,
  Sandbox, SandboxError,
} from 'e2b'

const sandbox = await Sandbox.create()
const files = sandbox.files
const run = async cmd => (await sandbox.commands.run(cmd, { user: 'root' })).stdout
const stream = (...pieces) => new ReadableStream({
  pull(c) { if (pieces.length) c.enqueue(pieces.shift()); else c.close() },
})

const cases = {
  async write() {
    const info = await files.write('dir/a b.txt', 'hällo\n')
    assert.deepEqual([info.name, info.type, info.path], ['a b.txt', 'file', '/home/user/dir/a b.txt'])
    assert.equal(await run('stat -c "%U %G %a" /home/user/dir "/home/user/dir/a b.txt"'), 'user user 755\nuser user 644\n')
    assert.equal(await files.read('dir/a b.txt'), 'hällo\n')
    const bytes = new Uint8Array(randomBytes(300000))
    await files.write('bytes', bytes.buffer)
    assert.deepEqual(await files.read('bytes', { format: 'bytes' }), bytes)
    await files.write('bytes', new Blob([bytes.subarray(0, 1000)]))
    assert.equal((await files.read('bytes', { format: 'blob' })).size, 1000)
    await files.write('bytes', stream(bytes, new Uint8Array(0), bytes))
    let n = 0
    for await (const piece of await files.read('bytes', { format: 'stream' })) n += piece.length
    assert.equal(n, 600000)
    await files.write('empty', '')
    assert.equal(await files.read('empty'), '')
    // as root: anywhere, but the user's; names as they are
    const odd = ['/home/0/deep/x', '~/tilde', "quo'te \"d\".txt", 'ünï/cödé €.txt', 'percent%20.txt', '-dash']
    const many = await files.write(odd.map(path => ({ path, data: path })))
    assert.deepEqual(many.map(f => f.path), odd.map(p => p[0] === '/' ? p : '/home/user/' + p.replace('~/', '').replaceAll('"', '%22')))
    for (const f of many) assert.equal((await files.read(f.path)).length > 0, true)
    assert.equal(await run('stat -c %U /home/0 /home/0/deep/x'), 'user\nuser\n')
    await files.write('mine', 'x', { user: 'root' })
    assert.equal(await run('stat -c "%U %n" /root/mine; rm /root/mine'), 'root /root/mine\n')
    await assert.rejects(files.write('dir', 'x'), InvalidArgumentError)
    await assert.rejects(files.write('bytes/x', 'x'), /path is a file/)
    await assert.rejects(files.write([{ path: 'twice', data: '1' }, { path: '/home/user/twice', data: '2' }]), InvalidArgumentError)
    await assert.rejects(files.read('nothing'), FileNotFoundError)
    await assert.rejects(files.read('dir'), InvalidArgumentError)
    await assert.rejects(files.read('empty', { user: 'nobodyhere' }), /unknown user nobodyhere/)
    assert.match(await files.read('/proc/self/status'), /^Name:\tbellhopd/)
    await Promise.all([...Array(40).keys()].map(i => files.write(`many/${i % 4}/f`, `${i % 4}`.repeat(5000))))
    for (let i = 0; i < 4; i++) assert.match(await files.read(`many/${i}/f`), new RegExp(`^${i}{5000}$`))
  },
  async gzip() {
    const text = 'all work and no play '.repeat(20000)
    await files.write('z', text, { gzip: true })
    assert.equal(await files.read('z'), text)
    assert.equal(await files.read('z', { gzip: true }), text)
    assert.equal(await run('stat -c %s /home/user/z'), `${text.length}\n`)
    await files.write([{ path: 'z1', data: text }, { path: 'z2', data: 'b' }], { gzip: true })
    assert.equal(await files.read('z2', { gzip: true }), 'b')
  },
  async metadata() {
    assert.deepEqual((await files.write('m', 'x', { metadata: { Author: 'me', note: 'a b' } })).metadata, { author: 'me', note: 'a b' })
    assert.deepEqual((await files.getInfo('m')).metadata, { author: 'me', note: 'a b' })
    assert.equal(await run('python3 -c "import os; print(os.getxattr(\'/home/user/m\', \'user.e2b.author\'))"'), "b'me'\n")
    assert.deepEqual((await files.rename('m', 'm2')).metadata, { author: 'me', note: 'a b' })
    await files.write('m2', 'y', { metadata: { other: '1' }, useOctetStream: true })
    assert.deepEqual((await files.getInfo('m2')).metadata, { other: '1' })
    await files.write('m2', 'z')
    assert.deepEqual((await files.getInfo('m2')).metadata ?? {}, {})
    await assert.rejects(files.write('m2', 'z', { metadata: { big: 'x'.repeat(4096) } }), InvalidArgumentError)
  },
  async tree() {
    assert.equal(await files.makeDir('t/a/b'), true)
    assert.equal(await files.makeDir('t/a/b'), false)
    await files.write('t/f', '1234')
    await assert.rejects(files.makeDir('t/f'), InvalidArgumentError)
    await run('cd /home/user/t && ln -s f link && ln -s nowhere broken && ln -s a dirlink && mkfifo fifo && chmod 4755 f && touch -d @1700000000.5 f')
    const names = async (path, depth) => (await files.list(path, { depth })).map(e => e.path)
    // The SDK leaves out what is of no type that it knows: the fifo and the broken link.
    assert.deepEqual(await names('t', 1), ['a', 'dirlink', 'f', 'link'].map(n => '/home/user/t/' + n))
    assert.deepEqual(await names('t', 3), ['a', 'a/b', 'dirlink', 'f', 'link'].map(n => '/home/user/t/' + n))
    assert.deepEqual(await names('t/dirlink'), ['/home/user/t/dirlink/b'])
    const f = await files.getInfo('t/f')
    assert.deepEqual([f.type, f.size, f.mode, f.permissions, f.owner, f.group, f.modifiedTime.getTime(), f.symlinkTarget],
      [FileType.FILE, 4, 0o755, 'urwxr-xr-x', 'user', 'user', 1700000000500, undefined])
    const link = await files.getInfo('t/link')
    assert.deepEqual([link.type, link.permissions, link.symlinkTarget, link.mode], [FileType.FILE, 'Lrwxrwxrwx', '/home/user/t/f', 0o755])
    const broken = await files.getInfo('t/broken')
    assert.deepEqual([broken.type, broken.mode, broken.symlinkTarget], [undefined, 0, '/home/user/t/broken'])
    assert.equal((await files.getInfo('/tmp')).permissions, 'dtrwxrwxrwx')
    assert.equal((await files.getInfo('/dev/null')).permissions, 'Dcrw-rw-rw-')
    assert.equal((await files.getInfo('t')).type, FileType.DIR)
    assert.equal(await files.exists('t/f'), true)
    assert.equal(await files.exists('t/none'), false)
    const moved = await files.rename('t/f', 'new/place/g')
    assert.deepEqual([moved.path, await files.exists('t/f')], ['/home/user/new/place/g', false])
    assert.equal(await run('stat -c %U /home/user/new'), 'user\n')
    await assert.rejects(files.rename('t/none', 't/x'), FileNotFoundError)
    await assert.rejects(files.list('t/none'), FileNotFoundError)
    await assert.rejects(files.list('new/place/g'), InvalidArgumentError)
    await run('ln -s loop /home/user/loop')
    await assert.rejects(files.list('loop'), SandboxError)
    await files.remove('t')
    await files.remove('t')
    assert.equal(await files.exists('t'), false)
  },
  async watch() {
    const seen = []
    const until = async want => {
      for (let n = 0; !want.every(w => seen.some(e => `${e.type} ${e.name}` === w)); n++) {
        assert(n < 10000, JSON.stringify([want, seen]))
        await new Promise(r => setTimeout(r, 10))
      }
    }
    await files.makeDir('w/sub')
    const h = await files.watchDir('w', e => { seen.push(e) }, { recursive: true, includeEntry: true })
    await files.write('w/f', 'x')
    await until(['write f'])
    assert.deepEqual(seen.map(e => [e.type, e.name]), [[T.CREATE, 'f'], [T.CHMOD, 'f'], [T.WRITE, 'f']])
    assert.deepEqual([seen[2].entry.path, seen[2].entry.size], ['/home/user/w/f', 1])
    await files.write('w/f', 'yz')
    await files.write('w/sub/g', '1')
    await files.makeDir('w/new')
    await until(['create new'])
    await files.write('w/new/h', '1')
    await until(['write sub/g', 'write new/h'])
    await files.rename('w/new', 'w/moved')
    await files.write('w/moved/i', '1')
    await until(['rename new', 'create moved', 'write moved/i'])
    await files.remove('w/f')
    await until(['remove f'])
    assert.equal(seen.find(e => e.type === T.REMOVE).entry, undefined)
    await h.stop()
    await assert.rejects(files.watchDir('none', () => {}), FileNotFoundError)
    await assert.rejects(files.watchDir('w/sub/g', () => {}), InvalidArgumentError)
    let over
    const ended = new Promise(r => { over = r })
    for (const timeoutMs of [300, 3000, 30000]) { // a busy machine may need more of them to start
      const h = await files.watchDir('w', () => {}, { timeoutMs, onExit: over }).catch(e => e)
      if (!(h instanceof Error)) break
    }
    assert(await ended instanceof Error)
  },
  // There and back, by a stream; MB=1024 in tests/long.
  async large() {
    const MB = Number(process.env.MB ?? 64), piece = new Uint8Array(randomBytes(1 << 20))
    const sent = createHash('sha256'), got = createHash('sha256')
    let n = 0, bytes = 0
    await files.write('big', new ReadableStream({
      pull(c) { if (n++ === MB) c.close(); else { piece[0] = n; sent.update(piece); c.enqueue(piece.slice()) } },
    }), { requestTimeoutMs: 0 })
    for await (const b of await files.read('big', { format: 'stream', requestTimeoutMs: 0 })) { bytes += b.length; got.update(b) }
    assert.equal(bytes, MB << 20)
    assert.equal(got.digest('hex'), sent.digest('hex'))
    await files.remove('big')
  },
  async full() {
    await assert.rejects(files.write('/home/small/f', 'x'.repeat(3000000)), NotEnoughSpaceError)
    await assert.rejects(files.write('/home/small/f', stream(new Uint8Array(3000000))), NotEnoughSpaceError)
    await files.write('/home/small/f', 'x')
    assert.equal(await files.read('/home/small/f'), 'x')
  },
  async signed() {
    const path = 'signed dir/a.txt', text = 'signed'
    const up = await sandbox.uploadUrl(path, { user: 'user', useSignatureExpiration: 60 })
    const form = new FormData()
    form.append('file', new Blob([text]), 'a.txt')
    const r = await fetch(up, { method: 'POST', body: form })
    assert.deepEqual([r.status, (await r.json())[0].path], [200, '/home/user/' + path])
    const down = await sandbox.downloadUrl(path, { useSignatureExpiration: 60 })
    assert.equal(await (await fetch(down)).text(), text)
    assert.equal(await (await fetch(await sandbox.downloadUrl(path))).text(), text)
    const refused = async (url, message) => {
      const r = await fetch(url)
      assert.deepEqual([r.status, await r.json()], [401, { code: 401, message }])
    }
    await refused(down.replace(/signature=[^&]*/, 'signature=v1_x'), 'invalid signature')
    await refused(down.replace('a.txt', 'b.txt'), 'invalid signature')
    await refused(up, 'invalid signature') // it is for writing
    await refused(down.replace(/&?signature=[^&]*/, ''), 'missing signature query parameter')
    const old = await getSignature({
      path, operation: 'read', user: undefined, envdAccessToken: process.env.TOKEN, expirationInSeconds: -10,
    })
    const past = new URL(down)
    past.searchParams.set('signature', old.signature)
    past.searchParams.set('signature_expiration', old.expiration)
    await refused(past.href, 'signature is already expired')
  },
}
for (const name of process.argv.slice(2)) await cases[name]()
process.exit(0)
