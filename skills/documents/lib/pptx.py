"""PowerPoint presentations, read, changed and written, with the names that python-pptx
gives them.

What is here works as there: slides, layouts, titles, text, bullets, tables, pictures,
text boxes and notes. What is not here is an AttributeError.
"""
import os
import re
import xml.etree.ElementTree as ET

from . import _markdown, _picture, _pptx_parts
from ._package import (R, Cm, CoreProperties, DocumentError, Emu, Inches, Length, Mm, Package, Pt, RGBColor,
                       clean, color_of, table_markdown)

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


class Shapes:
    """The shapes of a slide: a list, with what adds some."""

    def __init__(self, slide):
        self._slide = slide

    def __iter__(self):
        return iter(self._slide._shapes())

    def __len__(self):
        return len(self._slide._shapes())

    def __getitem__(self, k):
        return self._slide._shapes()[k]

    @property
    def title(self):
        return next((s for s in self if s.placeholder_type in TITLES), None)

    @property
    def placeholders(self):
        return self._slide.placeholders

    def _add(self, text):
        tree = self._slide._tree()
        number = 1 + max((int(e.get("id", 0)) for e in tree.iter(p("cNvPr"))), default=1)
        shape = Shape(made(text.replace("%ID%", str(number))), self._slide)
        last = tree.find(p("extLst"))
        tree.insert(len(tree) - (last is not None), shape._e)
        return shape

    def add_textbox(self, left, top, width, height):
        return self._add(_pptx_parts.textbox(left, top, width, height))

    def add_shape(self, kind, left, top, width, height):
        """kind: a name of the format, such as "rect", "roundRect", "ellipse", "rightArrow"."""
        return self._add(_pptx_parts.shape(str(kind), left, top, width, height))

    def add_table(self, rows, columns, left, top, width, height):
        """Gives the shape; its .table has the cells."""
        return self._add(_pptx_parts.table(rows, columns, left, top, width, height))

    def add_picture(self, source, left, top, width=None, height=None):
        """Puts in a PNG, JPEG or GIF. With one length given the other follows from it."""
        picture = _picture.open(source)
        id = self._slide._rels().add("image", self._slide._package.add_picture(picture, "ppt/media/"))
        x, y = picture.emu()
        if width is None:
            width = x if height is None else x * height / y
        if height is None:
            height = y * width / x
        return self._add(_pptx_parts.picture(id, left, top, width, height))


class _Sheet:
    """A slide, a layout, a master or a page of notes."""

    def __init__(self, presentation, part):
        self._presentation, self._package, self._part = presentation, presentation._package, part

    def _rels(self):
        return self._package.rels(self._part)

    def _tree(self):
        found = self._package.tree(self._part).find(f"{p('cSld')}/{p('spTree')}")
        if found is None:
            raise DocumentError(f"{self._part} has no shapes")
        return found

    def _shapes(self):
        kinds = (p("sp"), p("pic"), p("graphicFrame"), p("cxnSp"))
        found = []

        def look(e):
            for c in e:
                if c.tag in kinds:
                    found.append(Shape(c, self))
                elif c.tag == p("grpSp"):
                    look(c)
        look(self._tree())
        return found

    def _above(self):
        """The sheet from which this one inherits."""
        for kind in "slideLayout", "slideMaster":
            for _, part in self._rels().of_kind(kind):
                return _Sheet(self._presentation, part)
        return None

    def _inherited(self, shape):
        above, wanted = self._above(), shape._placeholder
        if above is None or shape._owner._part.startswith("ppt/slideMasters"):
            return None
        kind = wanted.get("type", "obj")
        same = {"ctrTitle": "title", "subTitle": "body", "obj": "body"}
        placeholders = [s for s in above._shapes() if s.is_placeholder]
        for s in placeholders:
            if wanted.get("idx") is not None and s._placeholder.get("idx") == wanted.get("idx"):
                return s
        return next((s for s in placeholders if same.get(s.placeholder_type, s.placeholder_type) == same.get(kind, kind)), None)


class Layout(_Sheet):
    @property
    def name(self):
        return self._package.tree(self._part).find(p("cSld")).get("name", "")

    @property
    def placeholders(self):
        return _Placeholders(self)


class _Placeholders:
    """A slide's placeholders: by index (as PowerPoint counts), or one after the other."""

    def __init__(self, sheet):
        self._sheet = sheet

    def __iter__(self):
        return iter(sorted((s for s in self._sheet._shapes() if s.is_placeholder), key=lambda s: s.idx))

    def __len__(self):
        return len(list(self))

    def __getitem__(self, idx):
        for s in self:
            if s.idx == idx:
                return s
        raise KeyError(f"there is no placeholder {idx}; there are {', '.join(f'{s.idx} ({s.name})' for s in self)}")


