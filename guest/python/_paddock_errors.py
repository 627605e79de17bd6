"""What is said about an error that a program did not catch."""
import errno
import linecache
import traceback

MESSAGE_LIMIT = 4 << 10
TRACEBACK_LIMIT = 16 << 10

# Where a program's own code lies; everything else is the library or the driver.
OWN = ("/workspace/", "/app/", "/tmp/", "/skills/", "/servers/")

_TracebackException = traceback.TracebackException
_StackSummary = traceback.StackSummary

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
    return filename.startswith("<cell") or filename in linecache.cache and not filename.startswith("/lib/") or filename.startswith(OWN)


def cut(text, limit):
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


def text_of(error):
    try:
        summary = _TracebackException(type(error), error, error.__traceback__, compact=True)
        _keep_own(summary, set())
        return cut("".join(summary.format()), TRACEBACK_LIMIT)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:
        return f"{type(error).__name__}: (its text cannot be shown)\n"


def message_of(error):
    try:
        if isinstance(error, SyntaxError):
            return cut(str(error.msg), MESSAGE_LIMIT)
        return cut(str(error), MESSAGE_LIMIT)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:
        return "(its text cannot be shown)"


def line_of(error, label):
    """The innermost line of error in the code called label; 0: not known."""
    if isinstance(error, SyntaxError) and error.filename == label:
        return error.lineno or 0
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == label:
            line = frame.tb_lineno or line
        frame = frame.tb_next
    return line


def too_deep(error):
    """Tells whether a MemoryError is the parser's, which has memory but no stack."""
    return isinstance(error, MemoryError) and message_of(error).startswith("Parser stack overflowed")


def kind_of(error):
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, MemoryError) and not too_deep(error):
        return "memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "space"
    return ""


def hint_of(error, text):
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        why = NOT_HERE.get(name)
        return f"{name} is not available: {why}" if why else f"{name} is not installed in this sandbox; Python's standard library is"
    if isinstance(error, RuntimeError) and "start new thread" in text:
        return "there are no threads in this sandbox; asyncio works"
    if isinstance(error, EOFError) and "EOF when reading a line" in text:
        return "there is no standard input here; put the values into the code"
    if isinstance(error, OSError) and error.errno in (errno.ENOTSUP, errno.ENOSYS):
        return "the sandbox has no sockets, processes or devices"
    if isinstance(error, (FileNotFoundError, PermissionError)):
        name = error.filename if isinstance(error.filename, str) else ""
        if name.startswith("/") and not name.startswith(OWN):
            return "a program's files lie in /workspace"
    if too_deep(error):
        return "the code is nested too deeply; write it in several steps"
    if isinstance(error, MemoryError):
        return "the interpreter's memory is limited; free what is not needed, or work in pieces"
    if kind_of(error) == "space":
        return "the workspace's disk limit is reached; remove files that are not needed"
    return ""


def describe(error, label):
    """An outcome's error, without its traceback."""
    message = message_of(error)
    found = {"type": type(error).__name__, "message": message, "line": line_of(error, label)}
    hint, kind = hint_of(error, message), kind_of(error)
    if hint:
        found["hint"] = hint
    if kind:
        found["kind"] = kind
    return found
