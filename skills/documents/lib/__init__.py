"""Word, Excel, PowerPoint and PDF: each name is imported when it is first used."""
from importlib import import_module as _import

_MODULES = {"docx", "pptx", "xlsx", "pdf"}
_NAMES = {
    "Document": "docx", "Presentation": "pptx",
    "Workbook": "xlsx", "load_workbook": "xlsx", "openpyxl": "xlsx",
    "PdfReader": "pdf", "PdfWriter": "pdf", "pypdf": "pdf", "reportlab": "pdf",
    "Inches": "_package", "Cm": "_package", "Mm": "_package", "Pt": "_package", "Emu": "_package", "RGBColor": "_package",
    "DocumentError": "_package",
}
__all__ = sorted(_MODULES | set(_NAMES))


def to_text(path):
    """A document's text, whatever kind it is of: Markdown for docx, pptx and xlsx, plain text for pdf."""
    with open(path, "rb") as f:
        head = f.read(1024)
    if b"%PDF-" in head:
        return _import(__name__ + ".pdf").to_text(path)
    kind = _import(__name__ + "._package").kind_of(path)
    return _import(f"{__name__}.{kind}").to_markdown(path)


def __getattr__(name):
    if name in _MODULES:
        return _import(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(_import(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"skills.documents has no {name!r}; it has {', '.join(__all__)} and to_text")
