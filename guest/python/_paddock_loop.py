"""An event loop for a guest without sockets and threads.

Code that runs a loop of its own (asyncio.run) sleeps in the host while nothing
is ready. The driver steps the session's loop from outside instead, and leaves
the interpreter while the program waits, so that a waiting program holds
nothing of the host.
"""
import asyncio
import asyncio.base_events
import asyncio.events
import time
import weakref

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_sleep, _ref = time.sleep, weakref.ref
_all_tasks, _Task = asyncio.all_tasks, asyncio.Task
_set_running_loop = asyncio.events._set_running_loop
_loops = []  # references to those that are alive

ROUNDS = 100  # of a loop: how long tasks that are given up may clean up

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
    """Ends whatever waits in any loop: of what is pending now nothing runs later.

    Tasks are cancelled and may clean up as far as that needs no waiting; timers
    and callbacks are forgotten. Nothing that a program did makes it fail.
    """
    for ref in list(_loops):
        loop = ref()
        if loop is None:
            continue
        tasks = []
        try:
            tasks = [task for task in _all_tasks(loop) if not task.done()]
            _forget(loop, but=_is_step)
            for task in tasks:
                task.cancel()
            _run(loop)
        except BaseException:
            pass  # the program's code, what it made of asyncio, or an interrupt: they end all the same
        for task in tasks:
            _close(task)
        try:
            _forget(loop)
        except BaseException:
            pass  # it has no such lists any more: nothing can run in it


def _forget(loop, but=None):
    """Takes all timers out of a loop, and the callbacks that are ready but for some."""
    loop._scheduled.clear()
    loop._timer_cancelled_count = 0
    stay = [handle for handle in loop._ready if but and but(handle)]
    loop._ready.clear()
    loop._ready.extend(stay)


def _is_step(handle):
    """Tells whether a callback goes on with a task: one that is cancelled needs it."""
    try:
        return issubclass(type(handle._callback.__self__), _Task)
    except AttributeError:
        return False


def _run(loop):
    if not loop._ready:
        return
    loop._thread_id = None
    _set_running_loop(None)
    selector = loop._selector
    selector.stepping = True
    try:
        loop._run_forever_setup()
        for _ in range(ROUNDS):
            if not loop._ready:
                break
            loop._run_once()
    finally:
        loop._run_forever_cleanup()
        selector.stepping = False


def _close(task):
    """Ends a task that did not take being cancelled for an end."""
    try:
        if not task.done():
            task._log_destroy_pending = False
            task.get_coro().close()
    except BaseException:
        pass  # it does not take this either: its loop has forgotten it


class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop


# The only loop there is, by whatever name a program asks for one.
asyncio.DefaultEventLoopPolicy = Policy
asyncio.EventLoop = asyncio.SelectorEventLoop = Loop
asyncio.set_event_loop_policy(Policy())
