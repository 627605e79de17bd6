"""Reads trees of a server, a line of JSON each, and answers each with a line:
what is wrong with it, or what its modules told of themselves. A module may have
types and one function, no more, and executing it may do nothing but call tool and
lazy."""
import ast
import importlib
import json
import os
import sys
import tempfile
import types
import warnings

warnings.simplefilter("error")
TYPING = {"Any", "Literal", "TypedDict", "TYPE_CHECKING", "TypeAlias", "Required", "Optional"}


def allowed(node, name):
    if isinstance(node, ast.ImportFrom):
        known = {"__future__": {"annotations"}, "typing": TYPING, "servers": {"tool"}}
        return node.level == 0 and all(a.name in known[node.module] for a in node.names)
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and not node.orelse and all(allowed(n, name) for n in node.body)
    if isinstance(node, ast.Try):
        bodies = node.body + [n for h in node.handlers for n in h.body]
        return not node.orelse and not node.finalbody and all(isinstance(n, ast.ImportFrom) and allowed(n, name) for n in bodies)
    if isinstance(node, ast.ClassDef):
        inner = [n for n in node.body if not isinstance(n, (ast.AnnAssign, ast.Pass)) and not is_text(n)]
        return [b.id for b in node.bases] == ["TypedDict"] and not inner and not node.decorator_list and all(
            n.value is None and is_type(n.annotation) for n in node.body if isinstance(n, ast.AnnAssign))
    if isinstance(node, ast.AnnAssign):
        return node.annotation.id == "TypeAlias" and is_type(ast.parse(node.value.value, mode="eval").body)
    if isinstance(node, ast.Assign):
        call = node.value
        return call.func.id == "TypedDict" and all(isinstance(k, ast.Constant) for k in call.args[1].keys) and all(
            is_type(ast.parse(v.value, mode="eval").body) for v in call.args[1].values)
    if isinstance(node, ast.FunctionDef):
        (made,) = node.decorator_list
        args = node.args
        constants = made.args[:2] + made.args[2].keys + made.args[2].values
        return (node.name == name and made.func.id == "tool" and all(isinstance(c, ast.Constant) for c in constants)
                and len(node.body) == 1 and is_text(node.body[0])
                and all(d.value is ... for d in args.defaults) and not args.kwonlyargs and not args.vararg
                and all(is_type(a.annotation) for a in args.args) and is_type(node.returns))
    return False


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_type(node):
    ok = (ast.Name, ast.Constant, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple, ast.Load, ast.UnaryOp, ast.USub)
    ok += (getattr(ast, "Index", ast.Load),)
    return all(isinstance(n, ok) for n in ast.walk(node))


def check(files):
    told = []
    servers = types.ModuleType("servers")

    def tool(server, name, names):
        def made(f):
            code = f.__code__
            told.append({"module": f.__module__.split(".")[-1], "server": server, "tool": name, "names": names,
                         "parameters": list(code.co_varnames[:code.co_argcount])})
            return f
        return made

    def lazy(package, names):
        for k, v in names.items():
            if not k.isidentifier() or k != v:
                raise ValueError(k)
        def get(name):
            if package.endswith(".tools") or name not in names:
                raise AttributeError(name)
            found = getattr(importlib.import_module(package + "." + name), name)
            setattr(sys.modules[package], name, found)
            return found
        return get, lambda: list(names)

    servers.tool, servers.lazy = tool, lazy
    for m in [m for m in sys.modules if m == "made" or m.startswith("made.")]:
        del sys.modules[m]
    sys.modules["servers"] = servers
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "made"))
        names = []
        for path, text in files.items():
            with open(os.path.join(folder, "made", path), "w", encoding="utf-8", newline="") as f:
                f.write(text)
            if path.endswith((".py", ".pyi")):
                tree = ast.parse(text, path)
                compile(text, path, "exec")
                name = path[:-3]
                if path.endswith(".py") and name not in ("__init__", "tools"):
                    names.append(name)
                    bad = [ast.dump(n)[:300] for n in tree.body if not allowed(n, name)]
                    if bad:
                        raise ValueError(path + " has " + bad[0])
        names.sort()
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            acts.clear()
            taken = {}
            exec("from made import *", taken)
            if sorted(taken.keys() - {"__builtins__"}) != names or not all(isinstance(taken[n], types.FunctionType) for n in names):
                raise ValueError("all of it is " + repr(taken.keys() - {"__builtins__"}))
            for name in ["", ".tools"] + ["." + n for n in names]:
                module = importlib.import_module("made" + name)
                if name.startswith(".") and name != ".tools" and not callable(getattr(module, name[1:])):
                    raise ValueError(name + " has no function")
            if acts:
                raise ValueError("it did " + acts[0])
        finally:
            sys.path.remove(folder)
    return told


acts = []
QUIET = ("import", "exec", "compile", "marshal.", "os.listdir", "os.scandir", "object.__", "sys._getframe", "code.__new__")


def watch(event, args):
    if event == "open":
        if isinstance(args[1], str) and set(args[1]) & set("wax+"):
            acts.append("open " + repr(args[:2]))
    elif not event.startswith(QUIET):
        acts.append(event)


sys.dont_write_bytecode = True
sys.addaudithook(watch)
for line in sys.stdin:
    try:
        answer = {"told": check(json.loads(line))}
    except Exception as e:
        answer = {"error": type(e).__name__ + ": " + str(e)}
    print(json.dumps(answer), flush=True)
