"""Documents that are written, read again and changed."""
import io
import struct
import zipfile
import zlib

from skills.documents import DocumentError, Document, Inches, Presentation, Pt, RGBColor, docx, load_workbook, pdf, pptx, to_text, xlsx
from skills.documents.lib import _picture


def png(width, height, kind, depth=8, filters=range(5)):
    bands = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    line = (width * bands * depth + 7) // 8
    rows = [bytes((x * 7 + y * 13) % 256 for x in range(line)) for y in range(height)]
    raw, above = b"", bytes(line)
    step = max(1, bands * depth // 8)
    for y, row in enumerate(rows):
        f = filters[y % len(filters)]
        left = bytes(step) + row[:-step] if step else row
        corner = bytes(step) + above[:-step]
        def paeth(a, b, c):
            p = a + b - c
            return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        predicted = {0: lambda k: 0, 1: lambda k: left[k], 2: lambda k: above[k], 3: lambda k: (left[k] + above[k]) // 2,
                     4: lambda k: paeth(left[k], above[k], corner[k])}[f]
        raw += bytes([f]) + bytes((v - predicted(k)) & 255 for k, v in enumerate(row))
        above = row
    chunk = lambda t, d: struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d))
    palette = chunk(b"PLTE", bytes(range(256)) * 3) if kind == 3 else b""
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)) + palette + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return data, b"".join(rows)


def refused(call, *kinds):
    try:
        call()
    except kinds or (DocumentError,):
        return
    raise AssertionError("it is not refused")


# ── pictures ────────────────────────────────────────────────────────────────
for kind, mode in (0, "L"), (2, "RGB"), (4, "LA"), (6, "RGBA"):
    data, pixels = png(9, 11, kind)
    picture = _picture.open(data)
    assert picture.size == (9, 11) and picture.mode == mode and picture.tobytes() == pixels, mode
    if len(mode) > 1 and mode[-1] == "A":
        assert picture.split()[-1].tobytes() == pixels[len(mode) - 1::len(mode)]
        assert len(picture.convert("RGB").tobytes()) == 9 * 11 * 3
data, pixels = png(9, 4, 3)
assert _picture.open(data).tobytes()[:3] == bytes([bytes(range(256)) [0], (bytes(range(256)) * 3)[1], (bytes(range(256)) * 3)[2]])
for depth in 1, 2, 4, 16:
    assert len(_picture.open(png(9, 4, 0, depth)[0]).tobytes()) == 36
jpeg = bytes.fromhex("ffd8ffe000104a46494600010101006000600000ffc0000b080010002001011100ffd9")
assert _picture.open(jpeg).size == (32, 16) and _picture.open(jpeg).format == "JPEG"
assert _picture.open(b"GIF89a" + struct.pack("<HH", 5, 6) + b"\0" * 9).size == (5, 6)
refused(lambda: _picture.open(b"no picture"), OSError)
refused(lambda: _picture.open(png(100_000, 1, 0)[0][:16] + struct.pack(">II", 60_000, 60_000) + png(1, 1, 0)[0][24:]).tobytes(), ValueError)
with open("a.png", "wb") as f:
    f.write(png(20, 30, 6)[0])

# ── Word ────────────────────────────────────────────────────────────────────
d = Document()
d.add_heading("Title", 0)
p = d.add_paragraph("Hello ")
run = p.add_run("bo")
run.bold, run.font.size, run.font.color.rgb = True, Pt(14), RGBColor(255, 0, 0)
p.add_run("ld & <wide>\ttab\nline").italic = True
p.alignment = "center"
d.add_paragraph("item", style="List Bullet")
t = d.add_table(2, 2, style="Table Grid")
t.cell(0, 0).text, t.cell(1, 1).text = "a|b", "x\ny"
t.add_row()
d.add_picture("a.png", width=Inches(1))
d.sections[0].header.paragraphs[0].text = "head bold"
d.sections[0].orientation = "landscape"
d.core_properties.title = "T & t"
d.save("a.docx")

