"""An event loop for a guest without sockets and threads.

Code that runs a loop of its own (asyncio.run) sleeps in the host while nothing
is ready. The driver steps the session's loop from outside instead, and leaves
the interpreter while the program waits, so that a waiting program holds
nothing of the host.
"""
import asyncio
import asyncio.base_events
import time

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_sleep = time.sleep

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
        asyncio.events._set_running_loop(None)
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


class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop


# The only loop there is, by whatever name a program asks for one.
asyncio.DefaultEventLoopPolicy = Policy
asyncio.EventLoop = asyncio.SelectorEventLoop = Loop
asyncio.set_event_loop_policy(Policy())
