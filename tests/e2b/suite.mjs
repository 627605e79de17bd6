// Drives a running paddock serve with E2B's SDK for JavaScript, unmodified. E2B_API_URL,
// E2B_SANDBOX_URL, E2B_API_KEY and, for another principal, OTHER_KEY say where.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import {
  AuthenticationError, CommandExitError, FileNotFoundError, FileType, FilesystemEventType, InvalidArgumentError, NotFoundError, Sandbox,
  SandboxError, SandboxNotFoundError, TimeoutError,
} from 'e2b'

const base = process.env.E2B_SANDBOX_URL
const other = { apiKey: process.env.OTHER_KEY }
const wait = (ms) => new Promise((done) => setTimeout(done, ms))
// until waits for something that comes soon.
async function until(what, f) {
  for (let n = 0; n < 200; n++) {
    if (await f()) return
    await wait(50)
  }
  assert.fail('never: ' + what)
}

let sbx
before(async () => { sbx = await Sandbox.create({ metadata: { purpose: 'tests', 'k y': 'v w&=' }, envs: { FROM_CREATE: 'yes' } }) })
after(async () => { await sbx.kill() })

describe('control plane', () => {
  test('a sandbox tells what it is', async () => {
    const info = await sbx.getInfo()
    assert.equal(info.sandboxId, sbx.sandboxId)
    assert.match(info.sandboxId, /^[a-z0-9]+$/)
    assert.equal(info.templateId, 'base')
    assert.deepEqual(info.metadata, { purpose: 'tests', 'k y': 'v w&=' })
    assert.equal(info.state, 'running')
    assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
    const left = info.endAt - Date.now()
    assert.ok(left > 200_000 && left <= 300_000, String(left))
    assert.equal(await sbx.isRunning(), true)
  })
  test('lists have pages, states and metadata', async () => {
    const more = await Promise.all([1, 2, 3].map((n) => Sandbox.create({ metadata: { group: 'g', n: String(n) }, timeoutMs: 60_000 })))
    try {
      const paged = Sandbox.list({ query: { metadata: { group: 'g' } }, limit: 2 })
      const first = await paged.nextItems()
      assert.equal(first.length, 2)
      assert.equal(paged.hasNext, true)
      const second = await paged.nextItems()
      assert.equal(second.length, 1)
      assert.equal(paged.hasNext, false)
      await assert.rejects(paged.nextItems(), /No more items/)
      const seen = [...first, ...second]
      assert.deepEqual(new Set(seen.map((s) => s.sandboxId)), new Set(more.map((s) => s.sandboxId)))
      for (let i = 1; i < seen.length; i++) assert.ok(seen[i - 1].startedAt >= seen[i].startedAt)
      const odd = await Sandbox.list({ query: { metadata: { 'k y': 'v w&=' } } }).nextItems()
      assert.deepEqual(odd.map((s) => s.sandboxId), [sbx.sandboxId])
      assert.equal((await Sandbox.list({ query: { metadata: { group: 'none' } } }).nextItems()).length, 0)
      assert.equal((await Sandbox.list({ query: { state: ['paused'] } }).nextItems()).length, 0)
      const asc = await Sandbox.list({ query: { metadata: { group: 'g' } }, order: 'asc' }).nextItems()
      assert.deepEqual(asc.map((s) => s.sandboxId), seen.map((s) => s.sandboxId).reverse())
    } finally {
      assert.deepEqual(await Promise.all(more.map((s) => s.kill())), [true, true, true])
    }
  })
  test('timeouts are kept by the server', async () => {
    const short = await Sandbox.create({ timeoutMs: 60_000 })
    await short.setTimeout(1000)
    await until('it ends', async () => !(await short.isRunning()))
    await assert.rejects(short.getInfo(), SandboxNotFoundError)
    await assert.rejects(short.commands.run('true'), SandboxNotFoundError)
    await assert.rejects(short.files.read('x'), TimeoutError)
    assert.equal(await short.kill(), false)
    await assert.rejects(Sandbox.create({ timeoutMs: 1000 * 3600 * 1000 }), /Timeout cannot be greater/)
  })
  test('connecting only extends', async () => {
    const before = (await sbx.getInfo()).endAt
    await Sandbox.connect(sbx.sandboxId, { timeoutMs: 1000 })
    assert.equal((await sbx.getInfo()).endAt.getTime(), before.getTime())
    const again = await Sandbox.connect(sbx.sandboxId, { timeoutMs: 600_000 })
    assert.equal((await again.commands.run('echo same')).stdout, 'same\n')
    assert.ok((await sbx.getInfo()).endAt > before)
    await assert.rejects(Sandbox.connect('nosuchsandbox'), SandboxNotFoundError)
  })
  test('metrics', async () => {
    let all = []
    await until('a sample', async () => (all = await sbx.getMetrics()).length > 0)
    const one = all[0]
    assert.ok(one.cpuCount > 0 && one.memTotal > 0 && one.memUsed > 0 && one.diskTotal > 0 && one.timestamp instanceof Date)
    assert.equal((await sbx.getMetrics({ start: new Date(0), end: new Date(1000) })).length, 0)
  })
  test('what is not offered says what to use instead', async () => {
    await assert.rejects(Sandbox.create('nosuchtemplate'), /404: template 'nosuchtemplate' not found.*base/)
    await assert.rejects(Sandbox.create({ volumeMounts: { '/mnt/v': 'v' } }), /400: .*no volumes/)
    await assert.rejects(Sandbox.create({ network: { denyOut: ['10.0.0.0/8'] } }), /400: .*addresses/)
    await assert.rejects(sbx.updateNetwork({ allowOut: ['example.com'] }), /501: .*when it is created/)
    const res = await fetch(base + '/v3/templates', { method: 'POST', headers: { 'X-API-KEY': process.env.E2B_API_KEY } })
    assert.equal(res.status, 501)
    assert.match((await res.json()).message, /e2b\.templates/)
  })
})

