"""What is special about the place where the interpreter runs: here it is WebAssembly.

The agent of a Linux box has its own (boot.py), with the same names.
"""
import errno
import linecache
import os
import posix

import _paddock

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_mask = 0o022


def umask(mask, /):
    """Set the current numeric umask and return the previous umask."""
    global _mask
    before, _mask = _mask, int(mask) & 0o777
    return before


def getuid():
    """Return the current process's user id."""
    return 0  # whose all files are


# What WASI's C library lacks and programs that run here take for granted. Files have no
# modes for the mask to change.
for _function in (_paddock.dup2, umask, getuid):
    if not hasattr(os, _function.__name__):
        setattr(os, _function.__name__, _function)
        setattr(posix, _function.__name__, _function)
        os.__all__.append(_function.__name__)

# Where a program's own code lies; everything else is the library or the driver.
OWN = ("/workspace/", "/app/", "/tmp/", "/skills/", "/servers/")

# Where packages are installed that a program can import, after the library.
PACKAGES = ("/workspace/.paddock/python/lib/python3.13/site-packages",)

# The numbers of the errors that say that a disk, or a limit of it, is full.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

NOT_HERE = {
    "numpy": "it has native code, which this isolation cannot load; the statistics, array and math modules are there",
    "pandas": "it has native code, which this isolation cannot load; the csv, sqlite3 and statistics modules are there",
    "requests": "it is no part of Python's standard library; urllib.request is",
    "httpx": "it is no part of Python's standard library; urllib.request is",
    "ctypes": "native code cannot be called in this isolation",
    "_ctypes": "native code cannot be called in this isolation",
    "tkinter": "there is no screen in this sandbox",
    "curses": "there is no terminal in this sandbox",
    "venv": "packages cannot be installed this way in this sandbox",
    "pip": "packages cannot be installed this way in this sandbox",
}

_NOT_SUPPORTED = (errno.ENOTSUP, errno.ENOSYS)
_SOCKETS = "sockets of this sandbox speak TCP to hosts that may be reached, and nothing else"
_sources = linecache.cache

# What attributes a module lacks here (None: whichever), and why.
_modules_without = {
    "_socket": (None, _SOCKETS),
    "socket": (None, _SOCKETS),
    "os": (frozenset("fork forkpty system popen kill execv execve spawnv posix_spawn waitpid".split()), "there are no other processes in this sandbox"),
}
_ModuleType = type(errno)
_names_in = _ModuleType.__dict__["__dict__"].__get__  # asks no module for anything


def own(filename):
    """Tells whether a file's code is the program's."""
    return filename.startswith("<cell") or filename in _sources and not filename.startswith("/lib/") or filename.startswith(OWN)


def _name_in(module):
    name = _names_in(module).get("__name__")
    return name if type(name) is str else ""


def hint_of(error):
    """What can be done about an error that has to do with the place; nothing: ""."""
    kind = type(error)  # whatever the error says that it is
    if issubclass(kind, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        why = NOT_HERE.get(name)
        return f"{name} is not available: {why}" if why else f"{name} is not installed in this sandbox; Python's standard library is"
    if issubclass(kind, RuntimeError) and "start new thread" in str(error):
        return "there are no threads in this sandbox; asyncio works"
    if issubclass(kind, AttributeError):
        where = _modules_without.get(_name_in(error.obj)) if type(error.obj) is _ModuleType else None
        if where and (where[0] is None or error.name in where[0]):
            return where[1]
    if issubclass(kind, OSError) and error.errno in _NOT_SUPPORTED:
        return "the sandbox has no processes, devices or ports, and its sockets speak TCP to hosts that may be reached"
    if issubclass(kind, (FileNotFoundError, PermissionError)):
        name = error.filename if isinstance(error.filename, str) else ""
        if name.startswith("/") and not name.startswith(OWN):
            return "a program's files lie in /workspace"
    return ""
