"""Makes importable what packages.zip has: openpyxl, pypdf, reportlab."""
import os
import sys

ARCHIVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages.zip")


def find(name):
    """Has a package found: the one that is installed, or else the one that came along."""
    if ARCHIVE not in sys.path:
        sys.path.append(ARCHIVE)  # last, so that what is installed goes first
    try:
        return __import__(name)
    except ModuleNotFoundError as error:
        if error.name == name and not os.path.exists(ARCHIVE):
            raise ImportError(f"{name} is not part of this paddock: it was built without `make skills`") from None
        raise


def data(name):
    """The content of one file of the archive."""
    from zipfile import ZipFile
    with ZipFile(ARCHIVE) as z:
        return z.read(name)