d = Document("a.docx")
p = d.paragraphs[1]
assert p.text == "Hello bold & <wide>\ttab\nline" and p.alignment == "center" and p.style.name == "Normal"
assert (p.runs[1].bold, p.runs[1].italic, p.runs[1].font.size.pt, str(p.runs[1].font.color.rgb)) == (True, None, 14, "FF0000")
assert d.paragraphs[2].style.name == "List Bullet" and d.paragraphs[0].level == 0
assert d.tables[0].values() == [["a|b", ""], ["", "x\ny"], ["", ""]]
assert d.core_properties.title == "T & t" and d.sections[0].orientation == "landscape" and len(d.images) == 1
assert d.replace_text("bold", "BRAVE") == 2 and d.paragraphs[1].text.startswith("Hello BRAVE & ")
assert d.sections[0].header.text == "head BRAVE"
assert [type(x).__name__ for x in d.iter_inner_content()].count("Table") == 1
d.paragraphs[2].delete()
d.add_markdown("1. a\n2. b\n\ntext\n\n1. again\n\n[l](http://x/?a=1&b=2)")
d.save("b.docx")
text = to_text("b.docx")
assert "# Title" in text and "1. again" in text and "[l](http://x/?a=1&b=2)" in text and "| a\\|b |" in text and "- item" not in text, text
numbers = [e.get(docx.w("val")) for e in Document("b.docx")._tree.iter(docx.w("numId"))]
assert len(set(numbers)) == 2, numbers  # the second list begins anew
memory = io.BytesIO()
Document().save(memory)
assert Document(memory.getvalue()).paragraphs == []

# What is not understood stays, and so do the prefixes that attributes name.
with zipfile.ZipFile("a.docx") as z, zipfile.ZipFile("c.docx", "w") as out:
    for name in z.namelist():
        data = z.read(name)
        if name == "word/document.xml":
            data = data.replace(b"<w:document ", b'<w:document xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
                                b'xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml" mc:Ignorable="w14" ', 1).replace(b"<w:p>", b'<w:p w14:paraId="00000001">', 1)
        out.writestr(name, data)
    out.writestr("custom/kept.bin", b"\0\1")
d = Document("c.docx")
d.add_paragraph("more")
d.save("c.docx")
with zipfile.ZipFile("c.docx") as z:
    text = z.read("word/document.xml").decode()
    assert 'xmlns:w14="' in text and 'mc:Ignorable="w14"' in text and 'w14:paraId="00000001"' in text, text[:500]
    assert z.read("custom/kept.bin") == b"\0\1"

