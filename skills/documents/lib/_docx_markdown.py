"""Markdown into Word documents, and back."""
import os

from . import _markdown
from ._docx_text import R, Element, Pt, Run, properties, runs_of, text_of, w
from ._package import table_markdown

A = "http://schemas.openxmlformats.org/drawingml/2006/main"


def add(document, markdown, folder):
    def spans(paragraph, text):
        for piece, bold, italic, code, url in _markdown.spans(text):
            run = paragraph.add_hyperlink(piece, url) if url else paragraph.add_run(piece)
            if bold:
                run.bold = True
            if italic:
                run.italic = True
            if code:
                run.font.name = "Courier New"
        return paragraph

    number, before = None, ""
    for kind, *rest in _markdown.blocks(markdown):
        if kind == "item" and rest[1] and (before != "item" or number is None):
            number = document._restart("List Number")
        elif kind != "item":
            number = None
        before = kind
        if kind == "heading":
            spans(document.add_heading("", rest[0]), rest[1])
        elif kind == "paragraph":
            spans(document.add_paragraph(), rest[0])
        elif kind == "item":
            level = min(rest[0], 2)
            paragraph = document.add_paragraph(style=("List Number" if rest[1] else "List Bullet") + (f" {level + 1}" if level else ""))
            if rest[1] and number:
                properties(paragraph._e, "pPr").append(Element("numPr", Element("ilvl", val=level), Element("numId", val=number)))
            spans(paragraph, rest[2])
        elif kind == "quote":
            spans(document.add_paragraph(style="Quote"), rest[0])
        elif kind == "code":
            run = document.add_paragraph(rest[0]).runs
            for r in run:
                r.font.name, r.font.size = "Courier New", Pt(9)
        elif kind == "image":
            document.add_picture(os.path.join(folder, rest[0]))
        elif kind == "rule":
            document.add_paragraph("─" * 30).alignment = "center"
        else:
            rows = rest[0]
            width = max(map(len, rows))
            table = document.add_table(len(rows), width, style="Table Grid")
            for cells, row in zip(table._grid(), rows):
                for cell, text in zip(cells, row):
                    paragraph = spans(cell.paragraphs[0], text)
                    if row is rows[0]:
                        for run in paragraph.runs:
                            run.bold = True


def write(document):
    out, before = [], None
    for x in document.iter_inner_content():
        if hasattr(x, "rows"):
            line, kind = table_markdown(x.values()), "table"
        else:
            line, kind = _line(document, x)
        if not line.strip():
            continue
        out.append(("\n" if kind == before == "item" else "\n\n") + line if out else line)
        before = kind
    return "".join(out) + "\n"


def _line(document, paragraph):
    text = []
    for e in paragraph._e:
        runs = list(runs_of([e]))
        inner = "".join(_marked(document, paragraph, r) for r in runs)
        if e.tag == w("hyperlink"):
            target = document._rels().all.get(e.get(f"{{{R}}}id"), ("", "", False))[1]
            inner = f"[{''.join(map(text_of, runs))}]({target})" if target else inner
        text.append(inner)
    text = "".join(text).replace("****", "").strip()
    level, style = paragraph.level, paragraph.style.name
    if level is not None and text:
        return "#" * max(1, min(level, 6)) + " " + "".join(r.text for r in paragraph.runs).strip(), "heading"
    number = paragraph._e.find(f"{w('pPr')}/{w('numPr')}/{w('ilvl')}")
    if style.startswith("List ") or number is not None or paragraph._e.find(f"{w('pPr')}/{w('numPr')}") is not None:
        depth = int(number.get(w("val"), 0)) if number is not None else int(style[-1]) - 1 if style[-1:].isdigit() else 0
        return "  " * min(depth, 9) + ("1. " if "Number" in style else "- ") + text, "item"
    return ("> " + text, "quote") if style == "Quote" and text else (text, "paragraph")


def _marked(document, paragraph, e):
    run = Run(e, paragraph)
    text = run.text
    for blip in e.iter(f"{{{A}}}blip"):
        text += f"![picture]({document._rels().part(blip.get(f'{{{R}}}embed', '')) or ''})"
    inner = text.strip()
    if not inner:
        return text
    mark = ("**" if run.bold else "") + ("*" if run.italic else "")
    return text.replace(inner, mark + inner + mark[::-1], 1)
