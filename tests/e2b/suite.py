"""Drives a running paddock serve with E2B's SDK for Python, unmodified: the synchronous
client and the asynchronous one. The same steps are written once, for both."""

import asyncio
import inspect
import os
import time

import e2b
from e2b import AsyncSandbox, PtySize, Sandbox
from e2b import (
    AuthenticationException, CommandExitException, FileNotFoundException, FileType, InvalidArgumentException,
    NotFoundException, SandboxNotFoundException, TimeoutException,
)
from e2b.sandbox.filesystem.watch_handle import FilesystemEventType

OTHER = {"api_key": os.environ["OTHER_KEY"]}


async def now(value):
    """The value of a call of either client."""
    return await value if inspect.isawaitable(value) else value


async def refused(kind, call, says=""):
    try:
        await now(call())
    except kind as e:
        assert says in str(e), f"{e!r} does not say {says!r}"
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


async def until(what, call):
    for _ in range(200):
        if await now(call()):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("never: " + what)


async def control_plane(client, sbx):
    info = await now(sbx.get_info())
    assert info.sandbox_id == sbx.sandbox_id and info.template_id == "base", info
    assert info.metadata == {"client": client.__name__, "k y": "v w&="}, info
    assert await now(sbx.is_running())
    page = client.list(query=e2b.SandboxQuery(metadata={"k y": "v w&=", "client": client.__name__}))
    assert [s.sandbox_id for s in await now(page.next_items())] == [sbx.sandbox_id]
    assert not page.has_next
    await now(sbx.set_timeout(120))
    assert 60 < ((await now(sbx.get_info())).end_at.timestamp() - time.time()) <= 120
    again = await now(client.connect(sbx.sandbox_id, timeout=1))
    assert again.sandbox_id == sbx.sandbox_id
    assert (await now(sbx.get_info())).end_at.timestamp() - time.time() > 60
    await until("metrics", lambda: sbx.get_metrics())
    await refused(SandboxNotFoundException, lambda: client.connect("nosuchsandbox"))
    await refused(SandboxNotFoundException, lambda: client.connect(sbx.sandbox_id, **OTHER))
    await refused(e2b.SandboxException, lambda: client.create("nosuchtemplate"), "template 'nosuchtemplate' not found")
    await refused(AuthenticationException, lambda: client.create(api_key="e2b_" + "0" * 92))


async def commands(sbx):
    r = await now(sbx.commands.run("echo out; echo err >&2"))
    assert (r.stdout, r.stderr, r.exit_code, r.error) == ("out\n", "err\n", 0, None), r
    e = await refused(CommandExitException, lambda: sbx.commands.run("echo partly; exit 7"))
    assert (e.exit_code, e.stdout) == (7, "partly\n"), e
    r = await now(sbx.commands.run("echo $FROM_CREATE $MINE; pwd; whoami", envs={"MINE": "too"}, cwd="/tmp"))
    assert r.stdout == "yes too\n/tmp\nuser\n", r
    await refused(InvalidArgumentException, lambda: sbx.commands.run("true", cwd="/none"))
    await refused(AuthenticationException, lambda: sbx.commands.run("true", user="nobodyknows"))
    bg = await now(sbx.commands.run("read line; echo got $line > line; sleep 1000", background=True, stdin=True))
    assert bg.pid in [p.pid for p in await now(sbx.commands.list())]
    await now(sbx.commands.send_stdin(bg.pid, "hello\n"))
    await until("the line is read", lambda: sbx.files.exists("line"))
    assert await now(sbx.commands.kill(bg.pid)) is True
    await refused(CommandExitException, lambda: bg.wait())
    assert await now(sbx.commands.kill(bg.pid)) is False
    cat = await now(sbx.commands.run("cat", background=True, stdin=True))
    await now(sbx.commands.send_stdin(cat.pid, "text"))
    await now(sbx.commands.close_stdin(cat.pid))
    assert (await now(cat.wait())).stdout == "text"
    await refused(NotFoundException, lambda: sbx.commands.send_stdin(999999, "x"))
    await refused(NotFoundException, lambda: sbx.commands.connect(999999))
    await refused(TimeoutException, lambda: sbx.commands.run("sleep 1000.25", timeout=1))
    seen = []
    await now(sbx.commands.run("echo one; sleep 0.2; echo two", on_stdout=seen.append))
    assert "".join(seen) == "one\ntwo\n" and len(seen) > 1, seen


