"""Word documents, read, changed and written, with the names that python-docx gives them.

What is here works as there: Document, paragraphs, runs, headings, lists, tables,
pictures, sections, headers and footers. What is not here is an AttributeError.
"""
import copy
import re
import xml.etree.ElementTree as ET

from . import _docx_markdown, _docx_parts, _picture
from ._docx_text import W, Element, Paragraph, Style, properties, put, replace, w
from ._package import R, Cm, CoreProperties, DocumentError, Emu, Inches, Length, Mm, Package, Pt, RGBColor, clean, color_of

WP = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"


class Cell:
    def __init__(self, e, document, part):
        self._e, self.document, self._part = e, document, part

    _rels = property(lambda self: lambda: self.document._package.rels(self._part))

    def _add_picture(self, *what):
        return _add_picture(self.document, self._part, *what)

    @property
    def paragraphs(self):
        return [Paragraph(e, self) for e in self._e.findall(w("p"))]

    @property
    def tables(self):
        return [Table(e, self.document, self._part) for e in self._e.findall(w("tbl"))]

    @property
    def text(self):
        return "\n".join(p.text for p in self.paragraphs)

    @text.setter
    def text(self, value):
        for e in [e for e in self._e if e.tag != w("tcPr")]:
            self._e.remove(e)
        self.add_paragraph(value)

    def add_paragraph(self, text="", style=None):
        paragraph = Paragraph(ET.SubElement(self._e, w("p")), self)
        if text:
            paragraph.add_run(text)
        if style is not None:
            paragraph.style = style
        return paragraph

    def shade(self, color):
        """Fills the cell with a colour, such as "D9E2F3"."""
        put(properties(self._e, "tcPr"), "shd", val="clear", color="auto", fill=color_of(color))


class _Row:
    def __init__(self, cells):
        self.cells = cells


class Table:
    def __init__(self, e, document, part):
        self._e, self.document, self._part = e, document, part

    def _grid(self):
        """Cells by row and column; one that is merged is there several times."""
        grid = []
        for tr in self._e.findall(w("tr")):
            row = []
            for tc in tr.iter(w("tc")) if tr.find(w("sdt")) is not None else tr.findall(w("tc")):
                props = tc.find(w("tcPr"))
                span, merge = (None, None) if props is None else (props.find(w("gridSpan")), props.find(w("vMerge")))
                cell = Cell(tc, self.document, self._part)
                if merge is not None and merge.get(w("val")) != "restart" and grid and len(row) < len(grid[-1]):
                    cell = grid[-1][len(row)]
                row += [cell] * min(100, int(span.get(w("val"), 1)) if span is not None else 1)
            grid.append(row)
        return grid

    @property
    def rows(self):
        return [_Row(row) for row in self._grid()]

    @property
    def columns(self):
        grid = self._grid()
        return [_Row([row[k] for row in grid if k < len(row)]) for k in range(max(map(len, grid), default=0))]

    def cell(self, row, column):
        return self._grid()[row][column]

    def add_row(self):
        rows = self._e.findall(w("tr"))
        tr = ET.SubElement(self._e, w("tr"))
        for e in (rows[-1].findall(w("tc")) if rows else [Element("tc")] * len(self._e.find(w("tblGrid")))):
            tc = ET.SubElement(tr, w("tc"))
            if e.find(w("tcPr")) is not None:
                tc.append(copy.deepcopy(e.find(w("tcPr"))))
            tc.append(Element("p"))
        return self.rows[-1]

    @property
    def style(self):
        e = self._e.find(f"{w('tblPr')}/{w('tblStyle')}")
        return None if e is None else self.document._style_of(e.get(w("val"), ""), "table")

    @style.setter
    def style(self, value):
        props = properties(self._e, "tblPr")
        old = props.find(w("tblStyle"))
        if old is not None:
            props.remove(old)
        if value is not None:
            props.insert(0, Element("tblStyle", val=self.document._style_id(value, "table")))

    def values(self):
        """The texts, by row."""
        return [[c.text for c in row] for row in self._grid()]


