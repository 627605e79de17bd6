"""Tables: rows as dicts, read from and written to files, and what is done with them."""
import csv
import io
import json
import math
import os
import re
import sqlite3
import statistics
from urllib.parse import quote

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,17})")


def number(text):
    """A text as a number, where it is one: not "007", which would lose its zeros."""
    if not isinstance(text, str):
        return text
    t = text.strip()
    if _WHOLE.fullmatch(t):
        return int(t)
    if _NUMBER.fullmatch(t) and not re.match(r"[+-]?0\d", t):
        return float(t) if "." in t or "e" in t.lower() else text
    return text


_AGGREGATES = {
    "sum": sum, "count": len, "min": min, "max": max, "mean": statistics.fmean, "median": statistics.median,
    "stdev": lambda v: statistics.stdev(v) if len(v) > 1 else None, "first": lambda v: v[0], "last": lambda v: v[-1],
    "list": list, "unique": lambda v: len(set(map(_key, v))),
}


def _key(value):
    """Something to compare values of any types by."""
    if value is None:
        return (0, 0)
    if isinstance(value, (bool, int, float)):
        return (1, value) if value == value else (0, 1)
    return (2, str(value))


class Table(list):
    """Rows, each a dict. Methods give new tables and leave this one as it is."""

    @property
    def columns(self):
        """Names, in the order in which they first come."""
        return list(dict.fromkeys(name for row in self for name in row))

    def column(self, name):
        self._check(name)
        return [row.get(name) for row in self]

    def _check(self, *names):
        missing = [n for n in names if n not in self.columns]
        if missing and self:
            raise KeyError(f"there is no column {missing[0]!r}; there are {', '.join(map(str, self.columns[:50]))}")

    def where(self, test=None, **equal):
        """Rows for which test(row) holds, and whose columns have these values."""
        self._check(*equal)
        return Table(r for r in self if (test is None or test(r)) and all(r.get(k) == v for k, v in equal.items()))

    def select(self, *names, **renamed):
        """Some columns; new="old" gives one another name."""
        self._check(*names, *renamed.values())
        pairs = [(n, n) for n in names] + list(renamed.items())
        return Table({new: r.get(old) for new, old in pairs} for r in self)

    def drop(self, *names):
        self._check(*names)
        return Table({k: v for k, v in r.items() if k not in names} for r in self)

    def add(self, **made):
        """New columns, each a function of the row or a value for all."""
        return Table({**r, **{k: f(r) if callable(f) else f for k, f in made.items()}} for r in self)

    def sort(self, *names, reverse=False, key=None):
        """In the order of columns ("-name": downwards), or of key(row)."""
        if key is not None:
            return Table(sorted(self, key=key, reverse=reverse))
        self._check(*(n.removeprefix("-") if n not in self.columns else n for n in names))
        found = list(self)
        for name in reversed(names):
            down = name.startswith("-") and name not in self.columns
            plain = name[1:] if down else name
            found.sort(key=lambda r: _key(r.get(plain)), reverse=down != reverse)
        return Table(found)

    def head(self, count=10):
        return Table(self[:count])

    def distinct(self, *names):
        """The first row of each combination of these columns (none named: of all)."""
        self._check(*names)
        seen, found = set(), Table()
        for r in self:
            mark = tuple(_key(r.get(n)) for n in (names or self.columns))
            if mark not in seen:
                seen.add(mark)
                found.append(r)
        return found

    def group(self, *names, **made):
        """A row for each combination of columns: group("city", total=("sum", "price"), n="count").
        There are sum, count, min, max, mean, median, stdev, first, last, list, unique, or a
        function of the values. What is missing (None, "") does not count as a value."""
        self._check(*names, *(m[1] for m in made.values() if isinstance(m, tuple)))
        groups = {}
        for r in self:
            groups.setdefault(tuple(_key(r.get(n)) for n in names), []).append(r)
        found = Table()
        for rows in groups.values():
            row = {n: rows[0].get(n) for n in names}
            for new, what in made.items():
                function, column = what if isinstance(what, tuple) else (what, None)
                if isinstance(function, str):
                    if function not in _AGGREGATES:
                        raise ValueError(f"there is no {function!r}; there are {', '.join(_AGGREGATES)}")
                    function = _AGGREGATES[function]
                values = rows if column is None else [r.get(column) for r in rows if r.get(column) not in (None, "")]
                row[new] = function(values) if values or function in (len, sum) else None
            found.append(row)
        return found

    def join(self, other, on, how="inner"):
        """Rows of two tables with the same values in a column, or in several (a list).
        how: "inner", "left" or "outer". Columns that both have get "_2" in the other's."""
        if how not in ("inner", "left", "outer"):
            raise ValueError('how is "inner", "left" or "outer"')
        on, other = [on] if isinstance(on, str) else list(on), Table(other)
        self._check(*on)
        other._check(*on)
        mine, theirs = self.columns, other.columns
        names = {n: n + "_2" if n in mine else n for n in theirs if n not in on}
        index, used, found = {}, set(), Table()
        for k, r in enumerate(other):
            index.setdefault(tuple(_key(r.get(n)) for n in on), []).append(k)
        for r in self:
            same = index.get(tuple(_key(r.get(n)) for n in on), [])
            used.update(same)
            for k in same:
                found.append({**r, **{new: other[k].get(n) for n, new in names.items()}})
            if not same and how != "inner":
                found.append({**r, **dict.fromkeys(names.values())})
        if how == "outer":
            for k, r in enumerate(other):
                if k not in used:
                    found.append({**{n: r.get(n) if n in on else None for n in mine}, **{new: r.get(n) for n, new in names.items()}})
        return found

    def pivot(self, rows, columns, values, function="sum"):
        """A row for each value of one column, a column for each value of another."""
        cells = self.group(rows, columns, _=(function, values))
        names = sorted({r[columns] for r in cells}, key=_key)
        found = {}
        for r in cells:
            found.setdefault(_key(r[rows]), {rows: r[rows], **{str(n): None for n in names}})[str(r[columns])] = r["_"]
        return Table(found.values())

    def describe(self):
        """What each column holds: a row for each."""
        found = Table()
        for name in self.columns:
            values = [v for v in self.column(name) if v not in (None, "")]
            numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and not math.isnan(v)]
            row = {"column": name, "values": len(values), "missing": len(self) - len(values), "distinct": len(set(map(_key, values))),
                   "type": " | ".join(sorted({type(v).__name__ for v in values}))}
            low = numbers if len(numbers) == len(values) else [str(v) for v in values]
            row |= {"min": min(low), "max": max(low)} if low else {"min": None, "max": None}
            row["mean"] = statistics.fmean(numbers) if numbers and len(numbers) == len(values) else None
            found.append(row)
        return found

    # ── out ─────────────────────────────────────────────────────────────

    def to_markdown(self, limit=50):
        names = self.columns
        if not names:
            return "(no rows)"
        text = lambda v: "" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v).replace("|", "\\|").replace("\n", "<br>")
        lines = ["| " + " | ".join(map(text, names)) + " |", "|" + " --- |" * len(names)]
        lines += ["| " + " | ".join(text(r.get(n)) for n in names) + " |" for r in self[:limit]]
        return "\n".join(lines) + (f"\n… and {len(self) - limit} more rows" if len(self) > limit else "")

    __str__ = to_markdown

    def __repr__(self):
        return f"<Table of {len(self)} rows: {', '.join(map(str, self.columns[:20]))}>"

    def to_csv(self, delimiter=","):
        out = io.StringIO()
        writer = csv.DictWriter(out, self.columns, delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        for r in self:
            writer.writerow({k: json.dumps(v, ensure_ascii=False) if isinstance(v, (dict, list)) else v for k, v in r.items()})
        return out.getvalue()

    def write(self, path):
        """Writes .csv, .tsv, .json, .jsonl, .md or .xlsx, as the name ends."""
        kind = os.path.splitext(path)[1].lower()
        if kind == ".xlsx":
            from skills.documents.lib import xlsx
            return xlsx.write(path, list(self))
        if kind in (".csv", ".tsv"):
            text = self.to_csv("\t" if kind == ".tsv" else ",")
        elif kind == ".json":
            text = json.dumps(self, ensure_ascii=False, indent=1, default=str) + "\n"
        elif kind in (".jsonl", ".ndjson"):
            text = "".join(json.dumps(r, ensure_ascii=False, default=str) + "\n" for r in self)
        elif kind == ".md":
            text = self.to_markdown(len(self)) + "\n"
        else:
            raise ValueError(f"{path!r} ends in nothing that is written; there are .csv, .tsv, .json, .jsonl, .md and .xlsx")
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(text)


def table(rows, columns=None):
    """A table of dicts, or of lists, whose names are in columns or else in the first of them."""
    rows = list(rows)
    if rows and not isinstance(rows[0], dict):
        if columns is None:
            columns, rows = [str(c) for c in rows[0]], rows[1:]
        return Table(dict(zip(columns, row)) for row in rows)
    return Table(dict(r) for r in rows)


def read(source, columns=None, delimiter=None, numbers=True, encoding=None, sheet=None, at=None):
    """Reads a table from a .csv, .tsv, .json, .jsonl, .xml, .xlsx or .db file.

    CSV: its delimiter and encoding are found out; numbers=False leaves texts as they are;
    columns are names where the file has none. JSON and XML: at is the path of the rows ("data.items").
    .xlsx: sheet; .db and .sqlite: sheet is the name of a table.
    """
    kind = os.path.splitext(source)[1].lower()
    if kind == ".xlsx":
        from skills.documents.lib import xlsx
        return Table(xlsx.read(source, sheet))
    if kind in (".db", ".sqlite", ".sqlite3"):
        return _sqlite(source, sheet)
    if kind in (".jsonl", ".ndjson"):
        from ._json import json_lines
        return _rows(list(json_lines(source)), at)
    if kind == ".xml":
        from ._xml import read_xml
        return _rows(read_xml(source), at)
    with open(source, "rb") as f:
        data = f.read()
    text = decode(data, encoding)
    if kind == ".json":
        return _rows(json.loads(text), at)
    return from_csv(text, columns, delimiter or ("\t" if kind == ".tsv" else None), numbers)


def decode(data, encoding=None):
    """Bytes as text: in the encoding that is given, or that they look like."""
    if encoding:
        return data.decode(encoding)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def from_csv(text, columns=None, delimiter=None, numbers=True):
    """A table of a CSV text."""
    delimiter = delimiter or _delimiter(text)
    csv.field_size_limit(1 << 27)
    rows = [r for r in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if r]
    if columns is None:
        if not rows:
            return Table()
        columns, rows = _unique(rows[0]), rows[1:]
    width = max(map(len, rows), default=0)
    columns = list(columns) + [f"column {k + 1}" for k in range(len(columns), width)]
    read_one = number if numbers else lambda t: t
    return Table({n: read_one(r[k]) if k < len(r) else None for k, n in enumerate(columns)} for r in rows)


def _unique(names):
    found = []
    for k, name in enumerate(names):
        name = name.strip() or f"column {k + 1}"
        same = 2
        while name in found:
            name, same = f"{names[k].strip()}_{same}", same + 1
        found.append(name)
    return found


def _delimiter(text):
    """The one that splits the first lines into most columns, the same number in each."""
    lines = text[:65536].splitlines()[:20]
    best, score = ",", (0, 0)
    for d in ",;\t|":
        widths = [len(r) for r in csv.reader(lines, delimiter=d) if r]
        if widths and widths[0] > 1:
            same = sum(w == widths[0] for w in widths) / len(widths)
            if (round(same, 2), widths[0]) > score:
                best, score = d, (round(same, 2), widths[0])
    return best


def _rows(document, at):
    """The rows in a document: its list of dicts, or the only one in it."""
    from ._json import get
    if at:
        document = get(document, at)
    while isinstance(document, dict):
        lists = [v for v in document.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
        inner = [v for v in document.values() if isinstance(v, dict)]
        if len(lists) == 1:
            document = lists[0]
        elif not lists and len(document) == 1 and inner:
            document = inner[0]
        elif lists:
            raise ValueError(f"there are several lists of rows: say which with at=; {', '.join(k for k, v in document.items() if isinstance(v, list))}")
        else:
            document = [document]
    if not isinstance(document, list):
        raise ValueError("there are no rows in it: it is no list")
    return Table(dict(r) if isinstance(r, dict) else {"value": r} for r in document)


def _quoted(name):
    return '"' + str(name).replace('"', '""') + '"'


def _sqlite(path, name):
    base = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    try:
        names = [n for n, in base.execute("select name from sqlite_master where type in ('table', 'view') and name not like 'sqlite_%' order by name")]
        if name is None and len(names) != 1:
            raise ValueError(f"say which table with sheet=; there are {', '.join(names)}")
        found = base.execute(f"select * from {_quoted(name or names[0])}")
        return Table(dict(zip([d[0] for d in found.description], row)) for row in found)
    finally:
        base.close()


def query(sql, **tables):
    """Has SQLite answer a question about tables: query("select city, sum(n) from t group by city", t=rows)."""
    base = sqlite3.connect(":memory:")
    try:
        for name, rows in tables.items():
            rows = Table(rows)
            columns = rows.columns
            if not columns:
                raise ValueError(f"the table {name} has no columns")
            base.execute(f"create table {_quoted(name)} ({', '.join(map(_quoted, columns))})")
            base.executemany(f"insert into {_quoted(name)} values ({', '.join('?' * len(columns))})",
                             ([_stored(r.get(c)) for c in columns] for r in rows))
        found = base.execute(sql)
        return Table(dict(zip([d[0] for d in found.description or ()], row)) for row in found)
    finally:
        base.close()


def _stored(value):
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list)) else str(value)
