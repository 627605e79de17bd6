"""JSON: a place in a document, all of its places, and documents as rows."""
import json
import re

_MISSING = object()
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+|\*)\]|\[\"([^\"]*)\"\]")


def _steps(path):
    at, steps = 0, []
    while at < len(path):
        m = _STEP.match(path, at)
        if not m:
            raise ValueError(f"{path!r} is no path; write a.b[0].c, a[*].b or a[\"b.c\"]")
        at = m.end()
        steps.append(m[1] if m[1] is not None else m[3] if m[3] is not None else "*" if m[2] == "*" else int(m[2]))
    return steps


def get(document, path, default=_MISSING):
    """What lies at a path such as "a.b[0].c"; "a[*].b" gives a list. What is missing is the
    default, or, without one, a KeyError that says how far the path goes."""
    here = document
    steps = _steps(path)
    for k, step in enumerate(steps):
        if step == "*":
            rest = steps[k + 1:]
            items = list(here.values()) if isinstance(here, dict) else here if isinstance(here, list) else []
            found = (_follow(item, rest) for item in items)
            return [x for x in found if x is not _MISSING]
        here = _follow(here, [step])
        if here is _MISSING:
            if default is not _MISSING:
                return default
            raise KeyError(f"{path!r}: there is no {step!r} at step {k + 1}")
    return here


def _follow(here, steps):
    for k, step in enumerate(steps):
        if step == "*":
            items = list(here.values()) if isinstance(here, dict) else here if isinstance(here, list) else []
            return [x for x in (_follow(item, steps[k + 1:]) for item in items) if x is not _MISSING]
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list) and isinstance(step, int) and -len(here) <= step < len(here):
            here = here[step]
        else:
            return _MISSING
    return here


def flatten(document, separator="."):
    """A nested document as one dict of paths to values."""
    out = {}
    stack = [("", document)]
    while stack:
        at, here = stack.pop()
        if isinstance(here, dict) and here:
            stack += reversed([(at + separator + str(k) if at else str(k), v) for k, v in here.items()])
        elif isinstance(here, list) and here:
            stack += reversed([(f"{at}[{k}]", v) for k, v in enumerate(here)])
        else:
            out[at] = here
    return out


def paths(document, limit=200):
    """What a document looks like: its paths, [*] for lists, with the types there."""
    found = {}
    for path, value in flatten(document).items():
        path = re.sub(r"\[\d+\]", "[*]", path)
        found.setdefault(path, set()).add(type(value).__name__)
        if len(found) >= limit:
            break
    return {path: " | ".join(sorted(types)) for path, types in found.items()}


def json_lines(path):
    """The documents of a file with one on each line, one after the other."""
    with open(path, encoding="utf-8-sig") as f:
        for number, line in enumerate(f, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path}, line {number}: {error}") from None
