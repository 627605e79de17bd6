"""Tools of other servers as functions: what the files below /servers import.

A call goes to the host as JSON, which checks it, decides upon it, and answers with
JSON (guest/README.md). The packages `servers` and `skills` lie in folders of their
names; a program's own modules of these names come before them.
"""
import base64
import dataclasses
import importlib
import importlib.machinery
import json
import opcode
import os
import sys
import types

import _paddock_loop

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_ask, _begin = _paddock_loop.ask, _paddock_loop.begin
_get_frame, _getattr = sys._getframe, getattr
_b64encode, _b64decode = base64.b64encode, base64.b64decode
_import, _modules, _listdir, _is_file = importlib.import_module, sys.modules, os.listdir, os.path.isfile
_make_encoder, _escape = json.encoder.c_make_encoder, json.encoder.encode_basestring_ascii
_fields, _is_dataclass = dataclasses.fields, dataclasses.is_dataclass
_GET_AWAITABLE, _CACHE = opcode.opmap["GET_AWAITABLE"], opcode.opmap.get("CACHE")
_PathFinder, _ModuleSpec = importlib.machinery.PathFinder, importlib.machinery.ModuleSpec

NOBODY = {"error": {"kind": "unavailable", "message": "nothing answers calls of tools here"}}


class ToolError(Exception):
    """What a tool, its server or paddock says about a call that failed.

    server, tool: whose call it was. kind: "tool" when the tool itself said so, else
    invalid, denied, not_found, exhausted, timeout, cancelled, unavailable, or unknown,
    when nobody can tell whether the tool did something.
    """

    def __init__(self, message, server="", tool="", kind="tool", field=""):
        super().__init__(message)
        self.server, self.tool, self.kind, self.field = server, tool, kind, field


class Blob(bytes):
    """A picture, a sound or another resource: its bytes, with their type in .mime."""

    mime = ""

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: bytes(self)} if self.mime.startswith("image/") else {}

    def __repr__(self):
        return f"<{self.mime or 'blob'}, {len(self)} bytes>"


class File:
    """A result that is too large to be given here: it lies in the workspace.

    path, size in bytes, mime, and preview, its beginning.
    """

    def __init__(self, path, size=0, mime="", preview=""):
        self.path, self.size, self.mime, self.preview = path, size, mime, preview

    def bytes(self):
        with open(self.path, "rb") as file:
            return file.read()

    def text(self):
        return self.bytes().decode("utf-8", "replace")

    def json(self):
        return json.loads(self.bytes())

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<File {self.path}, {self.size} bytes: {self.preview[:200]}>"


# ── what goes to the host and comes back ────────────────────────────────────

def _plain(value):
    """What an argument of a class that JSON does not know is sent as."""
    kind = type(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _b64encode(bytes(value)).decode()
    if _is_dataclass(value) and not isinstance(value, type):
        return {field.name: _getattr(value, field.name) for field in _fields(value)}
    for name in "model_dump", "tolist", "isoformat", "__fspath__", "_asdict":
        method = _getattr(kind, name, None)
        if method is not None:
            return method(value)
    if isinstance(value, (set, frozenset)) or hasattr(kind, "__next__") or kind.__name__ in ("dict_keys", "dict_values", "deque"):
        return list(value)
    if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):
        return {key: value[key] for key in value.keys()}
    if kind.__module__ == "decimal":
        return int(value) if value == value.to_integral_value() else float(value)
    if kind.__module__ in ("uuid", "ipaddress", "fractions"):
        return str(value)
    if hasattr(value, "value") and hasattr(kind, "__members__"):
        return value.value
    raise TypeError(f"an argument of the type {kind.__name__} cannot be sent to a tool")


def _encode(message):
    encode = _make_encoder({}, _plain, _escape, None, ":", ",", False, False, False)
    return "".join(encode(message, 0)).encode()


def _decode(answer, server="", tool=""):
    """The value that the host answers with, or the error."""
    if answer is None:
        answer = NOBODY
    error = answer.get("error")
    if error is not None:
        raise ToolError(error.get("message", ""), server, tool, error.get("kind", "tool"), error.get("field", ""))
    file = answer.get("file")
    if file is not None:
        return File(file["path"], file.get("size", 0), file.get("mime", ""), file.get("preview", ""))
    value = answer.get("value")
    if answer.get("parse"):
        return _parsed(value)
    if answer.get("binary"):
        return [_blob(each) for each in value] if type(value) is list else _blob(value)
    return value


class Object(dict):
    """The object that a tool gave as JSON in a text; text is that as it came."""


