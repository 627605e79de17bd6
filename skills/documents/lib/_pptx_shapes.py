"""What lies on slides: shapes, their text, tables and colours."""
import re
import xml.etree.ElementTree as ET

from . import _pptx_parts
from ._package import R, Length, Pt, RGBColor, clean, color_of

P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
TYPE = "application/vnd.openxmlformats-officedocument.presentationml."

ALIGNMENTS = {"left": "l", "center": "ctr", "right": "r", "justify": "just", 1: "l", 2: "ctr", 3: "r", 4: "just"}
TITLES = ("title", "ctrTitle")


def p(name):
    return f"{{{P}}}{name}"


def a(name):
    return f"{{{A}}}{name}"


def made(text):
    """An element, from XML with the usual prefixes."""
    return ET.fromstring(f'<x xmlns:a="{A}" xmlns:p="{P}" xmlns:r="{R}">{text}</x>')[0]


def child(e, name, first=False):
    found = e.find(name)
    if found is None:
        found = ET.Element(name)
        e.insert(0, found) if first else e.append(found)
    return found


class Font:
    """How a run, or all of a paragraph, looks."""

    def __init__(self, props):
        self._props = props  # gives the element, which is made where it is missing

    def _flag(name):
        def get(font):
            value = font._props().get(name)
            return None if value is None else value in ("1", "true", "sng")

        def set(font, value):
            props = font._props()
            props.attrib.pop(name, None)
            if value is not None:
                props.set(name, ("sng" if value else "none") if name == "u" else "1" if value else "0")
        return property(get, set)

    bold, italic, underline = _flag("b"), _flag("i"), _flag("u")
    del _flag

    @property
    def size(self):
        value = self._props().get("sz")
        return Pt(int(value) / 100) if value else None

    @size.setter
    def size(self, value):
        self._props().set("sz", str(round(value / 127)))

    @property
    def name(self):
        e = self._props().find(a("latin"))
        return None if e is None else e.get("typeface")

    @name.setter
    def name(self, value):
        props = self._props()
        for e in props.findall(a("latin")):
            props.remove(e)
        at = next((k for k, e in enumerate(props) if e.tag in (a("ea"), a("cs"), a("sym"), a("hlinkClick"), a("hlinkMouseOver"), a("rtl"), a("extLst"))), len(props))
        props.insert(at, made(f'<a:latin typeface="{_pptx_parts.quoted(value)}"/>'))

    @property
    def color(self):
        return _Fill(self._props, "color")


class _Fill:
    """A colour: .rgb can be read and set."""

    def __init__(self, props, what):
        self._props, self._what = props, what

    @property
    def rgb(self):
        e = self._props().find(f"{a('solidFill')}/{a('srgbClr')}")
        return None if e is None else RGBColor.from_string(e.get("val"))

    @rgb.setter
    def rgb(self, value):
        props = self._props()
        for e in props.findall(a("solidFill")):
            props.remove(e)
        first = 1 if props.find(a("ln")) is not None and self._what == "color" else 0
        props.insert(first, made(f'<a:solidFill><a:srgbClr val="{color_of(value)}"/></a:solidFill>'))


class Run:
    def __init__(self, e):
        self._e = e

    @property
    def text(self):
        return self._e.findtext(a("t")) or ""

    @text.setter
    def text(self, value):
        child(self._e, a("t")).text = clean(value)

    @property
    def font(self):
        return Font(lambda: child(self._e, a("rPr"), True))


