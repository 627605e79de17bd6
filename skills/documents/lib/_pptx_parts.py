"""The parts that a new presentation begins with, and the shapes that are added to one."""
from ._package import HEAD, R, Inches, Package, escape

P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
TYPE = "application/vnd.openxmlformats-officedocument.presentationml."
NS = f'xmlns:a="{A}" xmlns:r="{R}" xmlns:p="{P}"'
TREE = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="0" cy="0"/><a:chOff x="0" y="0"/><a:chExt cx="0" cy="0"/></a:xfrm></p:grpSpPr>'

# The placeholders of each layout: type, index, name, and left, top, width and height in inches.
TITLE = ("title", None, "Title", 0.92, 0.4, 11.5, 1.2)
LAYOUTS = [
    ("Title Slide", "title", [("ctrTitle", None, "Title", 1.67, 1.23, 10, 2.6), ("subTitle", 1, "Subtitle", 1.67, 3.94, 10, 1.8)]),
    ("Title and Content", "obj", [TITLE, (None, 1, "Content", 0.92, 1.8, 11.5, 5)]),
    ("Section Header", "secHead", [("title", None, "Title", 0.9, 1.87, 11.5, 3.1), ("body", 1, "Text", 0.9, 5.02, 11.5, 1.6)]),
    ("Two Content", "twoObj", [TITLE, (None, 1, "Content Left", 0.92, 1.8, 5.65, 5), (None, 2, "Content Right", 6.77, 1.8, 5.65, 5)]),
    ("Comparison", "twoTxTwoObj", [TITLE, ("body", 1, "Text Left", 0.92, 1.7, 5.65, 0.8), (None, 2, "Content Left", 0.92, 2.6, 5.65, 4.2),
                                   ("body", 3, "Text Right", 6.77, 1.7, 5.65, 0.8), (None, 4, "Content Right", 6.77, 2.6, 5.65, 4.2)]),
    ("Title Only", "titleOnly", [TITLE]),
    ("Blank", "blank", []),
    ("Content with Caption", "objTx", [("title", None, "Title", 0.92, 0.5, 4.3, 1.75), (None, 1, "Content", 5.67, 1.08, 6.75, 5.3), ("body", 2, "Text", 0.92, 2.25, 4.3, 4.2)]),
    ("Picture with Caption", "picTx", [("title", None, "Title", 0.92, 0.5, 4.3, 1.75), ("pic", 1, "Picture", 5.67, 1.08, 6.75, 5.3), ("body", 2, "Text", 0.92, 2.25, 4.3, 4.2)]),
]


def quoted(text):
    return escape(str(text), True)


def xfrm(left, top, width, height, tag="a:xfrm"):
    return f'<{tag}><a:off x="{round(left)}" y="{round(top)}"/><a:ext cx="{round(width)}" cy="{round(height)}"/></{tag}>'


# How the text of a layout's placeholder differs from the master's.
PLAIN = '<a:lvl1pPr marL="0" indent="0"%s><a:buNone/></a:lvl1pPr>'
LOOKS = {"ctrTitle": '<a:lvl1pPr algn="ctr"><a:defRPr sz="6000"/></a:lvl1pPr>', "subTitle": PLAIN % ' algn="ctr"', "body": PLAIN % "", "pic": PLAIN % ""}


def placeholder(number, kind, idx, name, place=None, text="", look=""):
    which = (f' type="{quoted(kind)}"' if kind else "") + (f' idx="{idx}"' if idx is not None else "")
    return (f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="{quoted(name)}"/><p:cNvSpPr><a:spLocks noGrp="1"/></p:cNvSpPr><p:nvPr><p:ph{which}/></p:nvPr></p:nvSpPr>'
            f'<p:spPr>{xfrm(*map(Inches, place)) if place else ""}</p:spPr><p:txBody><a:bodyPr/><a:lstStyle>{look}</a:lstStyle><a:p>{text}</a:p></p:txBody></p:sp>')


def prompt(text):
    return f'<a:r><a:rPr lang="en-US"/><a:t>{text}</a:t></a:r>'


