"""What is said about an error that a program did not catch."""
import errno
import linecache
import traceback

from _paddock_display import name_of

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

MESSAGE_LIMIT = 4 << 10
TRACEBACK_LIMIT = 16 << 10
UNKNOWN = "(its text cannot be shown)"

# Where a program's own code lies; everything else is the library or the driver.
OWN = ("/workspace/", "/app/", "/tmp/", "/skills/", "/servers/")

_TracebackException = traceback.TracebackException
_StackSummary = traceback.StackSummary
_sources = linecache.cache

# What is asked of an error, whatever its class has put in the place of it.
_traceback_of = BaseException.__dict__["__traceback__"].__get__
_forget_context = BaseException.__dict__["__context__"].__set__
_NO_SPACE, _NOT_SUPPORTED = (errno.ENOSPC, errno.EDQUOT), (errno.ENOTSUP, errno.ENOSYS)

NOT_HERE = {
    "numpy": "it has native code, which this isolation cannot load; the statistics, array and math modules are there",
    "pandas": "it has native code, which this isolation cannot load; the csv, sqlite3 and statistics modules are there",
    "requests": "there is no network in this sandbox",
    "httpx": "there is no network in this sandbox",
    "ctypes": "native code cannot be called in this isolation",
    "_ctypes": "native code cannot be called in this isolation",
    "ssl": "there is no network in this sandbox",
    "_ssl": "there is no network in this sandbox",
    "tkinter": "there is no screen in this sandbox",
    "curses": "there is no terminal in this sandbox",
    "venv": "packages cannot be installed this way in this sandbox",
    "pip": "packages cannot be installed this way in this sandbox",
}


def own(filename):
    """Tells whether a file's code is the program's."""
    return filename.startswith("<cell") or filename in _sources and not filename.startswith("/lib/") or filename.startswith(OWN)


def cut(text, limit):
    text = str.__str__(text)  # it may be of a class of the program's
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def _keep_own(summary, seen):
    """Leaves only the program's frames in a TracebackException and those it is chained to."""
    if summary is None or id(summary) in seen:
        return
    seen.add(id(summary))
    frames = [f for f in summary.stack if own(f.filename)]
    summary.stack = _StackSummary.from_list(frames)
    _keep_own(summary.__cause__, seen)
    _keep_own(summary.__context__, seen)
    for inner in summary.exceptions or ():
        _keep_own(inner, seen)


def safely(ask, error, default):
    """What ask says about error, of which nothing is certain but that it was raised."""
    try:
        return ask(error)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:
        return default


def is_a(error, kind):
    """Is what isinstance is, but does not ask the error."""
    return issubclass(type(error), kind)


def forget_frames(error):
    """Lets go of what an error holds: frames and what is in them."""
    BaseException.with_traceback(error, None)
    _forget_context(error, None)


def text_of(error):
    def text(error):
        summary = _TracebackException(type(error), error, _traceback_of(error), compact=True)
        _keep_own(summary, set())
        return cut("".join(summary.format()), TRACEBACK_LIMIT)
    return safely(text, error, f"{name_of(type(error))}: {UNKNOWN}\n")


def message_of(error):
    return cut(str(error.msg if is_a(error, SyntaxError) else error), MESSAGE_LIMIT)


def line_of(error, label):
    """The innermost line of error in the code called label; 0: not known."""
    if is_a(error, SyntaxError) and error.filename == label:
        return error.lineno if type(error.lineno) is int else 0
    line, frame = 0, _traceback_of(error)
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == label:
            line = frame.tb_lineno or line
        frame = frame.tb_next
    return line


def too_deep(error):
    """Tells whether a MemoryError is the parser's, which has memory but no stack."""
    return is_a(error, MemoryError) and str(error).startswith("Parser stack overflowed")


def kind_of(error):
    if is_a(error, KeyboardInterrupt):
        return "interrupted"
    if is_a(error, MemoryError) and not safely(too_deep, error, False):
        return "memory"
    if is_a(error, OSError) and error.errno in _NO_SPACE:
        return "space"
    return ""


# What attributes a module lacks here (None: whichever), and why.
_modules_without = {
    "_socket": (None, "there is no network in this sandbox"),
    "socket": (None, "there is no network in this sandbox"),
    "os": (frozenset("fork forkpty system popen kill execv execve spawnv posix_spawn waitpid".split()), "there are no other processes in this sandbox"),
}
_ModuleType = type(errno)
_names_in = _ModuleType.__dict__["__dict__"].__get__  # asks no module for anything


def _name_in(module):
    name = _names_in(module).get("__name__")
    return name if type(name) is str else ""


def hint_of(error):
    if is_a(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        why = NOT_HERE.get(name)
        return f"{name} is not available: {why}" if why else f"{name} is not installed in this sandbox; Python's standard library is"
    if is_a(error, RuntimeError) and "start new thread" in str(error):
        return "there are no threads in this sandbox; asyncio works"
    if is_a(error, EOFError) and "EOF when reading a line" in str(error):
        return "there is no standard input here; put the values into the code"
    if is_a(error, AttributeError):
        where = _modules_without.get(_name_in(error.obj)) if type(error.obj) is _ModuleType else None
        if where and (where[0] is None or error.name in where[0]):
            return where[1]
    if is_a(error, OSError) and error.errno in _NOT_SUPPORTED:
        return "the sandbox has no sockets, processes or devices"
    if is_a(error, (FileNotFoundError, PermissionError)):
        name = error.filename if isinstance(error.filename, str) else ""
        if name.startswith("/") and not name.startswith(OWN):
            return "a program's files lie in /workspace"
    if too_deep(error):
        return "the code is nested too deeply; write it in several steps"
    if is_a(error, MemoryError):
        return "the interpreter's memory is limited; free what is not needed, or work in pieces"
    if kind_of(error) == "space":
        return "the workspace's disk limit is reached; remove files that are not needed"
    return ""


def describe(error, label):
    """An outcome's error, without its traceback."""
    found = {
        "type": name_of(type(error)), "message": safely(message_of, error, UNKNOWN),
        "line": safely(lambda error: line_of(error, label), error, 0),
    }
    hint, kind = safely(hint_of, error, ""), safely(kind_of, error, "")
    if hint:
        found["hint"] = hint
    if kind:
        found["kind"] = kind
    return found