describe('commands', () => {
  test('a command prints and ends', async () => {
    const r = await sbx.commands.run('echo out; echo err >&2')
    assert.deepEqual([r.stdout, r.stderr, r.exitCode, r.error], ['out\n', 'err\n', 0, undefined])
  })
  test('a failure is an error with what was printed', async () => {
    const err = await sbx.commands.run('echo partly; exit 7').catch((e) => e)
    assert.ok(err instanceof CommandExitError)
    assert.deepEqual([err.exitCode, err.stdout, err.error], [7, 'partly\n', 'exit status 7'])
    const none = await sbx.commands.run('nosuchprogram').catch((e) => e)
    assert.equal(none.exitCode, 127)
  })
  test('environment, folder and user', async () => {
    const r = await sbx.commands.run('echo $FROM_CREATE $MINE; pwd; whoami', { envs: { MINE: 'too' }, cwd: '/tmp' })
    assert.equal(r.stdout, 'yes too\n/tmp\nuser\n')
    assert.equal((await sbx.commands.run('pwd; echo ~')).stdout, '/home/user\n/home/user\n')
    assert.equal((await sbx.commands.run('echo $HOME $USER', { user: 'root' })).stdout, '/root root\n')
    assert.equal((await sbx.commands.run('sudo -u root touch /root/x && sudo echo done')).stdout, 'done\n')
    await assert.rejects(sbx.commands.run('true', { cwd: '/none' }), InvalidArgumentError)
    await assert.rejects(sbx.commands.run('true', { user: 'nobodyknows' }), AuthenticationError)
  })
  test('output comes while it runs, in any characters', async () => {
    const seen = []
    const text = 'ä€😀'.repeat(20_000)
    await sbx.files.write('long.txt', text)
    const r = await sbx.commands.run('cat long.txt; echo; sleep 0.2; echo end', { onStdout: (s) => { seen.push(s) } })
    assert.equal(r.stdout, text + '\nend\n')
    assert.ok(seen.length > 1)
    assert.equal((await sbx.commands.run(`echo 'quo"ted $x' "a  b"`)).stdout, 'quo"ted $x a  b\n')
  })
  test('a command in the background is read from, connected to and killed', async () => {
    const bg = await sbx.commands.run('echo first; read line; echo got $line; sleep 1000', { background: true, stdin: true })
    const there = (await sbx.commands.list()).find((p) => p.pid === bg.pid)
    assert.deepEqual(there.args.slice(0, 2), ['-l', '-c'])
    let second = ''
    const again = await sbx.commands.connect(bg.pid, { onStdout: (s) => { second += s } })
    await bg.sendStdin('hello\n')
    await until('the answer', () => second.includes('got hello'))
    assert.equal(await sbx.commands.kill(bg.pid), true)
    const end = await bg.wait().catch((e) => e)
    assert.ok(end instanceof CommandExitError)
    assert.match(end.error, /signal: killed/)
    await assert.rejects(again.wait(), CommandExitError)
    assert.equal(await sbx.commands.kill(bg.pid), false)
    assert.equal((await sbx.commands.list()).some((p) => p.pid === bg.pid), false)
  })
  test('a process outlives its client', async () => {
    const bg = await sbx.commands.run('sleep 0.5; echo done > survived', { background: true })
    await bg.disconnect()
    await until('the file', () => sbx.files.exists('survived'))
  })
  test('stdin is closed', async () => {
    const bg = await sbx.commands.run('cat', { background: true, stdin: true })
    await sbx.commands.sendStdin(bg.pid, 'text')
    await sbx.commands.closeStdin(bg.pid)
    assert.equal((await bg.wait()).stdout, 'text')
    await assert.rejects(sbx.commands.sendStdin(999_999, 'x'), NotFoundError)
    await assert.rejects(sbx.commands.connect(999_999), NotFoundError)
  })
  test('a timeout ends the command', async () => {
    const err = await sbx.commands.run('sleep 1000.25', { timeoutMs: 500 }).catch((e) => e)
    assert.ok(err instanceof TimeoutError, String(err))
    await until('it is killed', async () => !(await sbx.commands.list()).some((p) => p.args.includes('sleep 1000.25')))
  })
})

