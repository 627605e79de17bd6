"""What docx, pptx and xlsx have in common: a zip of XML parts that refer to one another.

What is not understood is kept as it is: parts as bytes, elements and the prefixes of
their names in the parts that are changed.
"""
import io
import os
import posixpath
import re
import xml.etree.ElementTree as ET
import zipfile
import zlib

R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
CORE = "http://schemas.openxmlformats.org/package/2006/metadata/core-properties"
DC, TERMS, XSI = "http://purl.org/dc/elements/1.1/", "http://purl.org/dc/terms/", "http://www.w3.org/2001/XMLSchema-instance"
CORE_KIND = "http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties"
XML = "http://www.w3.org/XML/1998/namespace"
HEAD = b'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

LIMIT = 256 << 20  # bytes that a document may unpack to
PARTS = 20_000
DEPTH = 300  # of elements in elements


class DocumentError(ValueError):
    """A file is no such document, or one that is damaged."""


class Length(int):
    """A length in EMU, of which there are 914,400 to an inch."""

    inches = property(lambda self: self / 914400)
    cm = property(lambda self: self / 360000)
    mm = property(lambda self: self / 36000)
    pt = property(lambda self: self / 12700)
    emu = property(int)


def Emu(n): return Length(n)
def Inches(n): return Length(round(n * 914400))
def Cm(n): return Length(round(n * 360000))
def Mm(n): return Length(round(n * 36000))
def Pt(n): return Length(round(n * 12700))


class RGBColor(tuple):
    """A colour: RGBColor(255, 0, 0), RGBColor.from_string("FF0000")."""

    def __new__(cls, r, g, b):
        return super().__new__(cls, (r, g, b))

    @classmethod
    def from_string(cls, text):
        text = text.lstrip("#")
        if not re.fullmatch("[0-9A-Fa-f]{6}", text):
            raise ValueError(f"{text!r} is no colour; write RRGGBB")
        return cls(*bytes.fromhex(text))

    def __str__(self):
        return "%02X%02X%02X" % self


def color_of(value):
    """The six digits of a colour that is given as RGBColor, as three numbers or as text."""
    return str(RGBColor.from_string(value)) if isinstance(value, str) else str(RGBColor(*value))