class _Notes:
    def __init__(self, sheet):
        self._sheet = sheet

    @property
    def notes_text_frame(self):
        return next((s.text_frame for s in self._sheet._shapes() if s.placeholder_type == "body"), None)


class Slide(_Sheet):
    @property
    def shapes(self):
        return Shapes(self)

    @property
    def placeholders(self):
        return _Placeholders(self)

    @property
    def slide_layout(self):
        return next((Layout(self._presentation, part) for _, part in self._rels().of_kind("slideLayout")), None)

    @property
    def has_notes_slide(self):
        return bool(self._rels().of_kind("notesSlide"))

    @property
    def notes_slide(self):
        """The notes, which are made where there are none: .notes_text_frame.text"""
        if not self.has_notes_slide:
            self._rels().add("notesSlide", _pptx_parts.add_notes(self._package, self._presentation._part, self._part))
        return _Notes(_Sheet(self._presentation, self._rels().of_kind("notesSlide")[0][1]))

    @property
    def notes(self):
        """The text of the notes."""
        frame = self.notes_slide.notes_text_frame if self.has_notes_slide else None
        return "" if frame is None else frame.text

    @notes.setter
    def notes(self, value):
        self.notes_slide.notes_text_frame.text = value


class Slides:
    def __init__(self, presentation):
        self._presentation = presentation

    def _ids(self):
        root = self._presentation._root
        found = root.find(p("sldIdLst"))
        if found is None:
            found = ET.Element(p("sldIdLst"))
            at = max((k + 1 for k, e in enumerate(root) if e.tag in (p("sldMasterIdLst"), p("notesMasterIdLst"), p("handoutMasterIdLst"))), default=0)
            root.insert(at, found)
        return found

    def _all(self):
        parts = [self._presentation._rels().part(e.get(f"{{{R}}}id", "")) for e in self._ids()]
        return [Slide(self._presentation, part) for part in parts if part]

    def __iter__(self):
        return iter(self._all())

    def __len__(self):
        return len(self._all())

    def __getitem__(self, k):
        return self._all()[k]

    def add_slide(self, layout):
        """Adds a slide with the placeholders of a layout; layout: one of slide_layouts, or its number."""
        presentation = self._presentation
        layout = presentation.slide_layouts[layout] if isinstance(layout, int) else layout
        package = presentation._package
        part = package.add(package.free("ppt/slides/slide%d.xml"), _pptx_parts.slide(layout._shapes()), TYPE + "slide+xml")
        package.rels(part).add("slideLayout", layout._part)
        ids = self._ids()
        e = ET.SubElement(ids, p("sldId"))
        e.set("id", str(1 + max([255, *(int(i.get("id", 0)) for i in ids if i is not e)])))
        e.set(f"{{{R}}}id", presentation._rels().add("slide", part))
        return Slide(presentation, part)

    def remove(self, slide):
        """Takes a slide out."""
        for e in self._ids():
            id = e.get(f"{{{R}}}id", "")
            if self._presentation._rels().part(id) == slide._part:
                self._ids().remove(e)
                del self._presentation._rels().all[id]
                package = self._presentation._package
                for part in [slide._part, *(n for _, n in slide._rels().of_kind("notesSlide"))]:
                    package.rels(part).all.clear()
                    package.trees.pop(part, None)
                    del package.parts[part]
                return
        raise ValueError("the slide is no longer in the presentation")


class _Presentation:
    def __init__(self, package):
        self._package, self._part = package, package.main()
        if "presentation" not in package.type_of(self._part).lower() and "slideshow" not in package.type_of(self._part).lower():
            raise DocumentError(f"this is no presentation: it is {package.type_of(self._part)}")
        self._root = package.tree(self._part)

    def _rels(self):
        return self._package.rels(self._part)

    @property
    def slides(self):
        return Slides(self)

    @property
    def slide_layouts(self):
        """In a new one: 0 title, 1 title and content, 2 section, 3 two contents, 4 comparison,
        5 title only, 6 blank, 7 content with caption, 8 picture with caption."""
        found = []
        for e in self._root.iter(p("sldMasterId")):
            master = self._rels().part(e.get(f"{{{R}}}id", ""))
            ids = self._package.tree(master).iter(p("sldLayoutId")) if master else ()
            found += [Layout(self, part) for part in (self._package.rels(master).part(i.get(f"{{{R}}}id", "")) for i in ids) if part]
        return found

    @property
    def core_properties(self):
        return CoreProperties(self._package)

    @property
    def images(self):
        """The pictures: a dict of part name to bytes."""
        return {n: d for n, d in self._package.parts.items() if n.startswith("ppt/media/")}

    def add_markdown(self, text, folder="."):
        """Adds a slide for each heading, with the text below it as bullets, tables and pictures."""
        _add_markdown(self, text, folder)

    def to_markdown(self):
        return "\n\n".join(_to_markdown(k, slide) for k, slide in enumerate(self.slides, 1)) + "\n"

    def save(self, target):
        self._package.save(target)


