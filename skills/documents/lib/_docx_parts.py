"""The parts that a new Word document begins with."""
from ._package import HEAD, R, Package

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml."
NUMBERING = TYPE + "numbering+xml"
NS = f'xmlns:w="{W}"'

SIZES = {1: 32, 2: 26, 3: 24, 4: 22, 5: 22, 6: 22, 7: 22, 8: 22, 9: 22}
# What each list is: (style, is it numbered), with its levels as the format's.
LISTS = ["List Bullet", "List Number"]


def new():
    package = Package()
    package.add("word/document.xml", HEAD + (
        f'<w:document {NS} xmlns:r="{R}"><w:body><w:sectPr><w:pgSz w:w="12240" w:h="15840"/>'
        '<w:pgMar w:top="1440" w:right="1440" w:bottom="1440" w:left="1440" w:header="720" w:footer="720" w:gutter="0"/></w:sectPr></w:body></w:document>').encode(),
        TYPE + "document.main+xml")
    package.add("word/styles.xml", styles(), TYPE + "styles+xml")
    package.add("word/numbering.xml", numbering(), NUMBERING)
    package.add("word/settings.xml", HEAD + (
        f'<w:settings {NS}><w:defaultTabStop w:val="720"/><w:compat><w:compatSetting w:name="compatibilityMode" '
        'w:uri="http://schemas.microsoft.com/office/word" w:val="15"/></w:compat></w:settings>').encode(), TYPE + "settings+xml")
    package.rels().add("officeDocument", "word/document.xml")
    rels = package.rels("word/document.xml")
    for kind in "styles", "numbering", "settings":
        rels.add(kind, f"word/{kind}.xml")
    return package


def style(name, kind):
    """A style of ours, as XML; None: we have none of that name."""
    made = {("paragraph", n.lower()): s for n, s in paragraph_styles()} | {("table", n.lower()): s for n, s in table_styles()}
    found = made.get((kind, name.lower()))
    return found and found.replace("<w:style ", f"<w:style {NS} ", 1)


def _paragraph(name, inner, based="Normal", following=None, id=None):
    id = id or name.replace(" ", "")
    return name, (f'<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{name[0].lower() + name[1:] if name.startswith("Heading") else name}"/>'
                  f'<w:basedOn w:val="{based}"/>' + (f'<w:next w:val="{following}"/>' if following else "") + f"<w:qFormat/>{inner}</w:style>")


def paragraph_styles():
    yield _paragraph("Title", '<w:pPr><w:spacing w:after="240"/><w:contextualSpacing/></w:pPr><w:rPr><w:rFonts w:ascii="Calibri Light" w:hAnsi="Calibri Light"/>'
                     '<w:spacing w:val="-10"/><w:kern w:val="28"/><w:sz w:val="56"/><w:szCs w:val="56"/></w:rPr>', following="Normal")
    yield _paragraph("Subtitle", '<w:rPr><w:color w:val="595959"/><w:sz w:val="28"/></w:rPr>', following="Normal")
    for level, size in SIZES.items():
        yield _paragraph(f"Heading {level}", f'<w:pPr><w:keepNext/><w:keepLines/><w:spacing w:before="{240 if level < 3 else 160}" w:after="80"/>'
                         f'<w:outlineLvl w:val="{level - 1}"/></w:pPr><w:rPr><w:rFonts w:ascii="Calibri Light" w:hAnsi="Calibri Light"/><w:b/>'
                         f'<w:color w:val="1F3864"/><w:sz w:val="{size}"/><w:szCs w:val="{size}"/></w:rPr>', following="Normal")
    for number, name in enumerate(LISTS):
        for depth in range(3):
            yield _paragraph(name + (f" {depth + 1}" if depth else ""),
                             f'<w:pPr><w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number + 1}"/></w:numPr><w:contextualSpacing/></w:pPr>')
    yield _paragraph("Quote", '<w:pPr><w:ind w:left="720" w:right="720"/></w:pPr><w:rPr><w:i/><w:color w:val="404040"/></w:rPr>')
    yield _paragraph("Caption", '<w:rPr><w:i/><w:color w:val="44546A"/><w:sz w:val="18"/></w:rPr>')
    yield _paragraph("Header", '<w:pPr><w:tabs><w:tab w:val="center" w:pos="4680"/><w:tab w:val="right" w:pos="9360"/></w:tabs></w:pPr>')
    yield _paragraph("Footer", '<w:pPr><w:tabs><w:tab w:val="center" w:pos="4680"/><w:tab w:val="right" w:pos="9360"/></w:tabs></w:pPr>')