class Paragraph:
    def __init__(self, e, owner):
        self._e, self._owner = e, owner

    @property
    def runs(self):
        return [Run(e) for e in self._e.findall(a("r"))]

    @property
    def text(self):
        parts = {a("r"): lambda e: e.findtext(a("t")) or "", a("fld"): lambda e: e.findtext(a("t")) or "", a("br"): lambda e: "\v"}
        return "".join(parts[e.tag](e) for e in self._e if e.tag in parts)

    @text.setter
    def text(self, value):
        for e in [e for e in self._e if e.tag not in (a("pPr"), a("endParaRPr"))]:
            self._e.remove(e)
        for k, line in enumerate(re.split("[\v\n]", str(value))):
            if k:
                self.add_line_break()
            self.add_run(line)

    def _add(self, e):
        last = self._e.find(a("endParaRPr"))
        self._e.insert(len(self._e) - (last is not None), e)
        return e

    def add_run(self, text=""):
        run = Run(self._add(made("<a:r><a:rPr/><a:t/></a:r>")))
        run.text = text
        return run

    def add_line_break(self):
        self._add(made("<a:br/>"))

    def add_hyperlink(self, text, url):
        run = self.add_run(text)
        id = self._owner._rels().add("hyperlink", url, external=True)
        run._e.find(a("rPr")).append(made(f'<a:hlinkClick r:id="{id}"/>'))
        return run

    @property
    def level(self):
        e = self._e.find(a("pPr"))
        return 0 if e is None else int(e.get("lvl", 0))

    @level.setter
    def level(self, value):
        if not 0 <= value <= 8:
            raise ValueError("a level is 0 to 8")
        child(self._e, a("pPr"), True).set("lvl", str(value))

    @property
    def alignment(self):
        e = self._e.find(a("pPr"))
        return None if e is None else {v: k for k, v in ALIGNMENTS.items() if isinstance(k, str)}.get(e.get("algn"))

    @alignment.setter
    def alignment(self, value):
        if value not in ALIGNMENTS:
            raise ValueError(f"{value!r} is no alignment; there are left, center, right and justify")
        child(self._e, a("pPr"), True).set("algn", ALIGNMENTS[value])

    @property
    def font(self):
        """Of all of its runs that say nothing else."""
        return Font(lambda: child(child(self._e, a("pPr"), True), a("defRPr")))


class TextFrame:
    def __init__(self, e, owner):
        self._e, self._owner = e, owner

    @property
    def paragraphs(self):
        return [Paragraph(e, self._owner) for e in self._e.findall(a("p"))]

    @property
    def text(self):
        return "\n".join(x.text for x in self.paragraphs)

    @text.setter
    def text(self, value):
        self.clear()
        for k, line in enumerate(str(value).split("\n")):
            (self.paragraphs[0] if k == 0 else self.add_paragraph()).text = line

    def clear(self):
        for e in self._e.findall(a("p"))[1:]:
            self._e.remove(e)
        first = child(self._e, a("p"))
        for e in list(first):
            first.remove(e)

    def add_paragraph(self):
        return Paragraph(ET.SubElement(self._e, a("p")), self._owner)

    @property
    def word_wrap(self):
        return child(self._e, a("bodyPr"), True).get("wrap") != "none"

    @word_wrap.setter
    def word_wrap(self, value):
        child(self._e, a("bodyPr"), True).set("wrap", "square" if value else "none")


class Cell:
    def __init__(self, e, owner):
        self._e, self._owner = e, owner

    @property
    def text_frame(self):
        body = self._e.find(a("txBody"))
        if body is None:
            body = made("<a:txBody><a:bodyPr/><a:p/></a:txBody>")
            self._e.insert(0, body)
        return TextFrame(body, self._owner)

    @property
    def text(self):
        return self.text_frame.text

    @text.setter
    def text(self, value):
        self.text_frame.text = value

    def shade(self, color):
        """Fills the cell with a colour, such as "D9E2F3"."""
        _Fill(lambda: child(self._e, a("tcPr")), "fill").rgb = color


class _Line:
    """A row or a column of a table."""

    def __init__(self, e, key, cells):
        self._e, self._key, self.cells = e, key, cells

    def _get(self):
        return Length(int(self._e.get(self._key, 0)))

    def _set(self, value):
        self._e.set(self._key, str(int(value)))

    width = height = property(_get, _set)


class Table:
    def __init__(self, e, owner):
        self._e, self._owner = e, owner

    @property
    def rows(self):
        return [_Line(tr, "h", [Cell(tc, self._owner) for tc in tr.findall(a("tc"))]) for tr in self._e.findall(a("tr"))]

    @property
    def columns(self):
        rows = [row.cells for row in self.rows]
        return [_Line(e, "w", [row[k] for row in rows if k < len(row)]) for k, e in enumerate(self._e.findall(f"{a('tblGrid')}/{a('gridCol')}"))]

    def cell(self, row, column):
        return self.rows[row].cells[column]

    def values(self):
        """The texts, by row."""
        return [[c.text for c in row.cells] for row in self.rows]