def _size(key):
    def get(presentation):
        e = presentation._root.find(p("sldSz"))
        return None if e is None else Length(int(e.get(key)))

    def set(presentation, value):
        presentation._root.find(p("sldSz")).set(key, str(int(value)))
    return property(get, set)


_Presentation.slide_width, _Presentation.slide_height = _size("cx"), _size("cy")


def Presentation(source=None):
    """Opens a .pptx (a path, bytes or an open file), or makes a new one of 16:9."""
    return _Presentation(Package(source) if source is not None else _pptx_parts.new())


def from_markdown(text, target, title=None):
    """Writes a .pptx from Markdown: a slide for each heading, "Note:" begins the notes."""
    presentation = Presentation()
    if title:
        presentation.slides.add_slide(0).shapes.title.text = title
        presentation.core_properties.title = title
    presentation.add_markdown(text)
    presentation.save(target)


def to_markdown(source):
    """A presentation's text as Markdown."""
    return Presentation(source).to_markdown()


def _add_markdown(presentation, markdown, folder):
    slide, body, used = None, None, Inches(0)

    def begin(heading):
        fresh = presentation.slides.add_slide(1)
        fresh.shapes.title.text = heading
        frame = fresh.placeholders[1].text_frame
        frame.clear()
        return fresh, frame

    def line(text, level):
        first = body.paragraphs[0]
        paragraph = first if len(body.paragraphs) == 1 and not first.text else body.add_paragraph()
        for piece, bold, italic, code, url in _markdown.spans(text):
            run = paragraph.add_hyperlink(piece, url) if url else paragraph.add_run(piece)
            run.font.bold, run.font.italic = bold or None, italic or None
            if code:
                run.font.name = "Courier New"
        paragraph.level = level

    for kind, *rest in _markdown.blocks(markdown):
        if kind == "heading" or slide is None:
            slide, body = begin("".join(s[0] for s in _markdown.spans(rest[1])) if kind == "heading" else "")
            used = Inches(1.8)
            if kind == "heading":
                continue
        if kind in ("paragraph", "quote") and rest[0].startswith(("Note:", "Notes:")):
            slide.notes = rest[0].partition(":")[2].strip()
        elif kind in ("paragraph", "quote", "code"):
            for text in rest[0].split("\n"):
                line(text, 0)
        elif kind == "item":
            line(rest[2], min(rest[0], 4))
        elif kind in ("table", "image"):
            top = max(used, Inches(1.8) + len(body.text.split("\n")) * Inches(0.5) * bool(body.text))
            if kind == "table":
                rows = rest[0]
                width = max(map(len, rows))
                table = slide.shapes.add_table(len(rows), width, Inches(0.92), top, Inches(11.5), Inches(0.4) * len(rows)).table
                for k, row in enumerate(rows):
                    for j, text in enumerate(row):
                        table.cell(k, j).text = "".join(s[0] for s in _markdown.spans(text))
                used = top + Inches(0.4) * len(rows) + Inches(0.2)
            else:
                picture = slide.shapes.add_picture(os.path.join(folder, rest[0]), Inches(0.92), top)
                picture.alt_text = rest[1]
                scale = min(1, Inches(11.5) / picture.width, max(Inches(1), Inches(7.2) - top) / picture.height)
                picture.width, picture.height = picture.width * scale, picture.height * scale
                used = top + picture.height + Inches(0.2)
            if not body.text:  # nothing is to be said beside it
                for s in [s for s in slide.placeholders if s.idx == 1]:
                    s.height = Inches(0.1)


def _to_markdown(number, slide):
    title = slide.shapes.title
    out = [f"## Slide {number}" + (f": {title.text.replace(chr(11), ' ')}" if title is not None and title.text else "")]
    for shape in slide.shapes:
        if shape.placeholder_type in (*TITLES, "sldNum", "dt", "ftr"):
            continue
        if shape.has_table:
            out.append(table_markdown(shape.table.values()))
        elif shape._e.tag == p("pic"):
            out.append(f"![{shape.alt_text or shape.name}]")
        elif shape.has_text_frame and shape.text.strip():
            lines = [x for x in shape.text_frame.paragraphs if x.text.strip()]
            bullets = shape.is_placeholder and shape.placeholder_type in ("obj", "body")
            out.append("\n".join("  " * x.level + ("- " if bullets else "") + x.text.replace("\v", " ") for x in lines))
    if slide.notes.strip():
        out.append("Note: " + slide.notes.replace("\n", " "))
    return "\n\n".join(out)