def table_styles():
    lines = "".join(f'<w:{side} w:val="single" w:sz="4" w:space="0" w:color="auto"/>' for side in ("top", "left", "bottom", "right", "insideH", "insideV"))
    grid = f'<w:pPr><w:spacing w:after="0" w:line="240" w:lineRule="auto"/></w:pPr><w:tblPr><w:tblBorders>{lines}</w:tblBorders></w:tblPr>'
    head = ('<w:tblStylePr w:type="firstRow"><w:rPr><w:b/><w:color w:val="FFFFFF"/></w:rPr><w:tcPr><w:shd w:val="clear" w:color="auto" w:fill="1F3864"/></w:tcPr></w:tblStylePr>'
            '<w:tblStylePr w:type="band1Horz"><w:tcPr><w:shd w:val="clear" w:color="auto" w:fill="D9E2F3"/></w:tcPr></w:tblStylePr>')
    for name, inner in ("Table Grid", grid), ("Light Grid Accent 1", grid.replace("<w:tblPr>", '<w:tblPr><w:tblStyleRowBandSize w:val="1"/>') + head):
        yield name, (f'<w:style w:type="table" w:styleId="{name.replace(" ", "")}"><w:name w:val="{name}"/><w:basedOn w:val="TableNormal"/>{inner}</w:style>')


def styles():
    text = (f'<w:styles {NS}><w:docDefaults><w:rPrDefault><w:rPr><w:rFonts w:ascii="Calibri" w:hAnsi="Calibri" w:eastAsia="Calibri" w:cs="Calibri"/>'
            '<w:sz w:val="22"/><w:szCs w:val="22"/><w:lang w:val="en-US"/></w:rPr></w:rPrDefault><w:pPrDefault><w:pPr><w:spacing w:after="120" w:line="264" w:lineRule="auto"/>'
            '</w:pPr></w:pPrDefault></w:docDefaults>'
            '<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/><w:qFormat/></w:style>'
            '<w:style w:type="character" w:default="1" w:styleId="DefaultParagraphFont"><w:name w:val="Default Paragraph Font"/></w:style>'
            '<w:style w:type="table" w:default="1" w:styleId="TableNormal"><w:name w:val="Normal Table"/><w:tblPr><w:tblInd w:w="0" w:type="dxa"/><w:tblCellMar>'
            '<w:top w:w="0" w:type="dxa"/><w:left w:w="108" w:type="dxa"/><w:bottom w:w="0" w:type="dxa"/><w:right w:w="108" w:type="dxa"/></w:tblCellMar></w:tblPr></w:style>')
    return HEAD + (text + "".join(s for _, s in paragraph_styles()) + "".join(s for _, s in table_styles()) + "</w:styles>").encode()


def numbering():
    abstract = nums = ""
    for k, name in enumerate(LISTS):
        levels = ""
        for depth in range(9):
            form, text = ("bullet", "•◦▪"[depth % 3]) if k == 0 else (("decimal", "lowerLetter", "lowerRoman")[depth % 3], f"%{depth + 1}.")
            levels += (f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/><w:lvlJc w:val="left"/>'
                       f'<w:pPr><w:ind w:left="{360 * (depth + 1) + 360}" w:hanging="360"/></w:pPr></w:lvl>')
        abstract += f'<w:abstractNum w:abstractNumId="{k}"><w:multiLevelType w:val="multilevel"/>{levels}</w:abstractNum>'
        nums += f'<w:num w:numId="{k + 1}"><w:abstractNumId w:val="{k}"/></w:num>'
    return HEAD + f"<w:numbering {NS}>{abstract}{nums}</w:numbering>".encode()


def picture(id, number, width, height):
    a = "http://schemas.openxmlformats.org/drawingml/2006/main"
    wp = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
    pic = "http://schemas.openxmlformats.org/drawingml/2006/picture"
    return (f'<w:drawing {NS} xmlns:a="{a}" xmlns:wp="{wp}" xmlns:pic="{pic}" xmlns:r="{R}"><wp:inline distT="0" distB="0" distL="0" distR="0">'
            f'<wp:extent cx="{width}" cy="{height}"/><wp:docPr id="{number}" name="Picture {number}"/>'
            f'<wp:cNvGraphicFramePr><a:graphicFrameLocks noChangeAspect="1"/></wp:cNvGraphicFramePr><a:graphic><a:graphicData uri="{pic}"><pic:pic>'
            f'<pic:nvPicPr><pic:cNvPr id="{number}" name="Picture {number}"/><pic:cNvPicPr/></pic:nvPicPr><pic:blipFill><a:blip r:embed="{id}"/>'
            f'<a:stretch><a:fillRect/></a:stretch></pic:blipFill><pic:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="{width}" cy="{height}"/></a:xfrm>'
            '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom></pic:spPr></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing>')
