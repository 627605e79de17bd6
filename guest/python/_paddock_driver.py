"""The driver of the Python guest: answers the host's requests (guest/README.md).

It runs in the same interpreter as the program, so it keeps what it needs in
names of its own: a program that changes json, builtins or sys.stdout, or puts
a json.py into its workspace, changes nothing here. A program that goes looking
for the driver in memory can break its own session and nothing else.
"""
import _random
import _sitebuiltins
import ast
import builtins
import contextvars
import gc
import inspect
import json
import linecache
import os
import random
import sys
import tempfile
import types
import uuid

import _paddock
import _paddock_display
import _paddock_errors
import _paddock_loop
import _paddock_place
import _paddock_servers
from _paddock_display import cut, module_of, name_of
from _paddock_errors import is_a, safely

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

# Imported when the image is captured, because programs use them most.
PRELUDE = """
    array base64 bisect calendar collections collections.abc colorsys contextlib copy csv dataclasses datetime decimal
    difflib enum fnmatch fractions functools glob hashlib heapq html io itertools json logging math numbers operator
    os.path pathlib pickle pprint random re secrets shutil sqlite3 statistics string struct tempfile textwrap time
    traceback types typing unicodedata urllib.parse uuid zlib zoneinfo
""".split()

FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
SOURCES = 200          # how many cells' sources are kept for tracebacks
SOURCE_BYTES = 2 << 20  # and how large they may be together

# What an inspection tells at most (package wire has the same numbers).
VARIABLES = IMPORTS = 200
NAME_LIMIT, TYPE_LIMIT, IMPORT_LIMIT = 256, 100, 200

# The parts of json that are written in C and ask nothing of the program's.
_scan = json.JSONDecoder().scan_once
_encode = json.encoder.c_make_encoder(None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False)
_compile, _exec, _eval = compile, exec, eval
_Expr, _Expression, _ONLY_AST = ast.Expr, ast.Expression, ast.PyCF_ONLY_AST
_stdout, _stderr = sys.stdout, sys.stderr
_sources = linecache.cache
_CO_COROUTINE = inspect.CO_COROUTINE
_ModuleType = types.ModuleType
_FunctionType, _BuiltinFunctionType = types.FunctionType, types.BuiltinFunctionType
_names_in = types.ModuleType.__dict__["__dict__"].__get__  # asks no module for anything
_modules, _urandom, _set = sys.modules, os.urandom, object.__setattr__
_collects, _stop_collecting, _go_on_collecting = gc.isenabled, gc.disable, gc.enable
_bases_of, _names_in_class = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
_ENDLESS = float("inf")
PACKAGES = getattr(_paddock_place, "PACKAGES", ())  # only where they are no affair of the machine's
_finders = sys.path_importer_cache
_outdated = []  # what the program may have put in the place of something remembered
_generator, _seed = random._inst, _random.Random.seed
_reseed_sqlite, _give_up = _paddock.reseed, _paddock_loop.give_up
_seeded = {"random": random, "uuid": uuid, "tempfile": tempfile}

main = types.ModuleType("__main__")
main.__dict__["__builtins__"] = builtins


class _Quit:
    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"Use {self._name}() to end the program"

    def __call__(self, code=None):
        raise SystemExit(code)