class Array(list):
    """The array that a tool gave as JSON in a text; text is that as it came."""


def _parsed(text):
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    value = Array(value) if type(value) is list else Object(value)
    value.text = text
    return value


def _blob(value):
    if type(value) is not dict or "base64" not in value:
        return value
    blob = Blob(_b64decode(value["base64"]))
    blob.mime = value.get("mime", "")
    return blob


def _call_now(message, server="", tool=""):
    return _decode(_ask(_encode(message)), server, tool)


async def _call_later(message, server="", tool=""):
    return _decode(await _begin(message), server, tool)


# ── functions ───────────────────────────────────────────────────────────────

_awaits = {}  # (code, where it calls): whether what is called is awaited at once


def _awaited(frame):
    """Tells whether the caller awaits what it is given: `await tool(…)`."""
    place = frame.f_code, frame.f_lasti
    known = _awaits.get(place)
    if known is None:
        code, at = frame.f_code.co_code, frame.f_lasti + 2
        while at < len(code) and code[at] == _CACHE:
            at += 2
        if len(_awaits) > 1000:
            _awaits.clear()
        known = _awaits[place] = at < len(code) and code[at] == _GET_AWAITABLE
    return known


class Tool:
    """A tool of another server. Called, it waits for the result; awaited, or called by
    .aio, it lets other tasks go on."""

    def __init__(self, server, name, names, function):
        self._server, self._tool, self._names = server, name, names
        self._function, self._module = function, function.__globals__
        self.__name__ = self.__qualname__ = function.__name__
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.__wrapped__ = function
        self.__annotations__ = function.__annotations__

    def __call__(self, *args, **kwargs):
        message = self._message(args, kwargs)
        if _awaited(_get_frame(1)):
            return _call_later(_encode(message), self._server, self._tool)
        return _call_now(message, self._server, self._tool)

    def aio(self, *args, **kwargs):
        return _call_later(_encode(self._message(args, kwargs)), self._server, self._tool)

    def _message(self, args, kwargs):
        names, given = self._names, {}
        if args:
            if len(args) > len(names):
                raise TypeError(f"{self.__name__}() takes {len(names)} arguments, and {len(args)} were given")
            for name, value in zip(names, args):
                if name in kwargs:
                    raise TypeError(f"{self.__name__}() was given {name} twice")
                if value is not ...:
                    given[names[name]] = value
        for name, value in kwargs.items():
            if name not in names:
                raise TypeError(f"{self.__name__}() has no argument {name!r}; it takes {', '.join(names) or 'none'}")
            if value is not ...:
                given[names[name]] = value
        return {"op": "call", "server": self._server, "tool": self._tool, "arguments": given}

    def __getattr__(self, name):
        # A tool stands for the module that it is the only function of.
        module = self.__dict__.get("_module") or {}
        if name == self.__dict__.get("__name__"):
            return self
        if name in module and (name[:2] != "__" or name in ("__file__", "__spec__", "__path__", "__loader__", "__package__")):
            return module[name]
        raise AttributeError(f"the tool {self.__dict__.get('__name__')} has no attribute {name!r}")

    def __repr__(self):
        return f"<tool {self._server}.{self.__name__}: {(self.__doc__ or '').strip().partition(chr(10))[0]}>"


def tool(server, name, names):
    """Makes a function the tool of a server: names are its parameters' as the server has them."""
    def make(function):
        made = Tool(server, name, names, function)
        if function.__module__.rpartition(".")[2] == function.__name__ and function.__module__ in _modules:
            _modules[function.__module__] = made
        return made
    return make


def lazy(package, tools):
    """What a package of tools gives for its names, each from a file of its own when it is
    asked for: tools are the files by the names. Gives __getattr__ and __dir__."""
    folder = package[:-len(".tools")] if package.endswith(".tools") else package
    def get(name):
        file = tools.get(name)
        if file is None and name == "tools" and package == folder:
            return _import(f"{folder}.tools")
        if file is None:
            raise AttributeError(f"{package} has no tool {name!r}; it has {_few(tools)}")
        found = _getattr(_import(f"{folder}.{file}"), name)
        _modules[package].__dict__[name] = found
        return found
    return get, lambda: sorted(tools)


def _few(tools):
    names = sorted(tools)
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def search(query, limit=10, detail="description", server=None):
    """Finds tools of all bound servers: a list of dicts with server, tool, description,
    signature and import. detail: "name", "description" or "full"."""
    return _call_now({"op": "search", "query": query, "limit": limit, "detail_level": detail, "server": server})


