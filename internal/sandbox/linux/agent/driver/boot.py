"""The Python kernel on Linux: what the driver of the WebAssembly guest (SOURCES)
needs in the place of WebAssembly, and its connection to the agent.

Executed by `python3 -c` as it starts, before anything of a program's, with
builtins of its own. The text comes over descriptor 3, the connection is
descriptor 4, and what programs ask of the host goes over 5.
"""
import sys

sys.path[:] = [p for p in sys.path if p]  # no json.py of the program's is the driver's

import errno
import fcntl
import io
import json
import os
import signal
import socket
import struct
import types

import _posixsubprocess
import _thread

try:
    import resource
except ImportError:  # a small Python has none: what its program starts keeps the interpreter's limits
    resource = None

for _name in sys.argv[1:]:  # settings of this process alone
    os.environ.pop(_name, None)

HEADER = struct.Struct("<cII")
FIRST = 200            # descriptors from here on are the driver's
READ_AHEAD = 1 << 16

_pack, _unpack, _Error, _KeyboardInterrupt = HEADER.pack, HEADER.unpack, OSError, KeyboardInterrupt
_getpid, _exit, _set_signal, _get_signal = os.getpid, os._exit, signal.signal, signal.getsignal
_SIGINT, _SIGKILL, _kill = signal.SIGINT, signal.SIGKILL, os.kill
_ident = _thread.get_ident
MAIN = _ident()
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA) if resource else ()
_get_limit, _set_limit = (resource.getrlimit, resource.setrlimit) if resource else (None, None)


class Connection:
    """The socket to the agent: frames of a kind, a number and bytes."""

    def __init__(self, fd):
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST)
        os.close(fd)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=high)
        self.receive_into, self.send_all = self.socket.recv_into, self.socket.sendall
        self.pid = _getpid()
        self.number = 0
        self.lock = _thread.allocate_lock()

    def receive(self):
        kind, number, length = _unpack(self.exactly(HEADER.size))
        return kind, number, bytes(self.exactly(length))

    def exactly(self, n):
        data = bytearray(n)
        view, at = memoryview(data), 0
        while at < n:
            got = self.receive_into(view[at:])
            if got == 0:
                _kill(_getpid(), _SIGKILL)  # the agent is gone
            at += got
        return data

    def send(self, kind, number, body):
        self.send_all(_pack(kind, number, len(body)) + body)

    def call(self, message):
        """Sends the agent a message and gives its reply."""
        if _getpid() != self.pid:
            return b'{"error":"not from here"}'  # a child of the program's
        if state.parked and _ident() == MAIN:
            return b'{"error":"the program waits"}'  # what an inspection calls
        if _ident() != MAIN:
            with self.lock:
                return self.talk(message)
        # An interrupt between two bytes would lose the rest. The agent replies at
        # once when it interrupts.
        state.held = True
        try:
            with self.lock:
                reply = self.talk(message)
        finally:
            state.held = False
        if state.pending:
            state.pending = False
            raise _KeyboardInterrupt
        return reply

    def talk(self, message):
        self.number = (self.number + 1) & 0xFFFFFFFF
        self.send(b"m", self.number, message)
        while True:
            kind, number, body = self.receive()
            if kind == b"r" and number == self.number:
                return body


