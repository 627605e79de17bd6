"""An event loop for a guest without threads, whose sockets are the host's.

Code that runs a loop of its own (asyncio.run) sleeps in the host while nothing
is ready. The driver steps the session's loop from outside instead, and leaves
the interpreter while the program waits, so that a waiting program holds
nothing of the host.

Calls of the host are answered while a program waits: ask() has one answered at
once, begin() gives a future.
"""
import _paddock_socket  # before anything that has to do with sockets

import asyncio
import asyncio.base_events
import asyncio.events
import collections
import json
import time
import weakref

import _paddock
import _paddock_streams

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_sleep, _ref = time.sleep, weakref.ref
_deque = collections.deque
_call, _scan = _paddock.call, json.JSONDecoder().scan_once
_Task, _Future = asyncio.Task, asyncio.Future
_tasks_names = asyncio.tasks._scheduled_tasks.__dict__  # "data" are references to all that are alive
_set_running_loop = asyncio.events._set_running_loop
_loops = []     # references to those that are alive
_given_up = []  # what waited in them

# What asks no class of the program's, and no method that it put there. A task is
# cancelled as the future that it is: that runs nothing of its coroutine.
_names_of = asyncio.AbstractEventLoop.__dict__["__dict__"].__get__
_is_done, _cancel = _Future.done, _Future.cancel
_awaited_by, _coroutine_of = _Task.__dict__["_fut_waiter"].__get__, _Task.get_coro

AT_ONCE = 63    # calls that are under way: the host takes 64, and one may be asked for
_waiting = {}   # futures by the numbers of their calls; None where it was given up
_later = collections.deque()  # calls for which there is no room yet: (body, future)

NEVER = "the program waits for something that can never happen: nothing is scheduled that could wake it"


class Deadlock(RuntimeError):
    """Everything waits and nothing is scheduled."""

    __module__ = "builtins"  # in tracebacks it is nobody's


class _Idle:
    """Stands for the selector: there are no files to wait for, only time."""

    stepping = False

    def select(self, timeout):
        if self.stepping:
            return []
        if calling():
            replies = _call(b'{"op":"await","timeout":%s}\n' % (b"null" if timeout is None else b"%f" % timeout))
            arrived(_scan(replies.decode(), 0)[0])
            return []
        if timeout is None:
            raise Deadlock(NEVER)
        if timeout > 0:
            try:
                _sleep(timeout)
            except OSError:
                pass  # it was interrupted: the signal's handler says what comes of it
        return []

    def close(self):
        pass


class Loop(_paddock_streams.Network, asyncio.base_events.BaseEventLoop):
    def __init__(self):
        super().__init__()
        self._selector = _Idle()
        _loops[:] = [ref for ref in _loops if ref() is not None] + [_ref(self)]

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass

    def _begin(self, body):
        return begin(body)

    def run_in_executor(self, executor, func, *args):
        raise RuntimeError("there are no threads in this sandbox: call the function directly, or write it as a coroutine")

    def step(self, task):
        """Runs until task is done (returns None) or only the host can help: returns the
        seconds to wait, which are without end where only a call's answer is waited for."""
        self._selector.stepping = True
        # An interrupt may have hit the last step's own end.
        self._thread_id = None
        _set_running_loop(None)
        try:
            self._run_forever_setup()
            while not task.done():
                if not self._ready:
                    wait = self._wait()
                    if wait > 0:
                        return wait
                self._run_once()
        finally:
            self._run_forever_cleanup()
            self._selector.stepping = False
        return None

    def _wait(self):
        while self._scheduled and self._scheduled[0].cancelled():
            self._run_once()  # takes cancelled timers out
        if not self._scheduled:
            if calling():
                return _ENDLESS
            raise Deadlock(NEVER)
        return self._scheduled[0].when() - self.time()


# ── calls of the host ───────────────────────────────────────────────────────

_ENDLESS = float("inf")


