"""PDF: pypdf reads, joins, splits and fills; reportlab writes. Both as they are, and the
few lines that are always the same.

from skills.documents.lib.pdf import PdfReader, PdfWriter, canvas, SimpleDocTemplate
"""
import io
import os
import re

from . import _markdown, _packages, _picture
from ._package import DocumentError

pypdf = _packages.find("pypdf")
from pypdf import PdfReader, PdfWriter
from pypdf.errors import PdfReadError as _PdfReadError

reportlab = _packages.find("reportlab")
import reportlab.rl_config as _config
_config.useA85 = 0  # text of it would be larger, and slower
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4, LETTER as letter, landscape
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.lib.units import cm, inch, mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfgen import canvas
from reportlab.platypus import (BaseDocTemplate, Frame, Image, ListFlowable, ListItem, PageBreak, PageTemplate, Paragraph, Preformatted,
                                SimpleDocTemplate, Spacer, Table, TableStyle)


def to_text(source, pages=None):
    """The text of a PDF, or of some of its pages (from 0). One that is a scan has none."""
    try:
        reader = PdfReader(source)
        wanted = range(len(reader.pages)) if pages is None else pages
        text = "\n\n".join(reader.pages[k].extract_text() for k in wanted)
        return text.replace("\x7f", "•").strip() + "\n"  # what reportlab writes for the sign
    except _PdfReadError as error:
        raise DocumentError(f"the PDF cannot be read: {error}") from error


def merge(target, *sources):
    """Joins PDFs."""
    writer = PdfWriter()
    for source in sources:
        writer.append(source)
    writer.write(target)


def split(source, pattern="page-%d.pdf"):
    """Writes every page to a file of its own; gives their names."""
    names = []
    for number, page in enumerate(PdfReader(source).pages, 1):
        writer = PdfWriter()
        writer.add_page(page)
        names.append(pattern % number)
        writer.write(names[-1])
    return names


def fields(source):
    """The fields of a form, and what is in them."""
    return {n: f.get("/V") for n, f in (PdfReader(source).get_fields() or {}).items()}


def fill(source, target, values):
    """Fills in a form."""
    reader = PdfReader(source)
    unknown = set(values) - set(reader.get_fields() or {})
    if unknown:
        raise KeyError(f"the form has no field {sorted(unknown)}; it has {sorted(reader.get_fields() or {})}")
    writer = PdfWriter(clone_from=reader)
    for page in writer.pages:
        writer.update_page_form_field_values(page, values, auto_regenerate=False)
    writer.write(target)


_unicode = []


def unicode_font():
    """The name of a font that has Latin, Greek, Cyrillic and many signs, where Helvetica has
    Western Europe's letters only. It has a bold face, so <b> works with it."""
    if not _unicode:
        from reportlab.pdfbase.ttfonts import TTFont
        for name, file in ("DejaVuSans", "DejaVuSans.ttf"), ("DejaVuSans-Bold", "DejaVuSans-Bold.ttf"):
            pdfmetrics.registerFont(TTFont(name, io.BytesIO(_packages.data("fonts/" + file))))
        pdfmetrics.registerFontFamily("DejaVuSans", normal="DejaVuSans", bold="DejaVuSans-Bold", italic="DejaVuSans", boldItalic="DejaVuSans-Bold")
        _unicode.append("DejaVuSans")
    return _unicode[0]


def styles(text=""):
    """reportlab's sample styles, in a font that has all of a text's letters."""
    found = getSampleStyleSheet()
    try:
        text.encode("cp1252")
    except UnicodeEncodeError:
        name = unicode_font()
        for style in found.byName.values():
            if getattr(style, "fontName", "").startswith("Helvetica"):
                style.fontName = name + ("-Bold" if "Bold" in style.fontName else "")
    return found


