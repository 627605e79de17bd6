"""What is said about an error that a program did not catch."""
import sys
import traceback

import _paddock_place
import _paddock_servers
from _paddock_display import name_of

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

MESSAGE_LIMIT = 4 << 10
TRACEBACK_LIMIT = 16 << 10
UNKNOWN = "(its text cannot be shown)"

_TracebackException = traceback.TracebackException
_StackSummary = traceback.StackSummary

# What is asked of an error, whatever its class has put in the place of it.
_traceback_of = BaseException.__dict__["__traceback__"].__get__
_forget_context = BaseException.__dict__["__context__"].__set__
_COMPACT = {"compact": True} if sys.version_info >= (3, 10) else {}

_hint_of_import = _paddock_servers.hint_of
own, _hint_here, _NO_SPACE = _paddock_place.own, _paddock_place.hint_of, _paddock_place.NO_SPACE


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
    for inner in getattr(summary, "exceptions", None) or ():
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
        summary = _TracebackException(type(error), error, _traceback_of(error), **_COMPACT)
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


def hint_of(error):
    if is_a(error, EOFError) and "EOF when reading a line" in str(error):
        return "there is no standard input here; put the values into the code"
    if too_deep(error):
        return "the code is nested too deeply; write it in several steps"
    if is_a(error, MemoryError):
        return "the interpreter's memory is limited; free what is not needed, or work in pieces"
    if kind_of(error) == "space":
        return "the disk limit is reached; remove files that are not needed"
    return _hint_of_import(error) or _hint_here(error)


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