class Calls:
    """What programs ask of the host, from any thread: frames of a call's number and what it
    says. Another thread, which begins with the first call, takes the answers.

    It also hears when the program may be left as it waits: park() does that, in the main
    thread, which is in ask() then, or in a loop that has nothing else to do."""

    def __init__(self, fd):
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST)
        os.close(fd)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=high)
        self.lock = _thread.allocate_lock()
        self.number, self.reading, self.waiting = 0, False, {}
        self.leave = 0     # the request whose program may be left as it waits
        self.came = None   # wakes the main thread, where that waits in ask()
        self.loop = None   # that the main thread ran last

    def start(self, body, deliver):
        """Sends a call; deliver is called in the other thread, with the answer or None."""
        if _getpid() != connection.pid:
            deliver(None)  # a child of the program's
            return 0
        with self.lock:
            if not self.reading:
                self.reading = True
                _thread.start_new_thread(self.read, ())
            self.number = number = (self.number % 0xFFFFFFFF) + 1
            self.waiting[number] = deliver
        self.send(b"c", number, body)
        return number

    def send(self, kind, number, body):
        with self.lock:
            self.socket.sendall(_pack(kind, number, len(body)) + body)

    def read(self):
        incoming = self.socket.makefile("rb", READ_AHEAD)
        while True:
            header = incoming.read(HEADER.size)
            if len(header) < HEADER.size:
                return  # the agent is gone, or the program closed it
            kind, number, length = _unpack(header)
            body = incoming.read(length)
            if kind == b"s":
                self.leave = number
                wake(self.came)
                self.look_soon(self.loop)
                continue
            deliver = self.waiting.pop(number, None)
            if deliver is not None:
                deliver(_scan(body.decode(), 0)[0] if body else None)

    def give_up(self, number):
        if self.waiting.pop(number, None) is not None:
            self.send(b"g", number, b"")

    def ask(self, body):
        """Calls the host and waits for the answer; None: nothing answers."""
        came, answer = _thread.allocate_lock(), []
        came.acquire()
        number, main = 0, _ident() == MAIN
        if main:
            self.came = came
        try:
            number = self.start(body, lambda text: (answer.append(text), wake(came)))
            while not answer:
                if main and self.may_leave():
                    park()
                came.acquire()
        except _KeyboardInterrupt:
            self.give_up(number)
            raise
        finally:
            if main:
                self.came = None
        return answer[0]

    def begin(self, body):
        """Calls the host and gives a future of the answer."""
        import asyncio
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if _ident() == MAIN:
            self.runs(loop)

        def settle(answer):
            if not future.done():
                future.set_result(answer)

        def deliver(answer):
            try:
                loop.call_soon_threadsafe(settle, answer)
            except RuntimeError:
                pass  # the loop was closed
        number = self.start(body, deliver)
        future.add_done_callback(lambda future: self.give_up(number) if future.cancelled() else None)
        return future

    def may_leave(self):
        return self.leave == state.number and state.busy and _getpid() == connection.pid

    def runs(self, loop):
        """Is told of a loop that the main thread runs."""
        self.loop = loop
        if self.may_leave():
            self.look_soon(loop)

    def look_soon(self, loop):
        try:
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self.look, loop)
        except RuntimeError:
            pass  # it was closed just now

    def look(self, loop):
        """Leaves the program where its loop, which calls this, has nothing else to do."""
        if not self.may_leave():
            return
        if self.waiting and idle(loop) and _ident() == MAIN:
            park()
        else:
            loop.call_later(LOOK_AGAIN, self.look, loop)


LOOK_AGAIN = 0.02  # seconds


def wake(lock):
    try:
        if lock is not None:
            lock.release()
    except RuntimeError:
        pass  # it is awake


def idle(loop):
    """Tells whether a loop waits for nothing but what its threads say, and time."""
    try:
        return not loop._ready and len(loop._selector.get_map()) <= 1  # the one is how threads wake it
    except (AttributeError, TypeError):
        return False  # it is none of asyncio's own


def park():
    """Leaves the program as it is until the agent says how it goes on."""
    driver.driver.flush()
    state.held = True
    try:
        with connection.lock:  # what other threads want is the run's as well
            state.parked = True
            connection.send(b"a", state.number, b'{"status":"waiting"}')
            while True:
                kind, number, body = connection.receive()
                if kind == b"q":
                    state.number = number
                    if body.startswith((RESUME, INTERRUPT)):
                        break
                    connection.send(b"a", number, driver.handle(body))
            state.pending = body.startswith(INTERRUPT)
            connection.send(b"b", state.number, b"")
    finally:
        state.parked = state.held = False
    if state.pending:
        state.pending = False
        raise _KeyboardInterrupt


class State:
    busy = False     # a program runs, and can be interrupted
    held = False     # it has to wait
    pending = False  # one came while it was held
    parked = False   # it was left as it waits, see park
    number = 0       # of the request that has to be answered