def slide(shapes):
    """A slide with the placeholders of a layout's shapes."""
    out, number = "", 2
    for s in shapes:
        if s.is_placeholder and s.placeholder_type not in ("dt", "ftr", "sldNum"):
            ph = s._placeholder
            out += placeholder(number, ph.get("type"), ph.get("idx"), f"{s.name} {number - 1}")
            number += 1
    return HEAD + f'<p:sld {NS}><p:cSld><p:spTree>{TREE}{out}</p:spTree></p:cSld><p:clrMapOvr><a:masterClrMapping/></p:clrMapOvr></p:sld>'.encode()


def layout(name, kind, placeholders):
    shapes = "".join(placeholder(k, t, i, n, place, prompt("Click to edit"), LOOKS.get(t, "")) for k, (t, i, n, *place) in enumerate(placeholders, 2))
    kind = "" if kind is None else f' type="{kind}"'
    return HEAD + (f'<p:sldLayout {NS}{kind} preserve="1"><p:cSld name="{name}"><p:spTree>{TREE}{shapes}</p:spTree></p:cSld>'
                   '<p:clrMapOvr><a:masterClrMapping/></p:clrMapOvr></p:sldLayout>').encode()


def levels(sizes, bullets):
    out = ""
    for k, size in enumerate(sizes, 1):
        left = 228600 + 457200 * (k - 1)
        place = f'marL="{left}" indent="-228600"' if bullets else 'marL="0" indent="0"'
        mark = '<a:buFont typeface="Arial"/><a:buChar char="•"/>' if bullets else "<a:buNone/>"
        out += (f'<a:lvl{k}pPr {place} algn="l" defTabSz="914400" rtl="0" eaLnBrk="1" latinLnBrk="0" hangingPunct="1"><a:lnSpc><a:spcPct val="90000"/></a:lnSpc>'
                f'<a:spcBef><a:spcPts val="{1000 if k == 1 else 500}"/></a:spcBef>{mark}<a:defRPr sz="{size}" kern="1200"><a:solidFill><a:schemeClr val="tx1"/></a:solidFill>'
                f'<a:latin typeface="+m{"n" if bullets else "j"}-lt"/><a:ea typeface="+mn-ea"/><a:cs typeface="+mn-cs"/></a:defRPr></a:lvl{k}pPr>')
    return out


def master(rels):
    shapes = placeholder(2, "title", None, "Title", TITLE[3:], prompt("Click to edit")) + placeholder(3, "body", 1, "Text", (0.92, 1.8, 11.5, 5), prompt("Click to edit"))
    shapes = shapes.replace("<a:bodyPr/>", '<a:bodyPr vert="horz" lIns="91440" tIns="45720" rIns="91440" bIns="45720" rtlCol="0" anchor="ctr"><a:normAutofit/></a:bodyPr>', 1)
    shapes = shapes.replace("<a:bodyPr/>", '<a:bodyPr vert="horz" lIns="91440" tIns="45720" rIns="91440" bIns="45720" rtlCol="0"><a:normAutofit/></a:bodyPr>', 1)
    ids = "".join(f'<p:sldLayoutId id="{2147483649 + k}" r:id="{id}"/>' for k, id in enumerate(rels))
    return HEAD + (f'<p:sldMaster {NS}><p:cSld><p:bg><p:bgRef idx="1001"><a:schemeClr val="bg1"/></p:bgRef></p:bg><p:spTree>{TREE}{shapes}</p:spTree></p:cSld>{COLORS}'
                   f'<p:sldLayoutIdLst>{ids}</p:sldLayoutIdLst><p:txStyles><p:titleStyle>{levels([4400], False)}</p:titleStyle>'
                   f'<p:bodyStyle>{levels([2800, 2400, 2000, 1800, 1800, 1800, 1800, 1800, 1800], True)}</p:bodyStyle><p:otherStyle><a:defPPr><a:defRPr lang="en-US"/></a:defPPr></p:otherStyle>'
                   "</p:txStyles></p:sldMaster>").encode()


COLORS = ('<p:clrMap bg1="lt1" tx1="dk1" bg2="lt2" tx2="dk2" accent1="accent1" accent2="accent2" accent3="accent3" accent4="accent4" accent5="accent5" '
          'accent6="accent6" hlink="hlink" folHlink="folHlink"/>')
SCHEME = {"dk1": "000000", "lt1": "FFFFFF", "dk2": "1F3864", "lt2": "E7E6E6", "accent1": "2F5597", "accent2": "C55A11", "accent3": "7F7F7F",
          "accent4": "BF9000", "accent5": "2E75B6", "accent6": "548235", "hlink": "0563C1", "folHlink": "954F72"}


