"""Makes importable what packages.zip has: openpyxl, pypdf, reportlab."""
import os
import sys

ARCHIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages.zip")


def find(name):
    """Has a package found, ready for use: the one that is installed, or else the one that
    came along."""
    try:
        package = __import__(name)  # paddock's interpreters find what came along by themselves
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        if not os.path.exists(ARCHIVE):
            raise ImportError(f"{name} is not part of this paddock: it was built without `make skills`") from None
        if ARCHIVE not in sys.path:
            sys.path.append(ARCHIVE)  # last, so that what is installed goes first
        package = __import__(name)
    prepare(name)
    return package


def prepare(name):
    """Makes a package ready that was imported: pictures work in it without Pillow."""
    if name == "openpyxl":
        import openpyxl.drawing.image as drawing
        from . import _picture
        if not drawing.PILImage:
            drawing.PILImage = _picture
            _picture.Image.Image = _picture.Image
    elif name == "reportlab":
        from . import _picture
        with _picture.lend():
            import reportlab.lib.utils as utils
        if utils.Image is _picture:
            _picture.Image.Image = _picture.Image


def data(name):
    """The content of one file of the archive."""
    from zipfile import ZipFile
    with ZipFile(ARCHIVE) as z:
        return z.read(name)