state = State()
connection = Connection(4)
calls = Calls(5)
_scan = json.JSONDecoder().scan_once


def interrupted(number, frame):
    if not state.busy:
        return  # it came too late
    if state.held:
        state.pending = True
        return
    raise _KeyboardInterrupt


class Stdin(io.RawIOBase):
    """What the program reads, asked for when it does."""

    def __init__(self):
        self.rest, self.ended = b"", False

    def readable(self):
        return True

    def fileno(self):
        return 0

    def readinto(self, to):
        if not self.rest and not self.ended:
            self.rest = connection.call(b'{"op":"stdin"}\n') if _getpid() == connection.pid else b""
            self.ended = not self.rest
        n = min(len(to), len(self.rest))
        to[:n], self.rest = self.rest[:n], self.rest[n:]
        return n


class Loop:
    """asyncio's own loop, which runs while the program waits and stands still between calls."""

    def __init__(self):
        import asyncio
        self.asyncio = asyncio
        self.loop = asyncio.new_event_loop()

    def is_closed(self):
        return self.loop.is_closed()

    def create_task(self, coroutine, context):
        if sys.version_info >= (3, 11):
            return self.loop.create_task(coroutine, context=context)
        return context.run(self.loop.create_task, coroutine)

    def step(self, task):
        self.asyncio.set_event_loop(self.loop)
        task.add_done_callback(self.stop)
        calls.runs(self.loop)
        try:
            self.run(task)
        except _KeyboardInterrupt:
            task.cancel()
            self.run(task)  # it cleans up, for as long as its grace lasts
            raise
        finally:
            task.remove_done_callback(self.stop)
        return None

    def run(self, task):
        while not task.done():
            self.loop.run_forever()

    def stop(self, task):
        self.loop.stop()


def unraisable(what):
    """An interrupt that hits where Python can raise nothing comes again."""
    if what.exc_type is _KeyboardInterrupt:
        os.kill(_getpid(), _SIGINT)
    else:
        sys.__unraisablehook__(what)


def module(name, **names):
    made = types.ModuleType(name)
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


def load(name):
    made = module(name)
    exec(compile(SOURCES[name], name + ".py", "exec"), made.__dict__)
    return made


# ── the place ───────────────────────────────────────────────────────────────

LIBRARY = tuple({os.path.dirname(os.__file__), sys.prefix, sys.base_prefix, "/usr/", "<frozen", "<paddock>", "_paddock_"})
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the last is a limit of one file's size
NO_NETWORK = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)


def own(filename):
    """Tells whether a file's code is the program's."""
    if filename.startswith("<cell") or filename in driver.driver.sources:
        return True
    return filename[:1] == "/" and not filename.startswith(LIBRARY)  # compiled modules name sources that are not here