def ask(body):
    """Calls the host and waits for the answer; None: nothing answers."""
    answer = _call(b'{"op":"call"}\n' + body)
    return _scan(answer.decode(), 0)[0] if answer else None


def begin(body):
    """Calls the host and gives a future of the answer."""
    future = asyncio.events.get_running_loop().create_future()
    future.add_done_callback(_left)
    _later.append((body, future))
    _send()
    return future


def calling():
    """Tells whether a call is waited for."""
    return bool(_later) or any(future is not None for future in _waiting.values())


def _send():
    while _later and len(_waiting) < AT_ONCE:
        body, future = _later[0]
        number = 0 if future.done() else int(_call(b'{"op":"begin"}\n' + body))
        if number:
            _waiting[number] = future
        elif not future.done():
            if _waiting:
                return  # there will be room
            future.set_result(None)
        _later.popleft()


def arrived(replies):
    """Takes the host's answers: a call's number, what it says and, where bytes lie behind
    that, how many."""
    for number, answer, *size in replies or ():
        future = _waiting.pop(number, None)
        if future is not None:
            _settle(future, _with_bytes(number, answer, *size) if size else answer)
    _send()


def _with_bytes(number, answer, size):
    """The answer, whose value gets the bytes that lie behind it; None: they got lost."""
    data = _call(b'{"op":"bytes","reply":%d}\n' % number)
    value = answer.get("value") if isinstance(answer, dict) else None
    if isinstance(value, dict):
        value["bytes"] = data
    return answer if len(data) == size else None


def _settle(future, answer):
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(answer)


def _left(future):
    """Tells the host that nobody waits for a call any more."""
    if not future.cancelled():
        return
    for number, other in _waiting.items():
        if other is future:
            _waiting[number] = None
            _call(b'{"op":"giveUp","call":%d}\n' % number)
            return


def forget():
    """Ends the calls of an earlier run, which nobody answers any more."""
    futures = [*_waiting.values(), *(future for _, future in _later)]
    _waiting.clear()
    _later.clear()
    for future in futures:
        if future is not None:
            _settle(future, None)


def give_up():
    """Ends whatever waits in any loop, without running any of it: neither now nor later.

    Tasks count as cancelled, but what they would do to clean up is not done; timers
    and callbacks are forgotten. All of it is kept where the program does not reach it,
    as the collector would close the coroutines, and so run what they have in `finally`.
    """
    for task in _pending():
        _cut_off(task)
    _given_up.append((dict(_waiting), list(_later)))
    _waiting.clear()
    _later.clear()
    for ref in list(_loops):
        loop = ref()
        if loop is not None:
            _empty(loop)


def _empty(loop):
    """Gives a loop new lists in the place of those with what is ready and with timers."""
    try:
        names = _names_of(loop)
        _given_up.append((names.get("_ready"), names.get("_scheduled")))
        names["_ready"], names["_scheduled"], names["_timer_cancelled_count"] = _deque(), [], 0
        names["_thread_id"] = None  # an interrupt may have hit the last step's own end
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass  # the program made something else of it


def _pending():
    """All tasks that have not ended, of whatever loop."""
    refs = _tasks_names.get("data")
    if type(refs) is not set:
        return []  # the program broke it: no loop has these tasks
    tasks = [ref() for ref in refs if type(ref) is _ref]
    return [task for task in tasks if issubclass(type(task), _Task) and not _is_done(task)]


def _cut_off(task):
    """Has a task and what it waits for count as cancelled. Whom that would wake is in a loop that gives it up."""
    try:
        awaited = _awaited_by(task)
        _given_up.append((task, _coroutine_of(task), awaited))
        _cancel(task)
        if issubclass(type(awaited), _Future):
            _cancel(awaited)
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass  # its loop is closed, or the program's: nothing can run in the one, and the other is its own affair


class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop


# The only loop there is, by whatever name a program asks for one.
asyncio.DefaultEventLoopPolicy = Policy
asyncio.EventLoop = asyncio.SelectorEventLoop = Loop
asyncio.set_event_loop_policy(Policy())