def from_markdown(text, target, title=None, size=A4, folder="."):
    """Writes a PDF from Markdown: headings, paragraphs, lists, tables, code, quotes, pictures."""
    look = styles(text + (title or ""))
    width = size[0] - 4 * cm
    story = [Paragraph(_inline(title), look["Title"])] if title else []
    items = []

    def end_list():
        while items:
            story.append(_list(items, look, items[0][0]))
            if not items:
                story.append(Spacer(1, 6))

    for kind, *rest in _markdown.blocks(text):
        if kind == "item":
            items.append(rest)
            continue
        end_list()
        if kind == "heading":
            story.append(Paragraph(_inline(rest[1]), look[f"Heading{min(rest[0], 6)}"]))
        elif kind == "paragraph":
            story.append(Paragraph(_inline(rest[0]), look["BodyText"]))
        elif kind == "quote":
            story.append(Paragraph(_inline(rest[0]), ParagraphStyle("quote", parent=look["BodyText"], leftIndent=24, textColor=colors.HexColor("#404040"))))
        elif kind == "code":
            story.append(Preformatted(rest[0], ParagraphStyle("code", parent=look["Code"], backColor=colors.HexColor("#F4F4F4")), maxLineLength=90))
        elif kind == "table":
            story += [_table(rest[0], look, width), Spacer(1, 8)]
        elif kind == "image":
            picture = _picture.open(os.path.join(folder, rest[0]))
            x, y = (n / 12700 for n in picture.emu())
            scale = min(1, width / x, (size[1] - 6 * cm) / y)
            story.append(Image(os.path.join(folder, rest[0]), x * scale, y * scale))
        else:
            story.append(Spacer(1, 12))
    end_list()

    def number(page, _):
        page.setFont(look["Normal"].fontName, 8)
        page.drawCentredString(size[0] / 2, 1 * cm, str(page.getPageNumber()))

    document = BaseDocTemplate(target, pagesize=size, leftMargin=2 * cm, rightMargin=2 * cm, topMargin=2 * cm, bottomMargin=2 * cm, title=title or "")
    frame = Frame(document.leftMargin, document.bottomMargin, document.width, document.height, leftPadding=0, rightPadding=0)
    document.addPageTemplates(PageTemplate(frames=[frame], onPageEnd=number))
    document.build(story or [Spacer(1, 1)])


def _inline(text):
    """Markdown within a line as reportlab's own marks."""
    out = []
    for piece, bold, italic, code, url in _markdown.spans(text):
        piece = piece.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", "<br/>")
        if code:
            piece = f'<font name="Courier">{piece}</font>'
        if italic:
            piece = f"<i>{piece}</i>"
        if bold:
            piece = f"<b>{piece}</b>"
        if url:
            quoted = re.sub('[<>"&]', lambda m: f"&#{ord(m[0])};", url)
            piece = f'<a href="{quoted}" color="blue">{piece}</a>'
        out.append(piece)
    return "".join(out)


def _list(items, look, depth):
    """Takes items of one kind off, with the lists that are in them."""
    ordered, found = items[0][1], []
    while items and (items[0][0] > depth or items[0][0] == depth and items[0][1] == ordered):
        if items[0][0] > depth:
            found[-1].append(_list(items, look, items[0][0]))
        else:
            found.append([Paragraph(_inline(items.pop(0)[2]), look["BodyText"])])
    return ListFlowable([ListItem(item) for item in found], bulletType="1" if ordered else "bullet", start=None if ordered else "•", leftIndent=18, bulletFontSize=9)


def _table(rows, look, width):
    columns = max(map(len, rows))
    cell = ParagraphStyle("cell", parent=look["BodyText"], fontSize=9, leading=11, spaceBefore=0)
    head = ParagraphStyle("head", parent=cell, fontName=look["Heading1"].fontName, textColor=colors.white)
    data = [[Paragraph(_inline(t), head if k == 0 else cell) for t in row + [""] * (columns - len(row))] for k, row in enumerate(rows)]
    return Table(data, colWidths=[width / columns] * columns, repeatRows=1, style=TableStyle([
        ("GRID", (0, 0), (-1, -1), 0.4, colors.HexColor("#999999")), ("BACKGROUND", (0, 0), (-1, 0), colors.HexColor("#1F3864")),
        ("VALIGN", (0, 0), (-1, -1), "TOP"), ("ROWBACKGROUNDS", (0, 1), (-1, -1), [colors.white, colors.HexColor("#EEF2F9")])]))