class Driver:
    def __init__(self):
        self.cells = 0
        self.sources = {}      # label: size, of the cells whose source is kept
        self.context = contextvars.copy_context()  # in which all of the program runs
        self.loop = None
        self.task = None       # of the run that waits
        self.label = ""
        self.outcome = None    # of the present run, once it is known
        self.ended_by = None   # what ended the last run that an interrupt or an exit ended

    # ── requests ────────────────────────────────────────────────────────

    def start(self, request):
        os.environ.clear()
        os.environ.update(request.get("env") or {})
        cwd = request.get("cwd") or "/"
        try:
            os.chdir(cwd)
        except OSError:
            cwd = "/"
            os.chdir(cwd)
        sys.path[:] = [cwd] + [p for p in sys.path if p.startswith("/lib/")] + list(PACKAGES)
        reseed(request["seed"])
        return {"status": "ok"}

    def awaken(self, request):
        """Makes an interpreter that is a copy of an earlier one, or of another, one of its own.

        Nothing of the program runs, so that nothing of it makes this fail: neither
        what waits nor, by the collector, what it would do when something goes away.
        """
        collects = _collects()
        _stop_collecting()
        try:
            reseed(request["seed"])
            self.task = None
            _give_up()
        finally:
            if collects:
                _go_on_collecting()
        return {"status": "ok"}

    def prelude(self, request):
        for name in PRELUDE:
            __import__(name)
        self.furnish()
        gc.collect()
        gc.freeze()
        return {"status": "ok"}

    def furnish(self):
        """Puts what a program finds into its place, before the first one."""
        sys.modules["__main__"] = main
        builtins.display = _paddock_display.display
        sys.unraisablehook = _paddock.unraisable
        builtins.exit, builtins.quit = _Quit("exit"), _Quit("quit")
        builtins.help = _sitebuiltins._Helper()
        _stdout.reconfigure(line_buffering=True)
        _stderr.reconfigure(line_buffering=True)

    def exec(self, request):
        self.abandon()  # what an interrupt kept from being ended
        _paddock_loop.forget()
        self.cells += 1
        name = request.get("name") or "<cell>"
        self.label = f"<cell {self.cells}>" if name == "<cell>" else name
        sys.argv = [name if name != "<cell>" else ""] + list(request.get("args") or [])
        main.__dict__.setdefault("__name__", "__main__")  # a program may have cleared its globals
        main.__dict__.setdefault("__builtins__", builtins)
        self.mend_streams()
        for path in PACKAGES:
            if _finders.get(path, _finders) is None:  # there were none when it was last looked
                _finders.pop(path, None)
        self.remember(request["code"])
        try:
            code, last = self.compile(request["code"])
            if not code.co_flags & _CO_COROUTINE and (last is None or not last.co_flags & _CO_COROUTINE):
                self.context.run(_exec, code, main.__dict__)
                self.finish(self.context.run(_eval, last, main.__dict__) if last else None)
                return self.outcome
            if self.loop is None or self.loop.is_closed():
                self.loop = _paddock_loop.Loop()
            self.task = self.loop.create_task(self.run(self.cells, code, last), context=self.context)
        except BaseException as error:
            return self.fail(error)
        return self.resume(request)

    def resume(self, request):
        """Goes on with a program that uses await at its top level."""
        try:
            if self.task is None:
                self.outcome = None
                raise RuntimeError("there is no program that waits")
            _paddock_loop.arrived(request.get("replies"))
            wait = self.step()
            if wait is not None:
                self.flush()
                return {"status": "waiting", "timeout": None if wait == _ENDLESS else wait}
            self.finish(self.task.result())
            return self.outcome
        except BaseException as error:
            return self.fail(error)

    def step(self):
        """Goes on with the program's task. What ended an earlier one (an interrupt, an
        exit) comes out of the loop again where others of its tasks waited for each
        other: it is over, and nobody's any more."""
        while True:
            try:
                return self.loop.step(self.task)
            except BaseException as error:
                if error is not self.ended_by:
                    raise

    def interrupt(self, request):
        """Ends a program that was left waiting."""
        task, self.task = self.task, None
        if task is None:
            return self.fail(KeyboardInterrupt())
        task.cancel()
        try:
            while self.loop.step(task) is not None:
                pass  # it cleans up, and may wait for nothing more than that
        except BaseException:
            pass  # whatever it says now, it was interrupted
        return self.fail(KeyboardInterrupt())

    def inspect(self, request):
        variables, imports = [], set()
        for name, value in list(main.__dict__.items()):
            if type(name) is not str or name.startswith("_"):
                continue
            kind, origin = type(value), None
            if issubclass(kind, _ModuleType):
                origin = _names_in(value).get("__name__")
            elif issubclass(kind, type):
                origin = module_of(value)
            elif kind is _FunctionType or kind is _BuiltinFunctionType:
                origin = value.__module__
            if type(origin) is str and origin != "__main__":
                if len(imports) < IMPORTS:
                    imports.add(cut(origin, IMPORT_LIMIT))
            elif len(variables) < VARIABLES:
                variables.append({
                    "name": cut(name, NAME_LIMIT), "type": cut(name_of(kind), TYPE_LIMIT), "preview": _paddock_display.preview_of(value)})
        return {"status": "ok", "variables": variables, "imports": sorted(imports)}

    # ── a run ───────────────────────────────────────────────────────────

    def compile(self, source):
        """The program, and its last statement where that is an expression."""
        tree = _compile(source, self.label, "exec", FLAGS | _ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], _Expr):
            last = _compile(_Expression(tree.body.pop().value), self.label, "eval", FLAGS, True)
        return _compile(tree, self.label, "exec", FLAGS, True), last

    async def run(self, cell, code, last):
        if cell != self.cells:  # interrupted before it began
            return None
        value = _eval(code, main.__dict__)
        if code.co_flags & _CO_COROUTINE:
            await value
        if last is None:
            return None
        value = _eval(last, main.__dict__)
        return await value if last.co_flags & _CO_COROUTINE else value

    def finish(self, value):
        self.outcome = self.context.run(self.shown, value)
        self.flush()

    def shown(self, value):
        """The outcome of a program that ended well, with its value."""
        outcome = {"status": "done", "exit_code": 0}
        if value is not None:
            main.__dict__["_"] = value
            _paddock_display.show(value)
            outcome["result"] = _paddock_display.text_of(value) or _paddock_display.result_of(value)
        _paddock_display.show_figures()
        return outcome

    def fail(self, error):
        """The outcome of a program that raised error."""
        if self.outcome is not None:  # an interrupt that came too late
            return self.outcome
        self.abandon()
        if is_a(error, MemoryError):
            _paddock_errors.forget_frames(error)  # they hold what took the memory
        if is_a(error, SystemExit):
            code, text = self.exit_code(error)
            self.outcome = {"status": "done", "exit_code": code}
        else:
            found = _paddock_errors.describe(error, self.label)
            text = found["traceback"] = _paddock_errors.text_of(error)
            self.outcome = {"status": "done", "exit_code": 130 if found.get("kind") == "interrupted" else 1, "error": found}
        if is_a(error, (KeyboardInterrupt, SystemExit)):
            _paddock_errors.forget_frames(error)
            self.ended_by = error
        self.flush()
        self.say(text)
        return self.outcome

    def abandon(self):
        """Has the program's task end, when the loop goes on."""
        task, self.task = self.task, None
        if task is not None and not task.done():
            task.cancel()

    def exit_code(self, error):
        """What a SystemExit stands for: a code, and what is said for one that is no number."""
        code = safely(lambda error: error.code, error, 1)
        if code is None:
            return 0, ""
        if issubclass(type(code), int):
            return int.__and__(code, 0xFF), ""
        return 1, safely(str, code, _paddock_errors.UNKNOWN) + "\n"

    # ── around it ───────────────────────────────────────────────────────

    def remember(self, source):
        """Keeps a cell's source, so that tracebacks show its lines."""
        lines = (source if source.endswith("\n") else source + "\n").splitlines(keepends=True)  # as linecache has them
        _sources[self.label] = (len(source), None, lines, self.label)
        self.sources.pop(self.label, None)
        self.sources[self.label] = len(source)
        while len(self.sources) > SOURCES or sum(self.sources.values()) > SOURCE_BYTES and len(self.sources) > 1:
            oldest = next(iter(self.sources))
            del self.sources[oldest]
            _sources.pop(oldest, None)

    def mend_streams(self):
        """Gives a program that closed or lost its output streams new ones."""
        global _stdout, _stderr
        if _ended(_stdout):
            _stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)
        if _ended(_stderr):
            _stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for name, stream in (("stdout", _stdout), ("stderr", _stderr)):
            now = getattr(sys, name, None)
            if now is None or _ended(now):
                setattr(sys, name, stream)

    def say(self, text):
        """Prints what is said about a program on what is left of its stderr."""
        try:
            self.mend_streams()
            _stderr.write(text)
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass  # it closed the descriptor; the outcome says it all
        self.flush()

    def flush(self):
        for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None), _stdout, _stderr):
            try:
                stream.flush()
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass  # the program's own stream, or one that it closed