class Shape:
    """Anything on a slide."""

    def __init__(self, e, owner):
        self._e, self._owner = e, owner

    _about = property(lambda self: next(self._e.iter(p("cNvPr"))))
    name = property(lambda self: self._about.get("name", ""))
    shape_id = property(lambda self: int(self._about.get("id", 0)))

    @property
    def alt_text(self):
        return self._about.get("descr", "")

    @alt_text.setter
    def alt_text(self, value):
        self._about.set("descr", clean(value))

    @property
    def _placeholder(self):
        return next(self._e.iter(p("ph")), None)

    @property
    def is_placeholder(self):
        return self._placeholder is not None

    @property
    def placeholder_type(self):
        """"title", "body", "pic" and so on; None: it is no placeholder."""
        return self._placeholder.get("type", "obj") if self.is_placeholder else None

    @property
    def idx(self):
        return int(self._placeholder.get("idx", 0)) if self.is_placeholder else None

    @property
    def has_text_frame(self):
        return self._e.tag == p("sp")

    @property
    def text_frame(self):
        if not self.has_text_frame:
            raise AttributeError(f"{self.name!r} has no text")
        body = self._e.find(p("txBody"))
        if body is None:
            body = made("<p:txBody><a:bodyPr/><a:p/></p:txBody>")
            self._e.append(body)
        return TextFrame(body, self._owner)

    @property
    def text(self):
        return self.text_frame.text

    @text.setter
    def text(self, value):
        self.text_frame.text = value

    @property
    def has_table(self):
        return next(self._e.iter(a("tbl")), None) is not None and self._e.tag == p("graphicFrame")

    @property
    def table(self):
        if not self.has_table:
            raise AttributeError(f"{self.name!r} is no table")
        return Table(next(self._e.iter(a("tbl"))), self._owner)

    @property
    def image(self):
        """A picture's bytes; None: it is none, or not within the file."""
        blip = next(self._e.iter(a("blip")), None) if self._e.tag == p("pic") else None
        part = None if blip is None else self._owner._rels().part(blip.get(f"{{{R}}}embed", ""))
        return None if part is None else self._owner._package.parts[part]

    @property
    def fill(self):
        """Its colour: shape.fill.rgb = "D9E2F3"."""
        if self._e.find(p("spPr")) is None:
            raise AttributeError(f"{self.name!r} has no colour")
        return _ShapeFill(self._e.find(p("spPr")))

    def delete(self):
        self._owner._tree().remove(self._e)


class _ShapeFill:
    def __init__(self, props):
        self._props = props

    @property
    def rgb(self):
        return _Fill(lambda: self._props, "fill").rgb

    @rgb.setter
    def rgb(self, value):
        for e in [e for e in self._props if e.tag.endswith("Fill")]:
            self._props.remove(e)
        order = (a("xfrm"), a("custGeom"), a("prstGeom"))
        at = max((k + 1 for k, e in enumerate(self._props) if e.tag in order), default=0)
        self._props.insert(at, made(f'<a:solidFill><a:srgbClr val="{color_of(value)}"/></a:solidFill>'))


def _place(point, key):
    def xfrm(shape):
        return next((e for e in shape._e.iter() if e.tag in (a("xfrm"), p("xfrm"))), None)

    def get(shape):
        found = xfrm(shape)
        if found is None and shape.is_placeholder:  # it lies where the layout has it
            origin = shape._owner._inherited(shape)
            return None if origin is None else get(origin)
        e = None if found is None else found.find(a(point))
        return None if e is None else Length(int(e.get(key, 0)))

    def set(shape, value):
        found = xfrm(shape)
        if found is None:
            places = [getattr(shape, n) or 0 for n in ("left", "top", "width", "height")]
            found = made('<a:xfrm><a:off x="{}" y="{}"/><a:ext cx="{}" cy="{}"/></a:xfrm>'.format(*map(int, places)))
            child(shape._e, p("spPr")).insert(0, found)
        child(found, a(point)).set(key, str(int(value)))
    return property(get, set)


Shape.left, Shape.top = _place("off", "x"), _place("off", "y")
Shape.width, Shape.height = _place("ext", "cx"), _place("ext", "cy")
