"""The text of Word documents: paragraphs, runs, fonts and styles."""
import re
import xml.etree.ElementTree as ET

from ._package import R, Pt, RGBColor, XML, clean, color_of

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

ALIGNMENTS = {"left": "left", "center": "center", "right": "right", "justify": "both", 0: "left", 1: "center", 2: "right", 3: "both"}


def w(name):
    return f"{{{W}}}{name}"


def Element(name, *children, **attributes):
    e = ET.Element(w(name), {w(k): str(v) for k, v in attributes.items() if v is not None})
    e.extend(children)
    return e


def properties(e, name):
    """The child that holds e's properties, which is made where it is missing."""
    found = e.find(w(name))
    if found is None:
        found = Element(name)
        e.insert(0, found)
    return found


# In which order the children of properties have to be.
ORDER = {
    "pPr": "pStyle keepNext keepLines pageBreakBefore framePr widowControl numPr suppressLineNumbers pBdr shd tabs suppressAutoHyphens kinsoku wordWrap "
           "overflowPunct topLinePunct autoSpaceDE autoSpaceDN bidi adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents "
           "suppressOverlap jc textDirection textAlignment textboxTightWrap outlineLvl divId cnfStyle rPr sectPr pPrChange".split(),
    "rPr": "rStyle rFonts b bCs i iCs caps smallCaps strike dstrike outline shadow emboss imprint noProof snapToGrid vanish webHidden color spacing "
           "w kern position sz szCs highlight u effect bdr shd fitText vertAlign rtl cs em lang eastAsianLayout specVanish oMath".split(),
    "tcPr": "cnfStyle tcW gridSpan hMerge vMerge tcBorders shd noWrap tcMar textDirection tcFitText vAlign hideMark".split(),
}


def put(props, name, **attributes):
    """Sets one property, in its place; with no attribute given as None it is taken away."""
    old = props.find(w(name))
    if old is not None:
        props.remove(old)
    if None in attributes.values():
        return
    order = ORDER[props.tag.rpartition("}")[2]]
    rank = order.index(name)
    at = next((k for k, e in enumerate(props) if e.tag.startswith("{" + W) and e.tag.rpartition("}")[2] in order[rank + 1:]), len(props))
    props.insert(at, Element(name, **attributes))


class _Flag:
    """bold, italic and the like: True, False, or None where the style decides."""

    def __init__(self, name):
        self.name = name

    def __get__(self, run, _=None):
        if run is None:
            return self
        e = run._e.find(f"{w('rPr')}/{w(self.name)}")
        if e is None:
            return None
        return e.get(w("val"), "1") not in ("0", "false", "off", "none")

    def __set__(self, run, value):
        props = properties(run._e, "rPr")
        if self.name == "u":
            put(props, "u", val=None if value is None else "single" if value else "none")
        elif value:
            put(props, self.name)
        else:
            put(props, self.name, val=None if value is None else "0")


class Font:
    def __init__(self, e):
        self._e = e

    bold, italic, underline, strike = _Flag("b"), _Flag("i"), _Flag("u"), _Flag("strike")

    def _value(self, name, key="val"):
        e = self._e.find(f"{w('rPr')}/{w(name)}")
        return None if e is None else e.get(w(key))

    @property
    def name(self):
        return self._value("rFonts", "ascii")

    @name.setter
    def name(self, value):
        put(properties(self._e, "rPr"), "rFonts", ascii=value, hAnsi=value, cs=value)

    @property
    def size(self):
        half = self._value("sz")
        return Pt(float(half) / 2) if half else None

    @size.setter
    def size(self, value):
        half = None if value is None else round(value / 6350)
        put(properties(self._e, "rPr"), "sz", val=half)
        put(properties(self._e, "rPr"), "szCs", val=half)

    @property
    def highlight_color(self):
        return self._value("highlight")

    @highlight_color.setter
    def highlight_color(self, value):
        put(properties(self._e, "rPr"), "highlight", val=value)

    @property
    def color(self):
        return _Color(self)


class _Color:
    def __init__(self, font):
        self._font = font

    @property
    def rgb(self):
        value = self._font._value("color")
        return RGBColor.from_string(value) if value and value != "auto" else None

    @rgb.setter
    def rgb(self, value):
        put(properties(self._font._e, "rPr"), "color", val=None if value is None else color_of(value))


class Run:
    """A piece of a paragraph with one look."""

    def __init__(self, e, paragraph):
        self._e, self._paragraph = e, paragraph

    bold, italic, underline = _Flag("b"), _Flag("i"), _Flag("u")

    @property
    def font(self):
        return Font(self._e)

    @property
    def text(self):
        return text_of(self._e)

    @text.setter
    def text(self, value):
        for e in [e for e in self._e if e.tag != w("rPr")]:
            self._e.remove(e)
        self.add_text(value)

    def add_text(self, text):
        for piece in re.split("([\n\t])", clean(text)):
            if piece == "\n":
                self._e.append(Element("br"))
            elif piece == "\t":
                self._e.append(Element("tab"))
            elif piece:
                t = ET.SubElement(self._e, w("t"))
                t.text = piece
                t.set(f"{{{XML}}}space", "preserve")

    def add_break(self, kind="line"):
        """kind: "line", "page" or "column"."""
        self._e.append(Element("br", type=None if kind == "line" else kind))

    def add_picture(self, source, width=None, height=None):
        """Puts in a PNG, JPEG or GIF. With one length given the other follows from it."""
        return self._paragraph._owner._add_picture(self._e, source, width, height)


