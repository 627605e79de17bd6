"""An event loop for a guest without sockets and threads.

Code that runs a loop of its own (asyncio.run) sleeps in the host while nothing
is ready. The driver steps the session's loop from outside instead, and leaves
the interpreter while the program waits, so that a waiting program holds
nothing of the host.
"""
import asyncio
import asyncio.base_events
import asyncio.events
import collections
import time
import weakref

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_sleep, _ref = time.sleep, weakref.ref
_deque = collections.deque
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


class Loop(asyncio.base_events.BaseEventLoop):
    def __init__(self):
        super().__init__()
        self._selector = _Idle()
        _loops[:] = [ref for ref in _loops if ref() is not None] + [_ref(self)]

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass

    def run_in_executor(self, executor, func, *args):
        raise RuntimeError("there are no threads in this sandbox: call the function directly, or write it as a coroutine")

    def step(self, task):
        """Runs until task is done (returns None) or only time can help: returns the seconds to wait."""
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
            raise Deadlock(NEVER)
        return self._scheduled[0].when() - self.time()


def give_up():
    """Ends whatever waits in any loop, without running any of it: neither now nor later.

    Tasks count as cancelled, but what they would do to clean up is not done; timers
    and callbacks are forgotten. All of it is kept where the program does not reach it,
    as the collector would close the coroutines, and so run what they have in `finally`.
    """
    for task in _pending():
        _cut_off(task)
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
