"""Markdown into presentations, and back."""
import os

from . import _markdown
from ._package import Inches, table_markdown
from ._pptx_shapes import TITLES, p


def add(presentation, markdown, folder):
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


def write(number, slide):
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