def reseed(seed):
    """Has everything that draws random numbers, or remembers some, begin anew."""
    _reseed_sqlite()
    _seed_generator(_generator, seed)
    for name, module in _seeded.items():
        try:
            now = _modules.get(name)
            for each in (module,) if now is module else (module, now):  # a program may have imported it again
                _begin_anew(each, seed)
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass  # what the program put there is no module, or has other names


def _begin_anew(module, seed):
    names = _names_in(module)
    for name in "_node", "_last_timestamp", "_name_sequence":
        if name in names:
            if names[name] is not None:
                _outdated.append(names[name])
            names[name] = None
    generator = names.get("_inst")
    if generator is not None and generator is not _generator:
        _seed_generator(generator, seed)


def _seed_generator(generator, seed):
    _seed(generator, int(seed + _urandom(32).hex(), 16))
    if any("gauss_next" in _names_in_class(c) for c in _bases_of(type(generator))):
        return  # the program's own: it is asked for nothing
    try:
        _set(generator, "gauss_next", None)
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass  # it has no such name


def _ended(stream):
    """Tells whether a stream has been closed, or detached from what it wrote to."""
    try:
        return bool(stream.closed)
    except ValueError:
        return True
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False  # the program's own stream: its own affair


driver = Driver()
REQUESTS = {
    name: getattr(driver, name) for name in ("start", "awaken", "prelude", "exec", "resume", "interrupt", "inspect")
}


def _dumps(answer):
    return "".join(_encode(answer, 0)).encode()


def handle(request):
    request, _ = _scan(request.decode(), 0)
    if request["op"] == "exec":
        driver.outcome = None
    answer = None
    for _ in range(3):  # an interrupt may hit the epilogue, and then once more
        try:
            if answer is None:
                answer = REQUESTS[request["op"]](request)
            return _dumps(answer)
        except KeyboardInterrupt as error:
            if answer is not None and answer["status"] == "waiting":
                request, answer = {"op": "interrupt"}, None
                continue
            if request["op"] == "awaken":
                continue  # it has to come to its end
            if answer is None:
                answer = driver.outcome
            if answer is None:
                try:
                    answer = driver.fail(error)
                except KeyboardInterrupt:
                    answer = {"status": "done", "exit_code": 130, "error": {
                        "type": "KeyboardInterrupt", "message": "", "line": 0, "kind": "interrupted"}}
    return _dumps(answer)