async def call(server, tool, args=None):
    """Calls a tool by its own name, as mayflower_mcp does."""
    return await _call_later(_encode({"op": "call", "server": server, "tool": tool, "arguments": args or {}}), server, tool)


# ── where they are found ────────────────────────────────────────────────────

# What comes along with the skill documents of other people's, and is imported from there
# by its own name where nothing else has it (skills/documents/lib/_packages.py).
CARRIED = frozenset(("openpyxl", "et_xmlfile", "pypdf", "reportlab"))
CARRIED_IN = "/documents/lib/packages.zip"

# How the files of what is in a package end, and what is said of what is not.
ENDS = {"servers": "", "skills": ".py"}
NOT_THERE = {"servers": "no server {} is bound", "skills": "no skill {} is installed"}


def _names(package):
    """What is in a package."""
    try:
        end = ENDS[package]
        files = [file[:len(file) - len(end)] for file in _listdir(CONTENTS[package]["__path__"][0]) if file.endswith(end)]
        return sorted(file for file in files if file.isidentifier())
    except (OSError, IndexError):
        return []


def _not_there(package, name="of this name"):
    there = _names(package)
    return NOT_THERE[package].format(name) + (f"; there are {', '.join(there[:20])}" if there else "; none is")


def _members(package):
    """The __getattr__ of a package: what is in it is imported when it is asked for."""
    def get(name):
        if name[:2] == "__":
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name not in _names(package):
            raise AttributeError(_not_there(package, repr(name)))
        return _import(f"{package}.{name}")
    return get


def hint_of(error):
    """What there is in place of what could not be imported of these packages; else: ""."""
    if not issubclass(type(error), ImportError) or type(error.name) is not str:
        return ""
    package, _, rest = error.name.partition(".")
    if package not in ENDS:
        return ""
    wanted = [part for part in (*rest.split("."), _getattr(error, "name_from", None)) if part]  # the last is known since Python 3.12
    if not wanted or wanted[0] not in _names(package):
        return _not_there(package, *map(repr, wanted[:1]))
    tools = _getattr(_modules.get(f"{package}.{wanted[0]}"), "__dict__", {}).get("__dir__")
    if package != "servers" or len(wanted) == 1 or tools is None:
        return ""
    return f"the server {wanted[0]} has no tool {wanted[-1]!r}; it has {_few(tools())}"


CONTENTS = {
    "servers": {
        "__path__": ["/servers"], "tool": tool, "lazy": lazy, "search": search, "call": call,
        "ToolError": ToolError, "Tool": Tool, "Blob": Blob, "File": File,
        "__dir__": lambda: [*_names("servers"), "search", "call", "ToolError"], "__getattr__": _members("servers"),
    },
    "skills": {"__path__": ["/skills"], "__dir__": lambda: _names("skills"), "__getattr__": _members("skills")},
    "mayflower_mcp": {"call": call, "ToolError": ToolError},
}
DOCS = {
    "servers": "Other MCP servers as functions: from servers.<name> import <tool>. search(query) finds tools.",
    "skills": "Installed skills: from skills.<name> import instructions.",
    "mayflower_mcp": "await call(server, tool, args) calls a tool by its name.",
}


class Finder:
    """Finds the packages, after a program's own of the same name."""

    def find_spec(self, name, path=None, target=None):
        if name not in CONTENTS:
            return None
        own = _PathFinder.find_spec(name)
        if own is not None and own.origin is not None:
            return own
        return _ModuleSpec(name, self, origin="paddock", is_package="__path__" in CONTENTS[name])

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__spec__.name
        module.__doc__ = DOCS[name]
        module.__dict__.update(CONTENTS[name])

    @staticmethod
    def invalidate_caches():
        pass


class Carried:
    """Finds what comes along with the ready skills, after everything else."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is not None or name not in CARRIED:
            return None
        archive = CONTENTS["skills"]["__path__"][0] + CARRIED_IN
        if not _is_file(archive):
            return None  # and nobody may remember that it was not there
        spec = _PathFinder.find_spec(name, [archive])
        if spec is not None:
            spec.loader = _Prepared(spec.loader)
        return spec

    @staticmethod
    def invalidate_caches():
        pass


class _Prepared:
    """Loads a module as its own loader does, and has the skill make it ready."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        _import("skills.documents.lib._packages").prepare(module.__name__)


for _public in ToolError, Tool, Blob, File, search, call:
    _public.__module__ = "servers"
sys.meta_path.insert(0, Finder())
sys.meta_path.append(Carried())