# ── PowerPoint ──────────────────────────────────────────────────────────────
q = Presentation()
assert [l.name for l in q.slide_layouts][:2] == ["Title Slide", "Title and Content"] and len(q.slide_layouts) == 9
s = q.slides.add_slide(q.slide_layouts[0])
s.shapes.title.text, s.placeholders[1].text = "T & T", "sub"
s = q.slides.add_slide(1)
s.shapes.title.text = "Two"
frame = s.placeholders[1].text_frame
frame.text = "one\ntwo"
frame.paragraphs[1].level = 1
frame.paragraphs[1].add_run(" bold").font.bold = True
s.notes = "note"
table = s.shapes.add_table(2, 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
table.cell(1, 1).text = "b"
s.shapes.add_picture("a.png", Inches(6), Inches(3), width=Inches(2))
assert s.shapes.title.left == Inches(0.92) and abs(s.shapes[-1].height - Inches(3)) < 2
q.save("a.pptx")
q = Presentation("a.pptx")
s = q.slides[1]
assert s.shapes.title.text == "Two" and s.placeholders[1].text == "one\ntwo bold" and s.notes == "note"
assert [x.level for x in s.placeholders[1].text_frame.paragraphs] == [0, 1] and s.slide_layout.name == "Title and Content"
assert next(x for x in s.shapes if x.has_table).table.values() == [["", ""], ["", "b"]]
assert [x.image for x in s.shapes if x.image] == [open("a.png", "rb").read()]
q.slides.remove(q.slides[0])
q.add_markdown("# A\n- x\n  - y\n\nNote: hi\n\n# B\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n![p](a.png)\n")
q.save("b.pptx")
text = to_text("b.pptx")
assert text.startswith("## Slide 1: Two") and "  - y" in text and "Note: hi" in text and "| 1 | 2 |" in text and len(Presentation("b.pptx").slides) == 3, text

# ── Excel ───────────────────────────────────────────────────────────────────
xlsx.write("a.xlsx", {"S/1": [{"a": 1, "b": "x"}, {"a": 2.5, "c": None}], "empty": []})
assert xlsx.read("a.xlsx") == [{"a": 1, "b": "x", "c": None}, {"a": 2.5, "b": None, "c": None}] and xlsx.read("a.xlsx", "empty") == []
assert xlsx.read("a.xlsx", header=False)[0] == ["a", "b", "c"] and "| 2.5 |" in to_text("a.xlsx")
xlsx.write("t.xlsx", [{"a": "=1+1"}])
assert xlsx.read("t.xlsx") == [{"a": "=1+1"}] and load_workbook("t.xlsx").active["A2"].data_type == "s"
book = load_workbook("a.xlsx")
book.active["D2"] = "=A2+A3"
book.active.add_image(xlsx.Image("a.png"), "F2")
book.save("b.xlsx")
assert load_workbook("b.xlsx").active["D2"].value == "=A2+A3"

# ── PDF ─────────────────────────────────────────────────────────────────────
pdf.from_markdown("# Héllo\n\nSome **bold** `code` & < text\n\n- a\n  1. b\n- c\n\n| a | b |\n|--|--|\n| 1 | **2** |\n\n![i](a.png)\n\n```\ncode\n```\n> q\n", "a.pdf", title="T")
pdf.from_markdown("# Привет Ελλάδα **жирный**", "u.pdf")
assert "Some bold code & < text" in to_text("a.pdf") and "Héllo" in to_text("a.pdf") and "Привет Ελλάδα" in to_text("u.pdf"), to_text("a.pdf") + to_text("u.pdf")
assert to_text("a.pdf").startswith("T\nHéllo") and "•" in to_text("a.pdf"), to_text("a.pdf")
pdf.merge("m.pdf", "a.pdf", "u.pdf")
assert len(pdf.PdfReader("m.pdf").pages) == 2 and pdf.split("m.pdf", "p%d.pdf") == ["p1.pdf", "p2.pdf"] and "Привет" in to_text("p2.pdf")
refused(lambda: pdf.fill("a.pdf", "x.pdf", {"none": "x"}), KeyError)

# ── what is no document ─────────────────────────────────────────────────────
for data in b"", b"PK\x03\x04 no zip", b"text":
    for read in docx.to_markdown, pptx.to_markdown:
        refused(lambda: read(data))
with open("no.xlsx", "wb") as f:
    f.write(b"no workbook")
with open("no.pdf", "wb") as f:
    f.write(b"%PDF-1.7\nnothing\n%%EOF")
refused(lambda: xlsx.read("no.xlsx"))
refused(lambda: to_text("no.pdf"))
refused(lambda: to_text("no.xlsx"))
refused(lambda: docx.to_markdown("a.pptx"))
refused(lambda: pptx.to_markdown("a.docx"))


def hostile(part, **more):
    """a.docx with another part, as bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile("a.docx") as z, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        for name in z.namelist():
            out.writestr(name, part if name == "word/document.xml" else z.read(name))
        for name, size in more.items():
            with out.open(name, "w") as f:
                for _ in range(size >> 20):
                    f.write(bytes(1 << 20))
    return made.getvalue()


laughs = b'<!DOCTYPE x [<!ENTITY a0 "ha">' + b"".join(b'<!ENTITY a%d "%s">' % (k, b"&a%d;" % (k - 1) * 10) for k in range(1, 12)) + b"]><x>&a11;</x>"
refused(lambda: docx.to_markdown(hostile(laughs)))
refused(lambda: docx.to_markdown(hostile(b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>')))
refused(lambda: docx.to_markdown(hostile(b"<cut")))
for deep in 1000, 200_000:
    refused(lambda: docx.to_markdown(hostile(b"<x>" * deep + b"</x>" * deep)))
with open("no.docx", "wb") as f:
    f.write(hostile(b"<x/>", bomb=300 << 20))
refused(lambda: docx.to_markdown("no.docx"))
refused(lambda: to_text("no.docx"))
refused(lambda: load_workbook("no.docx"))
print("documents: fine")
