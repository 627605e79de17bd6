"""find, grep, tree, diff and the like, as functions that give lists.

Paths are relative to where one looks. Links to folders are not followed, and folders
such as .git and node_modules are left out unless hidden=True.
"""
import difflib
import hashlib
import os
import re
import time

SKIPPED = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache"}
BINARY = 8192  # bytes in which a NUL tells that a file is no text


class Match(dict):
    """What grep found: path, line (from 1), text, before, after; its text is path:line:text."""

    path = property(lambda self: self["path"])
    line = property(lambda self: self["line"])
    text = property(lambda self: self["text"])

    def __str__(self):
        return f"{self['path']}:{self['line']}:{self['text']}"

    __repr__ = __str__


def _walk(top, hidden):
    """Folders and what is in them, in order, without what is skipped."""
    for folder, folders, names in os.walk(top):
        if not hidden:
            folders[:] = [f for f in folders if f not in SKIPPED and not f.startswith(".")]
            names = [n for n in names if not n.startswith(".")]
        folders.sort()
        yield folder, folders, sorted(names)


def _patterns(patterns):
    """A test of paths: "*.py" looks at the name, "src/**/*.py" at the whole path."""
    if patterns is None:
        return lambda path: True
    tests = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        for one in _braces(pattern):
            whole = "/" in one
            found = re.compile(_regex(one))
            tests.append(lambda path, found=found, whole=whole: found.fullmatch(path if whole else path.rpartition("/")[2]))
    return lambda path: any(test(path) for test in tests)


def _braces(pattern):
    found = re.search(r"\{([^{}]*)\}", pattern)
    if not found:
        return [pattern]
    return [p for word in found[1].split(",") for p in _braces(pattern[:found.start()] + word + pattern[found.end():])]


def _regex(pattern):
    out = []
    for piece in re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]+\])", pattern):
        out.append({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece) or
                   ("[" + ("^" if piece[1] == "!" else "") + piece[1:].lstrip("!").replace("\\", r"\\") if piece[:1] == "[" and piece[-1:] == "]" else re.escape(piece)))
    return "".join(out)


def find(pattern=None, path=".", kind="file", min_size=None, max_size=None, newer=None, older=None, exclude=None, hidden=False, limit=10_000):
    """Paths below a folder, sorted.

    pattern: "*.py", "src/**/*.{js,ts}", or a list. kind: "file", "folder" or "any". Sizes in
    bytes. newer and older: hours since the last change. exclude: patterns as well.
    """
    if kind not in ("file", "folder", "any"):
        raise ValueError('kind is "file", "folder" or "any"')
    wanted, unwanted = _patterns(pattern), _patterns(exclude) if exclude else lambda path: False
    now, found = time.time(), []
    if not os.path.isdir(path):
        raise NotADirectoryError(f"{path} is no folder")
    for folder, folders, names in _walk(path, hidden):
        inner = os.path.relpath(folder, path)
        prefix = "" if inner == "." else inner.replace(os.sep, "/") + "/"
        for name in (folders if kind != "file" else []) + (names if kind != "folder" else []):
            at = prefix + name
            if not wanted(at) or unwanted(at):
                continue
            if any(v is not None for v in (min_size, max_size, newer, older)):
                try:
                    info = os.stat(os.path.join(folder, name))
                except OSError:
                    continue
                age = (now - info.st_mtime) / 3600
                if min_size is not None and info.st_size < min_size or max_size is not None and info.st_size > max_size \
                        or newer is not None and age > newer or older is not None and age < older:
                    continue
            found.append(at)
            if len(found) >= limit:
                return sorted(found)
    return sorted(found)


def read(path):
    """A file's text, whatever it is encoded in; None: it is no text."""
    with open(path, "rb") as f:
        data = f.read()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if b"\0" in data[:BINARY]:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def grep(pattern, path=".", glob=None, ignore_case=False, fixed=False, context=0, limit=1000, max_size=20 << 20, hidden=False, exclude=None):
    """Lines that a regular expression (with fixed=True: a text) is found in: [Match].

    path: a folder, or one file. Files that are no text, or larger than max_size, are left out.
    """
    found = re.compile(re.escape(pattern) if fixed else pattern, re.IGNORECASE if ignore_case else 0)
    matches = []
    one = os.path.isfile(path)
    for name in [path] if one else find(glob, path, exclude=exclude, hidden=hidden, limit=100_000):
        whole = name if one else os.path.join(path, name)
        try:
            text = read(whole) if os.path.getsize(whole) <= max_size else None
        except OSError:
            continue
        if text is None:
            continue
        lines = text.splitlines()
        for k, line in enumerate(lines):
            if found.search(line):
                matches.append(Match(path=name, line=k + 1, text=line, before=lines[max(0, k - context):k], after=lines[k + 1:k + 1 + context]))
                if len(matches) >= limit:
                    return matches
    return matches


