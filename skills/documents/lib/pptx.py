"""PowerPoint presentations, read, changed and written, with the names that python-pptx
gives them.

What is here works as there: slides, layouts, titles, text, bullets, tables, pictures,
text boxes and notes. What is not here is an AttributeError.
"""
import xml.etree.ElementTree as ET

from . import _picture, _pptx_markdown, _pptx_parts
from ._package import R, Cm, CoreProperties, DocumentError, Emu, Inches, Length, Mm, Package, Pt, RGBColor
from ._pptx_shapes import TITLES, TYPE, Shape, TextFrame, made, p


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
        _pptx_markdown.add(self, text, folder)

    def to_markdown(self):
        return "\n\n".join(_pptx_markdown.write(k, slide) for k, slide in enumerate(self.slides, 1)) + "\n"

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