async def terminals(client, sbx):
    size = PtySize(rows=24, cols=80)
    seen = []
    if client is AsyncSandbox:
        pty = await sbx.pty.create(size, on_data=lambda b: seen.append(b))
    else:
        pty = sbx.pty.create(size)
    await now(sbx.pty.resize(pty.pid, PtySize(rows=30, cols=100)))
    await now(sbx.pty.send_stdin(pty.pid, b"stty size; exit\n"))
    r = await now(pty.wait() if client is AsyncSandbox else pty.wait(on_pty=seen.append))
    assert r.exit_code == 0 and b"30 100" in b"".join(bytes(b) for b in seen), seen
    pty = await now(sbx.pty.create(size, on_data=lambda b: None) if client is AsyncSandbox else sbx.pty.create(size))
    assert await now(sbx.pty.kill(pty.pid)) is True
    assert await now(sbx.pty.kill(pty.pid)) is False


async def files(client, sbx):
    info = await now(sbx.files.write("dir/file.txt", "text"))
    assert (info.name, info.path) == ("file.txt", "/home/user/dir/file.txt"), info
    assert await now(sbx.files.read("dir/file.txt")) == "text"
    data = bytes(range(256)) * 1024
    await now(sbx.files.write("bytes", data))
    assert await now(sbx.files.read("bytes", format="bytes")) == data
    many = await now(sbx.files.write_files([{"path": "m/1", "data": "one"}, {"path": "/tmp/m2", "data": b"two"}]))
    assert [f.path for f in many] == ["/home/user/m/1", "/tmp/m2"], many
    await now(sbx.files.write("meta", "x", metadata={"Author": "ann"}))
    assert (await now(sbx.files.get_info("meta"))).metadata == {"author": "ann"}
    assert await now(sbx.files.make_dir("tree/a")) is True
    assert await now(sbx.files.make_dir("tree/a")) is False
    await now(sbx.files.write("tree/a/f", "1"))
    assert [x.name for x in await now(sbx.files.list("tree", depth=2))] == ["a", "f"]
    assert (await now(sbx.files.get_info("tree/a"))).type == FileType.DIR
    assert (await now(sbx.files.rename("tree/a/f", "tree/b/g"))).path == "/home/user/tree/b/g"
    assert await now(sbx.files.exists("tree/b/g")) and not await now(sbx.files.exists("tree/a/f"))
    await now(sbx.files.remove("tree"))
    assert not await now(sbx.files.exists("tree"))
    await refused(FileNotFoundException, lambda: sbx.files.read("none"))
    await refused(FileNotFoundException, lambda: sbx.files.list("none"))
    await refused(InvalidArgumentException, lambda: sbx.files.list("bytes"))
    await refused(InvalidArgumentException, lambda: sbx.files.write("dir", "x"))
    await now(sbx.files.make_dir("watched"))
    seen = []
    if client is AsyncSandbox:
        handle = await sbx.files.watch_dir("watched", on_event=seen.append, recursive=True)
        new = lambda: seen
    else:
        handle = sbx.files.watch_dir("watched", recursive=True)
        new = lambda: seen.extend(handle.get_new_events()) or seen
    await now(sbx.files.write("watched/new", "x"))
    await until("a write", lambda: any(x.type == FilesystemEventType.WRITE and x.name == "new" for x in new()))
    await now(handle.stop())


async def states(client, sbx):
    await now(sbx.files.write("shared", "before"))
    sleeper = await now(sbx.commands.run("sleep 1000", background=True, timeout=0))
    forks = await now(sbx.fork())
    await now(sbx.files.write("shared", "after"))
    assert await now(forks[0].files.read("shared")) == "before"
    assert await now(forks[0].kill()) is True
    snap = await now(sbx.create_snapshot())
    listed = sbx.list_snapshots()
    assert [s.snapshot_id for s in await now(listed.next_items())] == [snap.snapshot_id]
    copy = await now(client.create(snap.snapshot_id))
    assert await now(copy.files.read("shared")) == "after"
    await now(copy.kill())
    assert await now(client.delete_snapshot(snap.snapshot_id)) is True
    await now(sbx.pause())
    assert not await now(sbx.is_running())
    await now(sbx.connect())
    assert sleeper.pid in [p.pid for p in await now(sbx.commands.list())]
    assert await now(sbx.kill()) is True
    assert await now(sbx.kill()) is False
    await refused(TimeoutException, lambda: sbx.files.read("shared"))


async def main():
    for client in (Sandbox, AsyncSandbox):
        sbx = await now(client.create(metadata={"client": client.__name__, "k y": "v w&="}, envs={"FROM_CREATE": "yes"}))
        for step in (control_plane, commands, terminals, files, states):
            began = time.time()
            await (step(sbx) if step is commands else step(client, sbx))
            print(client.__name__, step.__name__, f"{time.time() - began:.2f} s", flush=True)


asyncio.run(main())
