// sdk.mjs CASE: one case with E2B's own SDK, unmodified.
import assert from 'node:assert/strict'
import { CommandExitError, NotFoundError, Sandbox, TimeoutError } from 'e2b'

const sandbox = await Sandbox.create()
const text = new TextEncoder()

const cases = {
  async run() {
    const r = await sandbox.commands.run('echo "a  b" \'ä\'; echo err >&2; printf end')
    assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'a  b ä\nend', 'err\n'])
    const pieces = []
    await sandbox.commands.run('echo one; echo two', { onStdout: d => pieces.push(d) })
    assert.equal(pieces.join(''), 'one\ntwo\n')
    await assert.rejects(sandbox.commands.run('exit 3'), e => e instanceof CommandExitError && e.exitCode === 3)
    const big = await sandbox.commands.run('head -c 3000000 /dev/zero | tr "\\0" x')
    assert.equal(big.stdout.length, 3000000)
  },
  async where() {
    const run = async (cmd, o) => (await sandbox.commands.run(cmd, o)).stdout
    assert.equal(await run('id -un; pwd'), 'user\n/home/user\n')
    assert.equal(await run('id -un; echo $HOME', { user: 'root' }), 'root\n/root\n')
    assert.equal(await run('pwd', { cwd: '/tmp' }), '/tmp\n')
    assert.equal(await run('echo $A', { envs: { A: 'b c' } }), 'b c\n')
    assert.equal(await run('echo [$A]'), '[]\n')
    await assert.rejects(run('true', { cwd: '/nowhere' }), /cwd '\/nowhere' does not exist/)
    await assert.rejects(run('true', { user: 'nobodyhere' }), /invalid username: 'nobodyhere'/)
  },
  async background() {
    const h = await sandbox.commands.run('sleep 600', { background: true })
    assert((await sandbox.commands.list()).some(p => p.pid === h.pid))
    const again = await sandbox.commands.connect(h.pid)
    assert.equal(again.pid, h.pid)
    assert.equal(await h.kill(), true)
    assert.equal(await h.kill(), false)
    for (const handle of [h, again])
      await assert.rejects(handle.wait(), e => e instanceof CommandExitError && /killed/.test(e.message))
    await assert.rejects(sandbox.commands.run(`kill -0 ${h.pid}`, { user: 'root' }))
    await assert.rejects(sandbox.commands.connect(999999), NotFoundError)
    const kept = await sandbox.commands.run('sleep 600', { background: true, timeoutMs: 0 })
    await kept.disconnect()
    assert.equal(await sandbox.commands.kill(kept.pid), true)
  },
  async stdin() {
    const h = await sandbox.commands.run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(h.pid, 'hello\n')
    await sandbox.commands.sendStdin(h.pid, '')
    await sandbox.commands.sendStdin(h.pid, text.encode('ä\n'))
    await sandbox.commands.closeStdin(h.pid)
    assert.equal((await h.wait()).stdout, 'hello\nä\n')
    assert.equal((await sandbox.commands.run('cat')).stdout, '')
  },
  async timeout() {
    const before = (await sandbox.commands.list()).length
    await assert.rejects(sandbox.commands.run('sleep 600', { timeoutMs: 500 }), TimeoutError)
    for (const end = Date.now() + 60000; (await sandbox.commands.list()).length > before;) assert(Date.now() < end)
  },
  async pty() {
    let seen = ''
    const h = await sandbox.pty.create({
      cols: 80, rows: 24, envs: { A: 'b' }, onData: d => { seen += Buffer.from(d).toString() } })
    const wait = async what => { for (let n = 0; !what.test(seen); n++) {
      assert(n < 6000, seen); await new Promise(r => setTimeout(r, 20)) } }
    await sandbox.pty.sendInput(h.pid, text.encode('echo $A-$((1+1))-$(tput cols)\n'))
    await wait(/b-2-80/)
    await sandbox.pty.resize(h.pid, { cols: 101, rows: 30 })
    await sandbox.pty.sendInput(h.pid, text.encode('tput cols\n'))
    await wait(/101/)
    await sandbox.pty.sendInput(h.pid, text.encode('exit\n'))
    assert.equal((await h.wait()).exitCode, 0)
    const k = await sandbox.pty.create({ cols: 80, rows: 24, onData() {} })
    assert.equal(await sandbox.pty.kill(k.pid), true)
  },
  async parallel() {
    const n = 300
    const all = await Promise.all(Array.from({ length: n }, (_, i) =>
      sandbox.commands.run(`echo ${i}`, { timeoutMs: 0, requestTimeoutMs: 0 })))
    assert.deepEqual(all.map(r => r.stdout), Array.from({ length: n }, (_, i) => `${i}\n`))
  },
  async git() {
    const repo = '/home/user/repo'
    await sandbox.git.init(repo, { initialBranch: 'main' })
    await sandbox.files.write(`${repo}/a.txt`, 'hello\n')
    assert.equal((await sandbox.git.status(repo)).fileStatus.length, 1)
    await sandbox.git.configureUser('Test', 'test@example.com')
    await sandbox.git.add(repo)
    await sandbox.git.commit(repo, 'first')
    assert.equal((await sandbox.git.status(repo)).fileStatus.length, 0)
    await sandbox.git.createBranch(repo, 'other')
    assert.deepEqual((await sandbox.git.branches(repo)).branches.sort(), ['main', 'other'])
    assert.equal((await sandbox.commands.run('git log --format=%an:%s', { cwd: repo })).stdout, 'Test:first\n')
  },
  async running() {
    assert.equal(await sandbox.isRunning(), true)
    // A later command finds the server that an earlier one left listening.
    const h = await sandbox.commands.run('python -m http.server 0 --bind 127.0.0.1 2>&1', { background: true })
    assert.equal(await h.kill(), true)
  },
  async created() {
    assert.match(sandbox.sandboxId, /^i[0-9a-f]{19}$/)
    const other = await Sandbox.create({ envs: { OF_CREATE: 'yes' } })
    assert.equal((await other.commands.run('echo $OF_CREATE')).stdout, 'yes\n')
    const again = await Sandbox.connect(other.sandboxId)
    assert.equal((await again.commands.run('id -un')).stdout, 'user\n')
    assert.equal(await again.kill(), true)
    assert.equal(await other.kill(), false)
  },
}

await cases[process.argv[2]]()
if (!['created'].includes(process.argv[2])) await sandbox.kill()
process.exit(0)