def tree(path=".", depth=3, files=True, sizes=False, hidden=False, limit=500):
    """A folder as people draw it, of so many lines at most."""
    lines = [os.path.basename(os.path.abspath(path)) + "/"]
    left = [limit]

    def draw(folder, prefix, level):
        try:
            entries = sorted(os.scandir(folder), key=lambda e: (not e.is_dir(follow_symlinks=False), e.name))
        except OSError as error:
            lines.append(prefix + f"└── ({error.strerror})")
            return
        entries = [e for e in entries if (hidden or not e.name.startswith(".") and e.name not in SKIPPED) and (files or e.is_dir(follow_symlinks=False))]
        for k, e in enumerate(entries):
            if left[0] <= 0:
                lines.append(prefix + "└── …")
                return
            left[0] -= 1
            last = k == len(entries) - 1
            inner = e.is_dir(follow_symlinks=False)
            size = f"  {human(e.stat(follow_symlinks=False).st_size)}" if sizes and not inner else ""
            lines.append(prefix + ("└── " if last else "├── ") + e.name + ("/" if inner else "") + size)
            if inner and level < depth:
                draw(e.path, prefix + ("    " if last else "│   "), level + 1)

    draw(path, "", 1)
    return "\n".join(lines)


def human(size):
    """A number of bytes as people say it."""
    for unit in "B", "KiB", "MiB", "GiB":
        if size < 1024 or unit == "GiB":
            return f"{size} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024


def diff(before, after, context=3):
    """What differs between two files, or two folders, as a unified diff; empty: nothing."""
    if os.path.isdir(before) and os.path.isdir(after):
        old, new = (set(find(path=p, hidden=True, limit=100_000)) for p in (before, after))
        return "".join(_compare(os.path.join(before, n) if n in old else None, os.path.join(after, n) if n in new else None, context) for n in sorted(old | new))
    return _compare(before, after, context)


def _compare(before, after, context):
    data = []
    for path in before, after:
        if path is None:
            data.append(b"")
            continue
        with open(path, "rb") as f:
            data.append(f.read())
    if data[0] == data[1] and before and after:
        return ""
    texts = [read(p) if p else "" for p in (before, after)]
    if None in texts:
        return f"Files {before or '(none)'} and {after or '(none)'} differ: they are no text\n"
    return text_diff(*texts, before or "/dev/null", after or "/dev/null", context)


def text_diff(before, after, before_name="before", after_name="after", context=3):
    """What differs between two texts, as a unified diff."""
    out = []
    for line in difflib.unified_diff(before.splitlines(True), after.splitlines(True), before_name, after_name, n=context):
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out)


def replace(pattern, replacement, path=".", glob=None, fixed=False, ignore_case=False, dry_run=False, exclude=None):
    """Replaces in files; gives how often in which: {path: count}. dry_run=True changes nothing."""
    found = re.compile(re.escape(pattern) if fixed else pattern, (re.IGNORECASE if ignore_case else 0) | re.MULTILINE)
    put = (lambda m: replacement) if fixed else replacement
    counts, one = {}, os.path.isfile(path)
    for name in [path] if one else find(glob, path, exclude=exclude, limit=100_000):
        whole = name if one else os.path.join(path, name)
        with open(whole, "rb") as f:
            data = f.read()
        if b"\0" in data[:BINARY]:
            continue
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            continue  # its bytes would not stay as they are
        text, count = found.subn(put, text)
        if count:
            counts[name] = count
            if not dry_run:
                with open(whole, "wb") as f:
                    f.write(text.encode("utf-8"))
    return counts


def head(path, lines=10):
    """A file's first lines."""
    out = []
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if len(out) >= lines:
                break
            out.append(line)
    return "".join(out)


def tail(path, lines=10):
    """A file's last lines; of a long file nothing else is read."""
    with open(path, "rb") as f:
        at = f.seek(0, os.SEEK_END)
        data = b""
        while at > 0 and data.count(b"\n") <= lines:
            step = min(65536, at)
            at -= step
            f.seek(at)
            data = f.read(step) + data
    kept = data.splitlines(keepends=True)[-lines:] if lines > 0 else []
    return b"".join(kept).decode("utf-8", "replace")


def digest(path, algorithm="sha256"):
    """A file's digest, in hex."""
    with open(path, "rb") as f:
        found = hashlib.new(algorithm)
        while block := f.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def duplicates(path=".", pattern=None, hidden=False):
    """Files with the same content: lists of paths."""
    sizes, same = {}, {}
    for name in find(pattern, path, hidden=hidden, limit=100_000):
        sizes.setdefault(os.path.getsize(os.path.join(path, name)), []).append(name)
    for names in sizes.values():
        if len(names) > 1:
            for name in names:
                same.setdefault(digest(os.path.join(path, name)), []).append(name)
    return sorted(names for names in same.values() if len(names) > 1)


def usage(path=".", limit=20, hidden=True):
    """What takes most room: [(bytes, path)] of files, and folders with all that is in them (ending in /)."""
    totals = {}
    for name in find(path=path, hidden=hidden, limit=1_000_000):
        size = os.lstat(os.path.join(path, name)).st_size
        totals[name] = size
        while "/" in name.rstrip("/"):
            name = name.rstrip("/").rpartition("/")[0] + "/"
            totals[name] = totals.get(name, 0) + size
    return sorted(((size, name) for name, size in totals.items()), key=lambda x: (-x[0], x[1]))[:limit]