class _Story:
    """Something with paragraphs and tables of its own: the body, a header, a footer."""

    def __init__(self, document, part, root):
        self.document, self._part, self._root = document, part, root

    def _rels(self):
        return self.document._package.rels(self._part)

    def _add_picture(self, *what):
        return _add_picture(self.document, self._part, *what)

    def _inner(self, e):
        for child in e:
            if child.tag == w("p"):
                yield Paragraph(child, self)
            elif child.tag == w("tbl"):
                yield Table(child, self.document, self._part)
            elif child.tag in (w("sdt"), w("sdtContent"), w("ins")):
                yield from self._inner(child)

    def iter_inner_content(self):
        """Paragraphs and tables, in order."""
        return self._inner(self._root)

    @property
    def paragraphs(self):
        return [x for x in self.iter_inner_content() if isinstance(x, Paragraph)]

    @property
    def tables(self):
        return [x for x in self.iter_inner_content() if isinstance(x, Table)]

    def _append(self, e):
        last = self._root[-1] if len(self._root) else None
        self._root.insert(len(self._root) - (last is not None and last.tag == w("sectPr")), e)
        return e

    def add_paragraph(self, text="", style=None):
        paragraph = Paragraph(self._append(Element("p")), self)
        if text:
            paragraph.add_run(text)
        if style is not None:
            paragraph.style = style
        return paragraph

    def add_table(self, rows, cols, width=None, style=None):
        """A table of empty cells; style: "Table Grid" by default, or None for one without lines."""
        width = width or self.document.sections[-1]._text_width()
        each = max(1, round(width / 635 / max(cols, 1)))
        e = Element("tbl", Element("tblPr", Element("tblW", w="0", type="auto"), Element("tblLook", val="04A0")),
                    Element("tblGrid", *(Element("gridCol", w=each) for _ in range(cols))))
        for _ in range(rows):
            e.append(Element("tr", *(Element("tc", Element("tcPr", Element("tcW", w=each, type="dxa")), Element("p")) for _ in range(cols))))
        table = Table(self._append(e), self.document, self._part)
        if style is not None:
            table.style = style
        return table


class Header(_Story):
    @property
    def text(self):
        return "\n".join(p.text for p in self.paragraphs)


class Section:
    def __init__(self, document, e):
        self._document, self._e = document, e

    def _child(self, name):
        found = self._e.find(w(name))
        if found is None:
            order = ["headerReference", "footerReference", "footnotePr", "endnotePr", "type", "pgSz", "pgMar"]
            at = next((k for k, c in enumerate(self._e) if c.tag.rpartition("}")[2] not in order[:order.index(name)]), len(self._e))
            found = Element(name)
            self._e.insert(at, found)
        return found

    def _text_width(self):
        return self.page_width - self.left_margin - self.right_margin

    def _story(self, kind):
        for e in self._e.findall(w(kind + "Reference")):
            part = self._document._rels().part(e.get(f"{{{R}}}id"))
            if part and e.get(w("type"), "default") == "default":
                return Header(self._document, part, self._document._package.tree(part))
        package = self._document._package
        tag = "hdr" if kind == "header" else "ftr"
        part = package.add(package.free(f"word/{kind}%d.xml"), f'<w:{tag} xmlns:w="{W}" xmlns:r="{R}"><w:p/></w:{tag}>',
                           f"application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}+xml")
        e = Element(kind + "Reference", type="default")
        e.set(f"{{{R}}}id", self._document._rels().add(kind, part))
        self._e.insert(0, e)
        return Header(self._document, part, package.tree(part))

    header = property(lambda self: self._story("header"))
    footer = property(lambda self: self._story("footer"))

    @property
    def orientation(self):
        return "landscape" if self.page_width > self.page_height else "portrait"

    @orientation.setter
    def orientation(self, value):
        if value not in ("portrait", "landscape"):
            raise ValueError("there are portrait and landscape")
        if value != self.orientation:
            self.page_width, self.page_height = self.page_height, self.page_width
        self._child("pgSz").set(w("orient"), value)


