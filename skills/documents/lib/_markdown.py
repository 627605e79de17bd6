"""The Markdown that models write, as blocks: enough for documents, not a standard's whole.

    ("heading", level, text)    ("paragraph", text)    ("item", depth, ordered, text)
    ("code", text)              ("quote", text)        ("table", rows)
    ("image", path, text)       ("rule",)
"""
import re

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$")
_IMAGE = re.compile(r"^\s*!\[([^]]*)\]\(([^)\s]+)[^)]*\)\s*$")
_RULE = re.compile(r"^\s*([-*_])(\s*\1){2,}\s*$")
_DIVIDER = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_SPAN = re.compile(r"(?P<code>`+)(?P<c>.+?)(?P=code)|\*\*\*(?P<bi>.+?)\*\*\*|\*\*(?P<b>.+?)\*\*|(?<!\w)__(?P<b2>.+?)__(?!\w)"
                   r"|\*(?P<i>[^*\s](?:[^*]*[^*\s])?)\*|(?<!\w)_(?P<i2>[^_\s](?:[^_]*[^_\s])?)_(?!\w)|\[(?P<t>[^]]+)\]\((?P<u>[^)\s]+)\)")


def blocks(text):
    lines = text.expandtabs(4).splitlines()
    k = 0
    while k < len(lines):
        line = lines[k]
        if not line.strip():
            k += 1
            continue
        fence = _FENCE.match(line)
        if fence:
            end = next((j for j in range(k + 1, len(lines)) if lines[j].strip().startswith(fence[1])), len(lines))
            yield ("code", "\n".join(lines[k + 1:end]))
            k = end + 1
            continue
        k += 1
        if m := _HEADING.match(line):
            yield ("heading", len(m[1]), m[2])
        elif _RULE.match(line):
            yield ("rule",)
        elif m := _IMAGE.match(line):
            yield ("image", m[2], m[1])
        elif k < len(lines) and "|" in line and _DIVIDER.match(lines[k]):
            rows, k = [cells(line)], k + 1
            while k < len(lines) and "|" in lines[k] and lines[k].strip():
                rows.append(cells(lines[k]))
                k += 1
            yield ("table", rows)
        elif m := _ITEM.match(line):
            text, k = _gather(lines, k, [m[3]])
            yield ("item", len(m[1]) // 2, m[2][0].isdigit(), text)
        elif line.lstrip().startswith(">"):
            quoted = [line]
            while k < len(lines) and lines[k].lstrip().startswith(">"):
                quoted.append(lines[k])
                k += 1
            yield ("quote", " ".join(q.lstrip()[1:].strip() for q in quoted))
        else:
            text, k = _gather(lines, k, [line.strip()])
            yield ("paragraph", text)


def _gather(lines, k, found):
    """What goes on in the next lines."""
    while k < len(lines) and lines[k].strip() and not any(p.match(lines[k]) for p in (_FENCE, _HEADING, _ITEM, _IMAGE, _RULE)) \
            and not lines[k].lstrip().startswith((">", "|")):
        found.append(lines[k].strip())
        k += 1
    return " ".join(found), k


def cells(line):
    line = line.strip()
    line = line[1:] if line.startswith("|") else line
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return [c.strip().replace("\\|", "|").replace("<br>", "\n") for c in re.split(r"(?<!\\)\|", line)]


def spans(text, bold=False, italic=False):
    """Pieces of a text: (text, bold, italic, code, url)."""
    at = 0
    for m in _SPAN.finditer(text):
        if m.start() > at:
            yield (_plain(text[at:m.start()]), bold, italic, False, None)
        at = m.end()
        if m["c"]:
            yield (m["c"].strip(), bold, italic, True, None)
        elif m["bi"]:
            yield (_plain(m["bi"]), True, True, False, None)
        elif m["b"] or m["b2"]:
            yield from spans(m["b"] or m["b2"], True, italic)
        elif m["i"] or m["i2"]:
            yield from spans(m["i"] or m["i2"], bold, True)
        else:
            yield (_plain(m["t"]), bold, italic, False, m["u"])
    if at < len(text):
        yield (_plain(text[at:]), bold, italic, False, None)


def _plain(text):
    return re.sub(r"\\([\\`*_{}\[\]()#+.!|>-])", r"\1", text)