describe('terminals', () => {
  test('a shell is typed to, resized and killed', async () => {
    let seen = ''
    const decoder = new TextDecoder()
    const pty = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 0, envs: { ABC: '123' }, onData: (d) => { seen += decoder.decode(d, { stream: true }) } })
    const type = (s) => sbx.pty.sendInput(pty.pid, new TextEncoder().encode(s))
    await type('echo $ABC-$TERM; stty size\n')
    await until('the size', () => seen.includes('24 80'))
    assert.match(seen, /123-xterm-256color/)
    await sbx.pty.resize(pty.pid, { cols: 100, rows: 30 })
    await type('stty size\n')
    await until('the other size', () => seen.includes('30 100'))
    await type('echo now; sleep 1000\n')
    await until('it runs', () => /[\r\n]now/.test(seen))
    await type('\x03')
    await type('echo interrupted:$?\n')
    await until('the interrupt', () => seen.includes('interrupted:130'))
    await type('exit\n')
    assert.equal((await pty.wait()).exitCode, 0)
    const second = await sbx.pty.create({ cols: 80, rows: 24, onData: () => {} })
    assert.equal(await sbx.pty.kill(second.pid), true)
    await assert.rejects(second.wait(), CommandExitError)
    assert.equal(await sbx.pty.kill(second.pid), false)
  })
})