def hint_of(error):
    """What can be done about an error that has to do with the place; nothing: ""."""
    if issubclass(type(error), ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        return f"{name} is not installed in this image; the image's Python packages and the standard library are there"
    if unreachable(error):
        if os.environ.get("HTTP_PROXY"):
            return "only HTTP leaves this sandbox, through the proxy that HTTP_PROXY names: use urllib, requests or httpx without settings of their own; names are not resolved here"
        return "there is no network in this sandbox; only what listens in it can be reached, on 127.0.0.1; who runs the server can allow hosts (network.allow, PADDOCK_NET_ALLOW)"
    return ""


def unreachable(error):
    """Tells whether an error, or one that it comes from, is that there is no network."""
    for _ in range(10):
        kind = type(error)
        if issubclass(kind, socket.gaierror) or issubclass(kind, _Error) and error.errno in NO_NETWORK:
            return True
        reason = getattr(error, "reason", None)
        error = reason if issubclass(type(reason), _Error) else error.__cause__ or error.__context__
        if error is None:
            return False
    return False


module("_paddock", call=connection.call, unraisable=unraisable, reseed=lambda: None)
module("_paddock_loop", Loop=Loop, give_up=lambda: None, forget=lambda: None, arrived=lambda replies: None, ask=calls.ask, begin=calls.begin)
module("_paddock_place", own=own, hint_of=hint_of, NO_SPACE=NO_SPACE)
for _name in "_paddock_display", "_paddock_servers", "_paddock_errors":
    load(_name)
driver = load("_paddock_driver")
del SOURCES


def without_limit(start):
    """What the program starts has the limits of the box, and not those of the interpreter's memory."""
    def started(*args):
        limits = [_get_limit(which) for which in _LIMITS]
        try:
            for which, (_, most) in zip(_LIMITS, limits):
                _set_limit(which, (most, most))
            return start(*args)
        finally:
            for which, limit in zip(_LIMITS, limits):
                _set_limit(which, limit)
    return started


def in_child():
    """A child of the program's is not the kernel, and neither is a child of that."""
    if connection.socket.fileno() < 0:
        return
    os.close(connection.socket.detach())
    os.close(calls.socket.detach())
    _set_signal(_SIGINT, signal.default_int_handler)
    for which in _LIMITS:
        _set_limit(which, (_get_limit(which)[1],) * 2)


def prepare():
    import warnings
    _posixsubprocess.fork_exec = without_limit(_posixsubprocess.fork_exec)
    os.system = without_limit(os.system)
    os.register_at_fork(after_in_child=in_child)
    driver.driver.furnish()
    sys.argv = [""]
    sys.path.insert(0, os.getcwd())
    warnings.filterwarnings("ignore", message=".*non-interactive, and thus cannot be shown")
    warnings.filterwarnings("ignore", message=".*is multi-threaded, use of fork")  # our thread holds no lock of the program's


_stdin = None


def fresh_stdin():
    """Gives a run input of its own, unless the program has put something else there."""
    global _stdin
    if _stdin is None or sys.stdin is _stdin:
        _stdin = sys.stdin = sys.__stdin__ = io.TextIOWrapper(
            io.BufferedReader(Stdin(), READ_AHEAD), encoding="utf-8", errors="replace")


HELLO = b'{"op":"hello",'
AWAKEN = b'{"op":"awaken",'
RESUME = b'{"op":"resume",'
INTERRUPT = b'{"op":"interrupt",'
LATE = b'{"status":"done","exit_code":130,"error":{"type":"KeyboardInterrupt","message":"","line":0,"kind":"interrupted"}}'


def answer(number, body):
    """The driver's answer, which an interrupt may cut short but not prevent."""
    done = None
    try:
        if _get_signal(_SIGINT) is not interrupted:
            _set_signal(_SIGINT, interrupted)  # a program's own handler is of one run
        fresh_stdin()
        state.number = number
        state.held, state.pending, state.busy = False, False, True
        connection.send(b"b", number, b"")
        done = driver.handle(body)
        state.busy = False
    except _KeyboardInterrupt:
        state.busy = False
    return done or LATE


def reseed_libraries():
    """Gives what draws random numbers outside of the driver's reach seeds of its own."""
    state.busy = False
    for name, seed in (
        ("numpy.random", lambda module: module.seed()),
        ("_ssl", lambda module: module.RAND_add(os.urandom(64), 64.0)),
    ):
        try:
            module = sys.modules.get(name)
            if module is not None:
                seed(module)
        except BaseException:
            pass  # what the program put there is no module, or has other names


def serve():
    prepare()
    _set_signal(_SIGINT, interrupted)
    try:
        listen()
    except _Error:  # the program closed the connection
        _kill(_getpid(), _SIGKILL)


def listen():
    while True:
        kind, number, body = connection.receive()
        if kind != b"q":
            continue  # a reply that nobody waits for any more
        if body.startswith(HELLO):
            connection.send(b"a", number, b'{"status":"ok"}')
            continue
        done = answer(number, body)
        if body.startswith(AWAKEN):
            reseed_libraries()
        if _getpid() != connection.pid:  # the program doubled itself, and this is the other one
            _exit(driver.driver.outcome["exit_code"] if driver.driver.outcome else 1)
        connection.send(b"a", state.number, done)  # another one, where it was left waiting


if __name__ == "_paddock_boot":
    serve()