def text_of(e):
    """The text of a run."""
    out = []
    for child in e:
        if child.tag == w("t"):
            out.append(child.text or "")
        elif child.tag == w("tab"):
            out.append("\t")
        elif child.tag in (w("br"), w("cr")) and child.get(w("type"), "textWrapping") == "textWrapping":
            out.append("\n")
        elif child.tag == w("noBreakHyphen"):
            out.append("-")
    return "".join(out)


# What holds runs within a paragraph; what is struck by a reviewer (del) is left out.
HOLDERS = {w(n) for n in ("hyperlink", "ins", "smartTag", "sdt", "sdtContent", "fldSimple", "moveTo")}


def runs_of(e):
    for child in e:
        if child.tag == w("r"):
            yield child
        elif child.tag in HOLDERS:
            yield from runs_of(child)


class Style:
    def __init__(self, id, name, kind):
        self.style_id, self.name, self.type = id, name, kind

    def __repr__(self):
        return f"<Style {self.name!r}>"


class Paragraph:
    def __init__(self, e, owner):
        self._e, self._owner = e, owner

    @property
    def text(self):
        return "".join(map(text_of, runs_of(self._e)))

    @text.setter
    def text(self, value):
        self.clear()
        self.add_run(value)

    @property
    def runs(self):
        return [Run(e, self) for e in runs_of(self._e)]

    def clear(self):
        for e in [e for e in self._e if e.tag != w("pPr")]:
            self._e.remove(e)
        return self

    def add_run(self, text="", style=None):
        run = Run(ET.SubElement(self._e, w("r")), self)
        if style is not None:
            put(properties(run._e, "rPr"), "rStyle", val=self._owner.document._style_id(style, "character"))
        run.add_text(text)
        return run

    def add_hyperlink(self, text, url):
        link = ET.SubElement(self._e, w("hyperlink"), {f"{{{R}}}id": self._owner._rels().add("hyperlink", url, external=True)})
        run = Run(ET.SubElement(link, w("r")), self)
        run.add_text(text)
        run.font.color.rgb, run.underline = "0563C1", True
        return run

    def insert_paragraph_before(self, text="", style=None):
        parent = self._owner.document._parent_of(self._e)
        e = Element("p")
        parent.insert(list(parent).index(self._e), e)
        paragraph = Paragraph(e, self._owner)
        if text:
            paragraph.add_run(text)
        if style is not None:
            paragraph.style = style
        return paragraph

    def delete(self):
        self._owner.document._parent_of(self._e).remove(self._e)

    @property
    def style(self):
        e = self._e.find(f"{w('pPr')}/{w('pStyle')}")
        return self._owner.document._style_of("" if e is None else e.get(w("val"), ""), "paragraph")

    @style.setter
    def style(self, value):
        put(properties(self._e, "pPr"), "pStyle", val=None if value is None else self._owner.document._style_id(value, "paragraph"))

    @property
    def alignment(self):
        """"left", "center", "right", "justify"; None: the style decides."""
        e = self._e.find(f"{w('pPr')}/{w('jc')}")
        value = None if e is None else e.get(w("val"))
        return {"both": "justify", "start": "left", "end": "right"}.get(value, value)

    @alignment.setter
    def alignment(self, value):
        if value is not None and value not in ALIGNMENTS:
            raise ValueError(f"{value!r} is no alignment; there are left, center, right and justify")
        put(properties(self._e, "pPr"), "jc", val=None if value is None else ALIGNMENTS[value])

    @property
    def level(self):
        """Of a heading from 1, 0 of a title; None: it is none."""
        name = self.style.name.lower()
        if name == "title":
            return 0
        found = re.fullmatch(r"heading (\d)", name)
        return int(found[1]) if found else None


def replace(paragraph, old, new):
    """Replaces in one paragraph: the first run that is touched gets the new text."""
    texts = [t for r in runs_of(paragraph) for t in r.findall(w("t"))]
    whole = "".join(t.text or "" for t in texts)
    places = [m.start() for m in re.finditer(re.escape(old), whole)]
    for start in reversed(places):
        at, end = 0, start + len(old)
        for t in texts:
            text = t.text or ""
            low, high = max(start - at, 0), min(end - at, len(text))
            if low < high:
                t.text = text[:low] + (new if at + low == start else "") + text[high:]
                t.set(f"{{{XML}}}space", "preserve")
            at += len(text)
    return len(places)