describe('files', () => {
  test('are written and read in every form', async () => {
    const info = await sbx.files.write('dir/sub/file.txt', 'text')
    assert.deepEqual([info.name, info.path, info.type], ['file.txt', '/home/user/dir/sub/file.txt', 'file'])
    assert.equal(await sbx.files.read('dir/sub/file.txt'), 'text')
    assert.equal(await sbx.files.read('~/dir/sub/file.txt'), 'text')
    const bytes = Uint8Array.from({ length: 1 << 20 }, (_, i) => (i * 7) & 255)
    await sbx.files.write('bytes', bytes.buffer)
    assert.deepEqual(await sbx.files.read('bytes', { format: 'bytes' }), bytes)
    assert.equal((await sbx.files.read('bytes', { format: 'blob' })).size, bytes.length)
    let size = 0
    for await (const piece of await sbx.files.read('bytes', { format: 'stream' })) size += piece.length
    assert.equal(size, bytes.length)
    await sbx.files.write('stream', new Blob(['a', 'b']).stream())
    assert.equal(await sbx.files.read('stream'), 'ab')
    await sbx.files.write('packed', 'x'.repeat(10_000), { gzip: true })
    assert.equal((await sbx.files.read('packed', { gzip: true })).length, 10_000)
    await sbx.files.write('empty', '')
    assert.equal(await sbx.files.read('empty'), '')
    assert.equal((await sbx.files.read('empty', { format: 'bytes' })).length, 0)
    const many = await sbx.files.write([{ path: 'm/1', data: 'one' }, { path: '/tmp/m2', data: 'two' }])
    assert.deepEqual(many.map((f) => f.path), ['/home/user/m/1', '/tmp/m2'])
    assert.equal(await sbx.files.read('/tmp/m2'), 'two')
    await sbx.files.write('rooted', 'r', { user: 'root' })
    assert.equal(await sbx.files.read('/root/rooted'), 'r')
  })
  test('carry metadata', async () => {
    await sbx.files.write('meta', 'x', { metadata: { Author: 'ann', n: '1' } })
    assert.deepEqual((await sbx.files.getInfo('meta')).metadata, { author: 'ann', n: '1' })
    await sbx.files.write('meta', 'y')
    assert.equal((await sbx.files.getInfo('meta')).metadata, undefined)
    await assert.rejects(sbx.files.write('meta', 'y', { metadata: { k: 'ä' } }), InvalidArgumentError)
  })
  test('are listed, moved and removed', async () => {
    await sbx.files.makeDir('tree/a/b')
    assert.equal(await sbx.files.makeDir('tree'), false)
    assert.equal(await sbx.files.makeDir('tree/new'), true)
    await sbx.files.write('tree/a/f', '123')
    await sbx.commands.run('ln -s a/f tree/link; chmod 640 tree/a/f')
    assert.deepEqual((await sbx.files.list('tree')).map((e) => e.name), ['a', 'link', 'new'])
    assert.deepEqual((await sbx.files.list('tree', { depth: 3 })).map((e) => e.path.slice('/home/user/tree/'.length)), ['a', 'a/b', 'a/f', 'link', 'new'])
    const info = await sbx.files.getInfo('tree/a/f')
    assert.deepEqual([info.type, info.size, info.mode, info.permissions, info.owner, info.group], [FileType.FILE, 3, 0o640, '-rw-r-----', 'user', 'user'])
    assert.ok(Math.abs(info.modifiedTime - Date.now()) < 600_000)
    const link = await sbx.files.getInfo('tree/link')
    assert.deepEqual([link.type, link.symlinkTarget], [FileType.FILE, '/home/user/tree/a/f'])
    assert.equal((await sbx.files.getInfo('tree/a')).type, FileType.DIR)
    const moved = await sbx.files.rename('tree/a/f', 'tree/far/away/g')
    assert.equal(moved.path, '/home/user/tree/far/away/g')
    assert.equal(await sbx.files.exists('tree/a/f'), false)
    assert.equal(await sbx.files.exists('tree/far/away/g'), true)
    await sbx.files.remove('tree')
    assert.equal(await sbx.files.exists('tree'), false)
    await sbx.files.remove('tree')
  })
  test('misuse is told in the SDK\'s errors', async () => {
    await sbx.files.makeDir('adir')
    await sbx.files.write('afile', 'x')
    await assert.rejects(sbx.files.read('none'), FileNotFoundError)
    await assert.rejects(sbx.files.read('adir'), InvalidArgumentError)
    await assert.rejects(sbx.files.list('none'), FileNotFoundError)
    await assert.rejects(sbx.files.list('afile'), InvalidArgumentError)
    await assert.rejects(sbx.files.list('adir', { depth: 0 }), InvalidArgumentError)
    await assert.rejects(sbx.files.rename('none', 'x'), FileNotFoundError)
    await assert.rejects(sbx.files.getInfo('none'), FileNotFoundError)
    await assert.rejects(sbx.files.write('adir', 'x'), InvalidArgumentError)
    await assert.rejects(sbx.files.makeDir('afile'), InvalidArgumentError)
    await assert.rejects(sbx.files.watchDir('none', () => {}), FileNotFoundError)
    await assert.rejects(sbx.files.watchDir('afile', () => {}), InvalidArgumentError)
    await assert.rejects(sbx.files.read('afile', { user: 'nobodyknows' }), AuthenticationError)
  })
  test('a folder is watched', async () => {
    await sbx.files.makeDir('watched')
    const events = []
    const handle = await sbx.files.watchDir('watched', (e) => { events.push(e) }, { recursive: true, includeEntry: true })
    await sbx.files.write('watched/new', 'x')
    await until('a write', () => events.some((e) => e.type === FilesystemEventType.WRITE && e.name === 'new'))
    const created = events.find((e) => e.type === FilesystemEventType.CREATE)
    assert.deepEqual([created.name, created.entry.path], ['new', '/home/user/watched/new'])
    await sbx.files.makeDir('watched/sub')
    await until('the folder', () => events.some((e) => e.name === 'sub'))
    await sbx.files.write('watched/sub/deep', 'x')
    await until('below', () => events.some((e) => e.name === 'sub/deep'))
    await sbx.commands.run('chmod 600 watched/new; mv watched/new watched/old; rm watched/old')
    await until('all kinds', () => [FilesystemEventType.CHMOD, FilesystemEventType.RENAME, FilesystemEventType.REMOVE].every((k) => events.some((e) => e.type === k)))
    await handle.stop()
  })
  test('are moved by signed URLs', async () => {
    await sbx.files.write('signed.txt', 'by url')
    const get = async (url, o) => { const r = await fetch(url, o); return [r.status, await r.text()] }
    assert.deepEqual(await get(await sbx.downloadUrl('signed.txt')), [200, 'by url'])
    assert.deepEqual(await get(await sbx.downloadUrl('signed.txt', { user: 'user', useSignatureExpiration: 60 })), [200, 'by url'])
    const late = await get(await sbx.downloadUrl('signed.txt', { useSignatureExpiration: -10 }))
    assert.equal(late[0], 401)
    assert.match(late[1], /signature is already expired/)
    const url = new URL(await sbx.downloadUrl('signed.txt'))
    url.searchParams.set('path', '/etc/passwd')
    assert.equal((await get(url))[0], 401)
    url.searchParams.delete('signature')
    assert.equal((await get(url))[0], 401)
    // One for reading does not write.
    const form = new FormData()
    form.append('file', new Blob(['up']), 'x')
    assert.equal((await get(await sbx.downloadUrl('signed.txt'), { method: 'POST', body: form }))[0], 401)
    assert.equal((await get(await sbx.uploadUrl('up.txt'), { method: 'POST', body: form }))[0], 200)
    assert.equal(await sbx.files.read('up.txt'), 'up')
  })
})

