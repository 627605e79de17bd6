"""XML as dicts and lists, and back. Attributes are "@name", text is "#text"; an element with
text alone is a text, elements of one name are a list."""
import re
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

DEPTH = 500  # of elements in elements


class XMLError(ValueError):
    pass


def from_xml(text, namespaces=False):
    """Reads XML: {root: …}. Prefixes are left off unless namespaces=True. A document type
    is refused, for it can make a small document large."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    whole = {}
    stack = [(None, whole, [])]

    def name(n):
        return n if namespaces else n.rpartition(":")[2]

    def begin(tag, attributes):
        if len(stack) > DEPTH:
            raise XMLError(f"elements are in more than {DEPTH} others")
        kept = {"@" + name(k): v for k, v in attributes.items() if namespaces or not (k == "xmlns" or k.startswith("xmlns:"))}
        stack.append((name(tag), kept, []))

    def end(_):
        tag, found, texts = stack.pop()
        text = "".join(texts).strip()
        value = found if found else (text or None)
        if found and text:
            found["#text"] = text
        above = stack[-1][1]
        if tag in above:
            if not isinstance(above[tag], list):
                above[tag] = [above[tag]]
            above[tag].append(value)
        else:
            above[tag] = value

    def doctype(*_):
        raise XMLError("the document has a document type (DTD), which is not read")

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler = lambda data: stack[-1][2].append(data)
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise XMLError(f"this is no XML: {error}") from None
    return whole


def read_xml(path, namespaces=False):
    """Reads a file of XML."""
    with open(path, "rb") as f:
        return from_xml(f.read(), namespaces)


def to_xml(document, indent=2):
    """Writes what from_xml gives: {root: …}."""
    if not isinstance(document, dict) or len(document) != 1 or isinstance(next(iter(document.values())), list):
        raise ValueError("a document is a dict with one name, its root")
    out = ['<?xml version="1.0" encoding="UTF-8"?>']

    def write(tag, value, depth):
        if not re.fullmatch(r"[^\W\d][\w.\-]*(:[^\W\d][\w.\-]*)?", str(tag)):
            raise ValueError(f"{tag!r} is no name of an element")
        space = " " * (indent * depth)
        if not isinstance(value, dict):
            text = "" if value is None else "true" if value is True else "false" if value is False else str(value)
            out.append(f"{space}<{tag}>{escape(text)}</{tag}>" if text else f"{space}<{tag}/>")
            return
        attributes = "".join(f" {k[1:]}={quoteattr(str(v))}" for k, v in value.items() if k.startswith("@"))
        inner = [(k, v) for k, v in value.items() if not k.startswith(("@", "#"))]
        text = escape(str(value.get("#text", "")))
        if not inner:
            out.append(f"{space}<{tag}{attributes}>{text}</{tag}>" if text else f"{space}<{tag}{attributes}/>")
            return
        out.append(f"{space}<{tag}{attributes}>{text}")
        for k, v in inner:
            for each in v if isinstance(v, list) else [v]:
                write(k, each, depth + 1)
        out.append(f"{space}</{tag}>")

    (root, value), = document.items()
    write(root, value, 0)
    return "\n".join(out) + "\n"
