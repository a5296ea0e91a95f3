// generated.mjs DESCRIPTORS: E2B's services by Connect's own client and protobuf, over HTTP/1.1.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(process.argv[2])))
const text = new TextEncoder()

async function cases() {
  const transport = createConnectTransport({
    baseUrl: process.env.E2B_SANDBOX_URL, httpVersion: '1.1', useBinaryFormat: true })
  const client = createClient(registry.getService('process.Process'), transport)
  const files = createClient(registry.getService('filesystem.Filesystem'), transport)
  const start = async (process, more) => {
    const events = client.start({ process, ...more })[Symbol.asyncIterator]()
    const { event } = (await events.next()).value
    assert.equal(event.event.case, 'start')
    return [events, event.event.value.pid]
  }
  const rest = async events => {
    const seen = { stdout: '', stderr: '' }
    for (let m; !(m = await events.next()).done;) {
      const { case: name, value } = m.value.event.event
      if (name === 'data') seen[value.output.case] += Buffer.from(value.output.value).toString('latin1')
      else if (name === 'end') seen.end = value
    }
    return seen
  }

  const [run] = await start({ cmd: 'sh', args: ['-c', 'printf "$A\\377"; printf err >&2; exit 3'], envs: { A: 'b' } })
  const { stdout, stderr, end } = await rest(run)
  assert.deepEqual([stdout, stderr], ['b\xff', 'err'])
  assert.deepEqual([end.exitCode, end.exited, end.status, end.error], [3, true, 'exit status 3', 'exit status 3'])

  const [cat, pid] = await start({ cmd: 'cat', cwd: '/tmp' }, { tag: 'kept' })
  const selector = { selector: { case: 'pid', value: pid } }
  const { processes } = await client.list({})
  assert.deepEqual(processes.map(p => [p.pid, p.tag, p.config.cmd, p.config.cwd]), [[pid, 'kept', 'cat', '/tmp']])
  await client.sendInput({ process: selector, input: { input: { case: 'stdin', value: text.encode('one ') } } })
  await client.streamInput((async function * () {
    yield { event: { case: 'start', value: { process: { selector: { case: 'tag', value: 'kept' } } } } }
    yield { event: { case: 'keepalive', value: {} } }
    for (const word of ['two ', 'three'])
      yield { event: { case: 'data', value: { input: { input: { case: 'stdin', value: text.encode(word) } } } } }
  })())
  await client.closeStdin({ process: selector })
  const fed = await rest(cat)
  assert.deepEqual([fed.stdout, fed.end.exitCode, fed.end.exited], ['one two three', 0, true])

  const [sh, fed2] = await start({ cmd: 'sh', args: ['-c', 'read x; echo "$x" >&2; exit 5'] })
  const also = client.connect({ process: { selector: { case: 'pid', value: fed2 } } })[Symbol.asyncIterator]()
  assert.equal((await also.next()).value.event.event.value.pid, fed2)
  await client.sendInput({ process: { selector: { case: 'pid', value: fed2 } }, input: { input: { case: 'stdin', value: text.encode('word\n') } } })
  for (const events of [sh, also]) {
    const { stderr, end } = await rest(events)
    assert.deepEqual([stderr, end.exitCode], ['word\n', 5])
  }

  const [sleep, sleeper] = await start({ cmd: 'sleep', args: ['600'] }, { stdin: false })
  await client.sendSignal({ process: { selector: { case: 'pid', value: sleeper } }, signal: 9 })
  assert.deepEqual((({ exitCode, status }) => [exitCode, status])((await rest(sleep)).end), [-1, 'signal: killed'])
  const code = c => e => e instanceof ConnectError && e.code === c
  await assert.rejects(client.sendSignal({ process: selector, signal: 9 }), code(Code.NotFound))
  await assert.rejects(client.update({ process: {} }), code(Code.Unimplemented))
  await assert.rejects(start({ cmd: 'true', cwd: '/nowhere' }), code(Code.InvalidArgument))
  await assert.rejects(async () => {
    for await (const _ of client.start({ process: { cmd: 'sleep', args: ['600'] } }, { timeoutMs: 500 })) ;
  }, code(Code.DeadlineExceeded))

  const dir = 'made'
  const { entry } = await files.makeDir({ path: dir })
  assert.deepEqual([entry.path, entry.type, entry.mode, entry.owner], [`/home/user/${dir}`, 2, 0o755, 'user'])
  assert(Math.abs(Number(entry.modifiedTime.seconds) - Date.now() / 1000) < 60)
  const stop = new AbortController()
  const watch = files.watchDir({ path: dir, includeEntry: true }, { signal: stop.signal })[Symbol.asyncIterator]()
  assert.equal((await watch.next()).value.event.case, 'start')
  await rest((await start({ cmd: 'sh', args: ['-c', 'printf 12345 > a'], cwd: dir }))[0])
  for (const type of [1, 2]) { // created, written
    const { value } = (await watch.next()).value.event
    assert.deepEqual([value.name, value.type, value.entry?.name], ['a', type, 'a'])
  }
  const aborted = assert.rejects(watch.next(), code(Code.Canceled))
  stop.abort()
  await aborted
  const { entries } = await files.listDir({ path: dir, depth: 1 })
  assert.deepEqual(entries.map(e => [e.name, e.type, e.size]), [['a', 1, 5n]])
  assert.equal(entries[0].isSymlink, false)
  await rest((await start({ cmd: 'ln', args: ['-s', 'none', 'link'], cwd: dir }))[0])
  const { entry: link } = await files.stat({ path: `${dir}/link` })
  assert.deepEqual([link.isSymlink, link.type, link.symlinkTarget], [true, 0, `/home/user/${dir}/link`])
  await files.remove({ path: `${dir}/link` })
  await assert.rejects(files.stat({ path: `${dir}/b` }), code(Code.NotFound))
  const { watcherId } = await files.createWatcher({ path: dir, includeEntry: true })
  const moved = await files.move({ source: `${dir}/a`, destination: `${dir}/b` })
  assert.deepEqual([moved.entry.name, moved.entry.path, moved.entry.size], ['b', `/home/user/${dir}/b`, 5n])
  const { events } = await files.getWatcherEvents({ watcherId })
  assert.deepEqual(events.map(e => [e.name, e.type, e.entry?.size]), [['a', 4, undefined], ['b', 1, 5n]])
  await files.removeWatcher({ watcherId })
  await assert.rejects(files.getWatcherEvents({ watcherId }), code(Code.NotFound))
  await files.remove({ path: dir })
}

await cases()
process.exit(0)