describe('pause, fork and snapshots', () => {
  test('a paused sandbox goes on where it was', async () => {
    const one = await Sandbox.create()
    await one.files.write('f', 'kept')
    const bg = await one.commands.run('sleep 0.3; echo more; sleep 1000', { background: true })
    assert.equal(await one.pause(), true)
    assert.equal(await one.pause(), false)
    assert.equal((await one.getInfo()).state, 'paused')
    assert.equal(await one.isRunning(), false)
    await assert.rejects(one.files.read('f'), TimeoutError)
    assert.deepEqual((await Sandbox.list({ query: { state: ['paused'] } }).nextItems()).map((s) => s.sandboxId), [one.sandboxId])
    const again = await Sandbox.connect(one.sandboxId)
    assert.equal(await again.files.read('f'), 'kept')
    assert.ok((await again.commands.list()).some((p) => p.pid === bg.pid))
    assert.equal(await again.commands.kill(bg.pid), true)
    await bg.disconnect()
    // Without its memory it boots afresh.
    await again.commands.run('sleep 1000', { background: true, timeoutMs: 0 }).then((h) => h.disconnect())
    assert.equal(await again.pause({ keepMemory: false }), true)
    await again.connect()
    assert.equal(await again.files.read('f'), 'kept')
    assert.equal((await again.commands.list()).length, 0)
    await again.kill()
    await assert.rejects(one.pause(), SandboxNotFoundError)
    await assert.rejects(Sandbox.connect(one.sandboxId), SandboxNotFoundError)
  })
  test('at its time it pauses, and traffic wakes it', async () => {
    const one = await Sandbox.create({ timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
    const two = await Sandbox.create({ timeoutMs: 60_000, lifecycle: { onTimeout: 'pause' } })
    assert.deepEqual((await one.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
    await Promise.all([one.setTimeout(500), two.setTimeout(500)])
    await until('both pause', async () => (await one.getInfo()).state === 'paused' && (await two.getInfo()).state === 'paused')
    await until('the second is saved', async () => (await two.commands.run('true').catch((e) => e)) instanceof SandboxNotFoundError)
    assert.equal((await one.commands.run('echo awake')).stdout, 'awake\n')
    await Promise.all([one.kill(), two.kill()])
  })
  test('forks and snapshots begin alike and go apart', async () => {
    await sbx.files.write('shared', 'before')
    const forks = await sbx.fork({ count: 2 })
    assert.equal(forks.length, 2)
    await sbx.files.write('shared', 'after')
    for (const f of forks) {
      assert.ok(f instanceof Sandbox, String(f))
      assert.equal(await f.files.read('shared'), 'before')
      assert.equal((await f.commands.run('echo $FROM_CREATE')).stdout, 'yes\n')
    }
    await forks[0].files.write('shared', 'own')
    assert.equal(await forks[1].files.read('shared'), 'before')
    await Promise.all(forks.map((f) => f.kill()))
    const snap = await sbx.createSnapshot({ name: 'mine' })
    await sbx.files.write('shared', 'later')
    assert.deepEqual((await sbx.listSnapshots().nextItems()).map((s) => s.snapshotId), [snap.snapshotId])
    assert.deepEqual(snap.names, ['mine'])
    const from = await Sandbox.create(snap.snapshotId, { envs: { FROM_CREATE: 'anew' } })
    assert.equal(await from.files.read('shared'), 'after')
    assert.equal((await from.commands.run('echo $FROM_CREATE')).stdout, 'anew\n')
    await from.kill()
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
    await assert.rejects(Sandbox.create(snap.snapshotId), /404/)
    await assert.rejects(Sandbox.fork('nosuchsandbox'), SandboxNotFoundError)
  })
})

describe('security', () => {
  const call = async (path, headers = {}, o = {}) => {
    const r = await fetch(base + path, { headers, ...o })
    return [r.status, await r.text()]
  }
  test('another principal\'s sandbox does not exist', async () => {
    await assert.rejects(Sandbox.connect(sbx.sandboxId, other), SandboxNotFoundError)
    await assert.rejects(Sandbox.getInfo(sbx.sandboxId, other), SandboxNotFoundError)
    await assert.rejects(Sandbox.setTimeout(sbx.sandboxId, 1000, other), SandboxNotFoundError)
    await assert.rejects(Sandbox.pause(sbx.sandboxId, other), SandboxNotFoundError)
    await assert.rejects(Sandbox.fork(sbx.sandboxId, other), SandboxNotFoundError)
    await assert.rejects(Sandbox.createSnapshot(sbx.sandboxId, other), SandboxNotFoundError)
    await assert.rejects(Sandbox.getMetrics(sbx.sandboxId, other), SandboxNotFoundError)
    assert.equal(await Sandbox.kill(sbx.sandboxId, other), false)
    assert.equal((await Sandbox.list(other).nextItems()).length, 0)
    const theirs = await Sandbox.create({ ...other })
    try {
      // Their token opens nothing of ours.
      const headers = { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': theirs.envdAccessToken }
      assert.equal((await call('/files?path=afile', headers))[0], 401)
      assert.equal((await call('/files?path=afile', { ...headers, 'X-Access-Token': '' }))[0], 401)
    } finally {
      await theirs.kill()
    }
  })
  test('a wrong key is refused', async () => {
    const wrong = { apiKey: 'e2b_' + '0'.repeat(92) }
    await assert.rejects(Sandbox.create(wrong), AuthenticationError)
    await assert.rejects(Sandbox.list(wrong).nextItems(), AuthenticationError)
    await assert.rejects(Sandbox.kill(sbx.sandboxId, wrong), AuthenticationError)
    assert.equal((await call('/sandboxes'))[0], 401)
    assert.deepEqual(JSON.parse((await call('/sandboxes', { 'X-API-KEY': wrong.apiKey }))[1]).code, 401)
  })
  test('a sandbox that is not there answers 502, and what is internal does not', async () => {
    const there = { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': sbx.envdAccessToken }
    const gone = await call('/health', { ...there, 'E2b-Sandbox-Id': 'nosuchsandbox' })
    assert.equal(gone[0], 502)
    assert.deepEqual(JSON.parse(gone[1]), { sandboxId: 'nosuchsandbox', message: 'The sandbox was not found', code: 502 })
    assert.equal((await call('/paddock/setup', there, { method: 'POST', body: '{}' }))[0], 404)
    assert.equal((await call('/init', there, { method: 'POST', body: '{}' }))[0], 404)
    assert.equal((await call('/health', { 'E2b-Sandbox-Id': sbx.sandboxId }))[0], 204)
    // No port of the machine leads to the daemon.
    const inside = await sbx.commands.run('(exec 3<>/dev/tcp/127.0.0.1/49983) 2>/dev/null && echo open || echo closed')
    assert.equal(inside.stdout, 'closed\n')
  })
  test('a port opens with its token only', async () => {
    const server = await sbx.commands.run('python3 -m http.server 8123', { background: true, timeoutMs: 0 })
    const at = (h) => call('/', { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '8123', ...h })
    const token = { 'E2b-Traffic-Access-Token': sbx.trafficAccessToken }
    await until('it listens', async () => (await at(token))[0] === 200)
    assert.equal((await at({}))[0], 401)
    assert.equal((await at({ 'E2b-Traffic-Access-Token': 'x' }))[0], 401)
    assert.equal((await call('/', { 'E2b-Sandbox-Id': sbx.sandboxId, 'E2b-Sandbox-Port': '8124', ...token }))[0], 502)
    await server.kill()
  })
  test('without the internet nothing is reached', async () => {
    const offline = await Sandbox.create({ allowInternetAccess: false })
    assert.equal((await offline.getInfo()).allowInternetAccess, false)
    const r = await offline.commands.run('curl -s -o /dev/null -w "%{http_code}" http://example.com || true')
    assert.doesNotMatch(r.stdout, /^2/)
    await offline.kill()
  })
  test('a kill ends what is under way, and says so', async () => {
    const one = await Sandbox.create()
    const bg = await one.commands.run('sleep 1000', { background: true })
    assert.equal(await one.kill(), true)
    const err = await bg.wait().catch((e) => e)
    assert.ok(err instanceof TimeoutError, String(err))
    assert.match(err.message, /The sandbox was killed/)
    assert.ok(!(err instanceof SandboxError) || err instanceof TimeoutError)
  })
})