def clean(text):
    """A text without the characters that XML cannot hold."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "", str(text))


class Part:
    """An XML part: its tree, and the prefixes it was written with."""

    def __init__(self, data):
        self.prefixes = {}
        try:
            events = ET.iterparse(io.BytesIO(data), ("start-ns",))
            for _, (prefix, uri) in events:
                if prefix and prefix not in self.prefixes.values():
                    self.prefixes.setdefault(uri, prefix)
            self.root = events.root
        except ET.ParseError as error:
            raise DocumentError(f"a part of the document is no XML: {error}") from None
        level, depth = [self.root], 0
        while level:
            level, depth = [child for e in level for child in e], depth + 1
            if depth > DEPTH:
                raise DocumentError(f"in a part of the document elements are in more than {DEPTH} others")

    def data(self):
        return serialize(self.root, self.prefixes)


# What elements that we add are usually written with.
USUAL = {R: "r", DC: "dc", TERMS: "dcterms", XSI: "xsi", CORE: "cp",
         "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
         "http://schemas.openxmlformats.org/drawingml/2006/picture": "pic",
         "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing": "wp",
         "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
         "http://schemas.openxmlformats.org/presentationml/2006/main": "p"}


def serialize(root, prefixes):
    """Writes a tree with these prefixes, all of them declared at its root."""
    prefixes = {XML: "xml", **prefixes}
    names = {}

    def name(tag):
        found = names.get(tag)
        if found is None:
            uri, _, local = tag[1:].rpartition("}") if tag[0] == "{" else ("", "", tag)
            if uri and uri not in prefixes:
                usual = [USUAL[uri]] if uri in USUAL else []
                prefixes[uri] = next(p for p in usual + [f"n{i}" for i in range(len(prefixes) + 1)] if p not in prefixes.values())
            found = names[tag] = f"{prefixes[uri]}:{local}" if uri else local
        return found

    out = []

    def write(e):
        tag = name(e.tag)
        out.append("<" + tag)
        at = len(out)
        out.append("")  # the declarations, for the root
        for key, value in e.items():
            out.append(f' {name(key)}="{escape(value, True)}"')
        if e.text or len(e):
            out.append(">" + escape(e.text or ""))
            for child in e:
                write(child)
                if child.tail:
                    out.append(escape(child.tail))
            out.append(f"</{tag}>")
        else:
            out.append("/>")
        return at

    at = write(root)
    out[at] = "".join(f' xmlns:{p}="{escape(u, True)}"' for u, p in prefixes.items() if u != XML)
    return HEAD + "".join(out).encode("utf-8")


def escape(text, attribute=False):
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if attribute:
        text = text.replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
    return text.replace("\r", "&#13;")


class Relations:
    """What a part refers to."""

    def __init__(self, package, owner):
        self.package, self.owner = package, owner
        self.folder = posixpath.dirname(owner)
        self.path = posixpath.join(self.folder, "_rels", posixpath.basename(owner) + ".rels")
        self.all = {}  # id: (kind, target as written, external)
        if self.path in package.parts:
            for e in Part(package.parts[self.path]).root:
                self.all[e.get("Id")] = (e.get("Type"), e.get("Target", ""), e.get("TargetMode") == "External")

    def part(self, id):
        """The name of the part that an id stands for; None: there is none."""
        kind, target, external = self.all.get(id, ("", "", True))
        if external:
            return None
        name = posixpath.normpath(posixpath.join("/" + self.folder, target)).lstrip("/")
        return name if name in self.package.parts else None

    def of_kind(self, kind):
        """Ids and parts whose kind ends like this."""
        return [(id, self.part(id)) for id, (k, _, _) in self.all.items() if (k or "").endswith("/" + kind) and self.part(id)]

    def add(self, kind, target, external=False):
        if not external:
            target = posixpath.relpath(target, self.folder or ".")
        if "/" not in kind:
            kind = R + "/" + kind
        for id, known in self.all.items():
            if known == (kind, target, external):
                return id
        id = next(i for i in (f"rId{n}" for n in range(1, len(self.all) + 2)) if i not in self.all)
        self.all[id] = (kind, target, external)
        return id

    def save(self):
        if not self.all:
            self.package.parts.pop(self.path, None)
            return
        rows = "".join(f'<Relationship Id="{escape(id, True)}" Type="{escape(k or "", True)}" Target="{escape(t, True)}"'
                       + (' TargetMode="External"' if x else "") + "/>" for id, (k, t, x) in self.all.items())
        self.package.parts[self.path] = HEAD + f'<Relationships xmlns="{RELATIONS}">{rows}</Relationships>'.encode()


class Package:
    """The parts of a document. source: a path, bytes or an open file; None: it is empty."""

    def __init__(self, source=None):
        self.parts, self.defaults, self.overrides = {}, {}, {}
        self.trees, self.relations = {}, {}
        if source is not None:
            self.read(source)
        self.defaults.setdefault("rels", "application/vnd.openxmlformats-package.relationships+xml")
        self.defaults.setdefault("xml", "application/xml")

    def read(self, source):
        try:
            with unzipped(source) as z:
                for i in z.infolist():
                    if not i.is_dir():
                        self.parts[i.filename.lstrip("/")] = z.read(i)
        except DAMAGED as error:
            raise DocumentError(f"this is no docx, pptx or xlsx: {error}") from None
        types = self.parts.pop("[Content_Types].xml", None)
        if types is None:
            raise DocumentError("this is no docx, pptx or xlsx: it has no [Content_Types].xml")
        for e in Part(types).root:
            if e.tag.endswith("}Default"):
                self.defaults[e.get("Extension", "").lower()] = e.get("ContentType", "")
            else:
                self.overrides[e.get("PartName", "").lstrip("/")] = e.get("ContentType", "")

    def type_of(self, name):
        return self.overrides.get(name) or self.defaults.get(name.rpartition(".")[2].lower(), "")

    def tree(self, name):
        """A part's tree, which is written when the document is saved."""
        if name not in self.trees:
            if name not in self.parts:
                raise DocumentError(f"the document lacks its part {name}")
            self.trees[name] = Part(self.parts[name])
        return self.trees[name].root

    def rels(self, name=""):
        if name not in self.relations:
            self.relations[name] = Relations(self, name)
        return self.relations[name]

    def add(self, name, data, type=None):
        self.parts[name] = data.encode() if isinstance(data, str) else data
        self.trees.pop(name, None)
        if type:
            self.overrides[name] = type
        return name

    def free(self, pattern):
        """A name of this pattern that no part has."""
        return next(n for n in (pattern % i for i in range(1, len(self.parts) + 2)) if n not in self.parts)

    def add_picture(self, picture, folder):
        """Puts a picture (of _picture) there, once; gives its part's name."""
        for name, data in self.parts.items():
            if name.startswith(folder) and data == picture.data:
                return name
        extension = picture.format.lower()
        self.defaults.setdefault(extension, "image/" + extension)
        return self.add(self.free(folder + f"image%d.{extension}"), picture.data)

    def main(self):
        """The part that is the document itself."""
        found = self.rels().of_kind("officeDocument")
        if not found:
            raise DocumentError("the package has no document in it")
        return found[0][1]

    def save(self, target):
        for name, part in self.trees.items():
            self.parts[name] = part.data()
        for relations in self.relations.values():
            relations.save()
        rows = [f'<Default Extension="{escape(e, True)}" ContentType="{escape(t, True)}"/>' for e, t in self.defaults.items()]
        rows += [f'<Override PartName="/{escape(n, True)}" ContentType="{escape(t, True)}"/>' for n, t in self.overrides.items() if n in self.parts]
        types = HEAD + f'<Types xmlns="{TYPES}">{"".join(rows)}</Types>'.encode()
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as z:
            for name, data in [("[Content_Types].xml", types), *self.parts.items()]:
                z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
        if hasattr(target, "write"):
            target.write(whole.getvalue())
            return
        with open(target, "wb") as f:  # only now, so that an error leaves the old file
            f.write(whole.getvalue())


DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def unzipped(source):
    """A document's archive: of a path, bytes or an open file."""
    if isinstance(source, (bytes, bytearray)):
        source = io.BytesIO(source)
    try:
        z = zipfile.ZipFile(source if hasattr(source, "read") else os.fspath(source))
    except DAMAGED as error:
        raise DocumentError(f"this is no docx, pptx or xlsx: {error}") from None
    infos = z.infolist()
    if len(infos) > PARTS or sum(i.file_size for i in infos) > LIMIT:
        z.close()
        raise DocumentError(f"the document unpacks to more than {LIMIT >> 20} MiB, or {PARTS:,} parts")
    return z


# What the main part of each kind is called.
KINDS = {"docx": rb"(wordprocessingml|ms-word)\.(document|template)\.[\w.]*main\+xml",
         "pptx": rb"(presentationml|ms-powerpoint)\.(presentation|slideshow|template)\.[\w.]*main\+xml",
         "xlsx": rb"(spreadsheetml|ms-excel)\.(sheet|template)\.[\w.]*main\+xml"}


def kind_of(source):
    """"docx", "pptx" or "xlsx"."""
    with unzipped(source) as z:
        try:
            types = z.read("[Content_Types].xml")
        except (KeyError, *DAMAGED) as error:
            raise DocumentError(f"this is no docx, pptx or xlsx: {error}") from None
    for kind, pattern in KINDS.items():
        if re.search(pattern, types):
            return kind
    raise DocumentError("nothing here reads a document of this type")


class CoreProperties:
    """Title, author and so on: texts that can be read and set."""

    FIELDS = {"title": (DC, "title"), "author": (DC, "creator"), "subject": (DC, "subject"), "comments": (DC, "description"),
              "keywords": (CORE, "keywords"), "category": (CORE, "category"), "last_modified_by": (CORE, "lastModifiedBy")}

    def __init__(self, package):
        found = package.rels().of_kind("core-properties")
        if not found:
            package.add("docProps/core.xml", HEAD + (
                f'<cp:coreProperties xmlns:cp="{CORE}" xmlns:dc="{DC}" xmlns:dcterms="{TERMS}" xmlns:xsi="{XSI}"/>').encode(),
                "application/vnd.openxmlformats-package.core-properties+xml")
            package.rels().add(CORE_KIND, "docProps/core.xml")
            found = [("", "docProps/core.xml")]
        object.__setattr__(self, "_root", package.tree(found[0][1]))

    def __getattr__(self, name):
        if name not in self.FIELDS:
            raise AttributeError(f"there is no property {name!r}; there are {', '.join(self.FIELDS)}")
        return self._root.findtext("{%s}%s" % self.FIELDS[name]) or ""

    def __setattr__(self, name, value):
        if name not in self.FIELDS:
            raise AttributeError(f"there is no property {name!r}; there are {', '.join(self.FIELDS)}")
        tag = "{%s}%s" % self.FIELDS[name]
        e = self._root.find(tag)
        if e is None:
            e = ET.SubElement(self._root, tag)
        e.text = clean(value)


def table_markdown(rows):
    """Rows of texts as a Markdown table."""
    rows = [[str(c).replace("|", "\\|").replace("\n", "<br>") for c in row] for row in rows]
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    rows = [row + [""] * (width - len(row)) for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])