def theme():
    colors = "".join(f'<a:{n}><a:srgbClr val="{v}"/></a:{n}>' for n, v in SCHEME.items())
    font = lambda name: f'<a:latin typeface="{name}"/><a:ea typeface=""/><a:cs typeface=""/>'
    fill = '<a:solidFill><a:schemeClr val="phClr"/></a:solidFill>'
    line = "".join(f'<a:ln w="{width}" cap="flat" cmpd="sng" algn="ctr">{fill}<a:prstDash val="solid"/></a:ln>' for width in (6350, 12700, 19050))
    effect = "<a:effectStyle><a:effectLst/></a:effectStyle>" * 3
    return HEAD + (f'<a:theme xmlns:a="{A}" name="paddock"><a:themeElements><a:clrScheme name="paddock">{colors}</a:clrScheme>'
                   f'<a:fontScheme name="paddock"><a:majorFont>{font("Calibri Light")}</a:majorFont><a:minorFont>{font("Calibri")}</a:minorFont></a:fontScheme>'
                   f'<a:fmtScheme name="paddock"><a:fillStyleLst>{fill * 3}</a:fillStyleLst><a:lnStyleLst>{line}</a:lnStyleLst><a:effectStyleLst>{effect}</a:effectStyleLst>'
                   f'<a:bgFillStyleLst>{fill * 3}</a:bgFillStyleLst></a:fmtScheme></a:themeElements></a:theme>').encode()


TABLE = "{5C22544A-7EE6-4342-B048-85BDC9FD1C3A}"  # the format's own "Medium Style 2 - Accent 1"
THEME = "application/vnd.openxmlformats-officedocument.theme+xml"


def new():
    package = Package()
    package.add("ppt/presentation.xml", b"", TYPE + "presentation.main+xml")
    package.rels().add("officeDocument", "ppt/presentation.xml")
    package.add("ppt/theme/theme1.xml", theme(), THEME)
    package.add("ppt/tableStyles.xml", HEAD + f'<a:tblStyleLst xmlns:a="{A}" def="{TABLE}"/>'.encode(), TYPE + "tableStyles+xml")
    package.rels("ppt/presentation.xml").add("tableStyles", "ppt/tableStyles.xml")
    main, rels = "ppt/slideMasters/slideMaster1.xml", []
    for k, (name, kind, placeholders) in enumerate(LAYOUTS, 1):
        part = package.add(f"ppt/slideLayouts/slideLayout{k}.xml", layout(name, kind, placeholders), TYPE + "slideLayout+xml")
        rels.append(package.rels(main).add("slideLayout", part))
        package.rels(part).add("slideMaster", main)
    package.rels(main).add("theme", "ppt/theme/theme1.xml")
    package.add(main, master(rels), TYPE + "slideMaster+xml")
    id = package.rels("ppt/presentation.xml").add("slideMaster", main)
    package.rels("ppt/presentation.xml").add("theme", "ppt/theme/theme1.xml")
    package.add("ppt/presentation.xml", HEAD + (
        f'<p:presentation {NS}><p:sldMasterIdLst><p:sldMasterId id="2147483648" r:id="{id}"/></p:sldMasterIdLst><p:sldIdLst/>'
        f'<p:sldSz cx="{Inches(13.333)}" cy="{Inches(7.5)}"/><p:notesSz cx="6858000" cy="9144000"/></p:presentation>').encode())
    return package