def _length(element, name, default):
    def get(section):
        return Length(round(float(section._child(element).get(w(name), default)) * 635))

    def set(section, value):
        section._child(element).set(w(name), str(round(value / 635)))
    return property(get, set)


for _name, _where in {"page_width": ("pgSz", "w", 12240), "page_height": ("pgSz", "h", 15840), "left_margin": ("pgMar", "left", 1440),
                      "right_margin": ("pgMar", "right", 1440), "top_margin": ("pgMar", "top", 1440), "bottom_margin": ("pgMar", "bottom", 1440)}.items():
    setattr(Section, _name, _length(*_where))


class _Document(_Story):
    def __init__(self, package):
        self._package = package
        part = package.main()
        if "word" not in package.type_of(part).lower():
            raise DocumentError(f"this is no Word document: it is {package.type_of(part)}")
        self._tree = package.tree(part)
        body = self._tree.find(w("body"))
        if body is None:
            raise DocumentError("the document has no body")
        super().__init__(self, part, body)
        self._styles = None

    # ── styles ──────────────────────────────────────────────────────────

    @property
    def styles(self):
        """The styles that there are: [Style]."""
        if self._styles is None:
            found = self._rels().of_kind("styles")
            self._styles = []
            for e in self._package.tree(found[0][1]).findall(w("style")) if found else ():
                name = e.find(w("name"))
                text = name.get(w("val"), "") if name is not None else e.get(w("styleId"), "")
                text = re.sub("^heading (?=[0-9])", "Heading ", text)
                self._styles.append(Style(e.get(w("styleId"), ""), text, e.get(w("type"), "paragraph")))
        return self._styles

    def _style_of(self, id, kind):
        return next((s for s in self.styles if s.style_id == id and s.type == kind), Style(id, id or "Normal", kind))

    def _style_id(self, wanted, kind):
        name = wanted.name if isinstance(wanted, Style) else str(wanted)
        of_kind = [s for s in self.styles if s.type == kind]
        for s in of_kind:
            if name.lower() in (s.name.lower(), s.style_id.lower()):
                return s.style_id
        made = _docx_parts.style(name, kind)
        found = self._rels().of_kind("styles")
        if made is None or not found:
            raise KeyError(f"there is no {kind} style {name!r}; there are {', '.join(s.name for s in of_kind)}")
        e = ET.fromstring(made)
        if name.startswith("List "):
            self._numbering(e)
        self._package.tree(found[0][1]).append(e)
        self._styles = None
        return e.get(w("styleId"))

    def _numbering(self, style):
        """Has a document of somebody else's know the lists that a style of ours refers to."""
        package, found = self._package, self._rels().of_kind("numbering")
        if not found:
            package.add("word/numbering.xml", _docx_parts.numbering(), _docx_parts.NUMBERING)
            self._rels().add("numbering", "word/numbering.xml")
            return
        tree = package.tree(found[0][1])
        ours = ET.fromstring(_docx_parts.numbering())
        taken = {k: {int(e.get(w(k + "Id"), 0)) for e in tree.findall(w(k))} for k in ("abstractNum", "num")}
        first, number = max(taken["abstractNum"], default=0) + 1, max(taken["num"], default=0) + 1
        wanted = style.find(f".//{w('numId')}")
        num = next(e for e in ours.findall(w("num")) if e.get(w("numId")) == wanted.get(w("val")))
        abstract = next(e for e in ours.findall(w("abstractNum")) if e.get(w("abstractNumId")) == num.find(w("abstractNumId")).get(w("val")))
        abstract.set(w("abstractNumId"), str(first))
        num.find(w("abstractNumId")).set(w("val"), str(first))
        num.set(w("numId"), str(number))
        wanted.set(w("val"), str(number))
        at = next((k for k, e in enumerate(tree) if e.tag == w("num")), len(tree))
        tree.insert(at, abstract)
        tree.append(num)

    def _restart(self, style):
        """A list of its own, which looks as the style says and begins at 1; None: there is none."""
        numbers = self._rels().of_kind("numbering")
        id = self._style_id(style, "paragraph")
        sheet = self._package.tree(self._rels().of_kind("styles")[0][1])
        number = next((e.find(f".//{w('numId')}") for e in sheet.findall(w("style")) if e.get(w("styleId")) == id), None)
        if number is None or not numbers:
            return None
        tree = self._package.tree(numbers[0][1])
        same = next((e for e in tree.findall(w("num")) if e.get(w("numId")) == number.get(w("val"))), None)
        if same is None:
            return None
        fresh = 1 + max(int(e.get(w("numId"), 0)) for e in tree.findall(w("num")))
        tree.append(Element("num", Element("abstractNumId", val=same.find(w("abstractNumId")).get(w("val"))),
                            *(Element("lvlOverride", Element("startOverride", val=1), ilvl=k) for k in range(3)), numId=fresh))
        return fresh

    # ── what it holds ───────────────────────────────────────────────────

    @property
    def core_properties(self):
        return CoreProperties(self._package)

    @property
    def sections(self):
        found = list(self._root.iter(w("sectPr")))
        if not found:
            found = [self._append(Element("sectPr"))]
        return [Section(self, e) for e in found]

    @property
    def images(self):
        """The pictures: a dict of part name to bytes."""
        return {n: d for n, d in self._package.parts.items() if n.startswith("word/media/")}

    def _parent_of(self, e):
        for part in [self._tree, *(p.root for n, p in self._package.trees.items() if n != self._part)]:
            for parent in part.iter():
                if e in list(parent):
                    return parent
        raise ValueError("it is no longer in the document")

    # ── adding ──────────────────────────────────────────────────────────

    def add_heading(self, text="", level=1):
        if not 0 <= level <= 9:
            raise ValueError("a heading's level is 0 (the title) to 9")
        return self.add_paragraph(text, "Title" if level == 0 else f"Heading {level}")

    def add_picture(self, source, width=None, height=None):
        return self.add_paragraph().add_run().add_picture(source, width, height)

    def add_page_break(self):
        paragraph = self.add_paragraph()
        paragraph.add_run().add_break("page")
        return paragraph

    def add_markdown(self, text, folder="."):
        """Adds headings, paragraphs, lists, tables, code, quotes and pictures written in Markdown."""
        _docx_markdown.add(self, text, folder)

    def replace_text(self, old, new):
        """Replaces a text everywhere, also where it goes over several runs; gives how often."""
        if not old:
            raise ValueError("there is no text to replace")
        roots = [self._tree] + [self._package.tree(p) for kind in ("header", "footer") for _, p in self._rels().of_kind(kind)]
        return sum(replace(p, old, clean(new)) for root in roots for p in root.iter(w("p")))

    def to_markdown(self):
        return _docx_markdown.write(self)

    def save(self, target):
        self._package.save(target)


def Document(source=None):
    """Opens a .docx (a path, bytes or an open file), or makes a new one."""
    return _Document(Package(source) if source is not None else _docx_parts.new())


def from_markdown(text, target, title=None):
    """Writes a .docx from Markdown."""
    document = Document()
    if title:
        document.core_properties.title = title
        document.add_heading(title, 0)
    document.add_markdown(text)
    document.save(target)


def to_markdown(source):
    """A document's text as Markdown."""
    return Document(source).to_markdown()


def _add_picture(document, part, run, source, width, height):
    picture = _picture.open(source)
    package = document._package
    id = package.rels(part).add("image", package.add_picture(picture, "word/media/"))
    x, y = picture.emu()
    if width is None and height is None:
        width = min(x, document.sections[-1]._text_width())
    if width is None:
        width = x * height / y
    elif height is None:
        height = y * width / x
    number = 1 + sum(1 for _ in document._tree.iter(f"{{{WP}}}docPr"))
    run.append(ET.fromstring(_docx_parts.picture(id, number, round(width), round(height))))
    return Emu(round(width)), Emu(round(height))