def add_notes(package, presentation, slide):
    """Adds a page of notes to a slide; gives its part."""
    rels = package.rels(presentation)
    found = rels.of_kind("notesMaster")
    if not found:
        part = package.add(package.free("ppt/notesMasters/notesMaster%d.xml"), HEAD + (
            f'<p:notesMaster {NS}><p:cSld><p:bg><p:bgRef idx="1001"><a:schemeClr val="bg1"/></p:bgRef></p:bg><p:spTree>{TREE}'
            f'{placeholder(2, "sldImg", 2, "Slide Image", (0.75, 1.25, 6, 3.375))}{placeholder(3, "body", 3, "Notes", (0.75, 4.8, 6, 4))}</p:spTree></p:cSld>{COLORS}'
            f'<p:notesStyle>{levels([1200], False)}</p:notesStyle></p:notesMaster>').encode(), TYPE + "notesMaster+xml")
        package.rels(part).add("theme", package.add(package.free("ppt/theme/theme%d.xml"), theme(), THEME))
        id = rels.add("notesMaster", part)
        root = package.tree(presentation)
        from ._pptx_shapes import made, p
        root.insert(1 if root.find(p("sldMasterIdLst")) is not None else 0, made(f'<p:notesMasterIdLst><p:notesMasterId r:id="{id}"/></p:notesMasterIdLst>'))
        found = [(id, part)]
    image = ('<p:sp><p:nvSpPr><p:cNvPr id="2" name="Slide Image 1"/><p:cNvSpPr><a:spLocks noGrp="1" noRot="1" noChangeAspect="1"/></p:cNvSpPr><p:nvPr><p:ph type="sldImg"/></p:nvPr></p:nvSpPr><p:spPr/></p:sp>')
    part = package.add(package.free("ppt/notesSlides/notesSlide%d.xml"), HEAD + (
        f'<p:notes {NS}><p:cSld><p:spTree>{TREE}{image}{placeholder(3, "body", 1, "Notes 2")}</p:spTree></p:cSld><p:clrMapOvr><a:masterClrMapping/></p:clrMapOvr></p:notes>').encode(),
        TYPE + "notesSlide+xml")
    package.rels(part).add("notesMaster", found[0][1])
    package.rels(part).add("slide", slide)
    return part


def textbox(*place):
    return (f'<p:sp><p:nvSpPr><p:cNvPr id="%ID%" name="TextBox %ID%"/><p:cNvSpPr txBox="1"/><p:nvPr/></p:nvSpPr><p:spPr>{xfrm(*place)}<a:prstGeom prst="rect"><a:avLst/></a:prstGeom>'
            '<a:noFill/></p:spPr><p:txBody><a:bodyPr wrap="square"><a:spAutoFit/></a:bodyPr><a:lstStyle/><a:p/></p:txBody></p:sp>')


def shape(kind, *place):
    return (f'<p:sp><p:nvSpPr><p:cNvPr id="%ID%" name="Shape %ID%"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr>{xfrm(*place)}<a:prstGeom prst="{quoted(kind)}"><a:avLst/></a:prstGeom>'
            '<a:solidFill><a:schemeClr val="accent1"/></a:solidFill></p:spPr><p:txBody><a:bodyPr rtlCol="0" anchor="ctr"/><a:lstStyle/>'
            '<a:p><a:pPr algn="ctr"><a:defRPr><a:solidFill><a:schemeClr val="lt1"/></a:solidFill></a:defRPr></a:pPr></a:p></p:txBody></p:sp>')


def picture(id, *place):
    return (f'<p:pic><p:nvPicPr><p:cNvPr id="%ID%" name="Picture %ID%"/><p:cNvPicPr><a:picLocks noChangeAspect="1"/></p:cNvPicPr><p:nvPr/></p:nvPicPr>'
            f'<p:blipFill><a:blip r:embed="{id}"/><a:stretch><a:fillRect/></a:stretch></p:blipFill><p:spPr>{xfrm(*place)}<a:prstGeom prst="rect"><a:avLst/></a:prstGeom></p:spPr></p:pic>')


def table(rows, columns, left, top, width, height):
    cell = "<a:tc><a:txBody><a:bodyPr/><a:lstStyle/><a:p/></a:txBody><a:tcPr/></a:tc>"
    row = f'<a:tr h="{round(height / max(rows, 1))}">{cell * columns}</a:tr>'
    grid = f'<a:gridCol w="{round(width / max(columns, 1))}"/>' * columns
    return (f'<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="%ID%" name="Table %ID%"/><p:cNvGraphicFramePr><a:graphicFrameLocks noGrp="1"/></p:cNvGraphicFramePr><p:nvPr/></p:nvGraphicFramePr>'
            f'{xfrm(left, top, width, height, "p:xfrm")}<a:graphic><a:graphicData uri="http://schemas.openxmlformats.org/drawingml/2006/table"><a:tbl>'
            f'<a:tblPr firstRow="1" bandRow="1"><a:tableStyleId>{TABLE}</a:tableStyleId></a:tblPr><a:tblGrid>{grid}</a:tblGrid>{row * rows}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>')
