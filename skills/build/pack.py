"""Packs other people's Python into one zip that is imported as it is.

pack.py SOURCES OUT: takes the packages below out of the folder SOURCES, with each
module as source, for any Python, and compiled, for the guest's. The archive
depends on what is in it alone.
"""
import importlib.util
import marshal
import os
import sys
import zipfile

sources, out = sys.argv[1:]
DEBIAN = "usr/lib/python3/dist-packages/"

# Where each package lies, and what of it no program needs.
PACKAGES = [
    ("pypdf/pypdf", "pypdf", ()),
    ("openpyxl/openpyxl", "openpyxl", ("tests/", "develop/")),
    ("python-et-xmlfile/et_xmlfile", "et_xmlfile", ("tests/", "_lxml")),
    ("python3-reportlab/" + DEBIAN + "reportlab", "reportlab", ("fonts/", "graphics/samples/", "graphics/testdrawings", "graphics/testshapes", "lib/testutils")),
]
OTHERS = [
    ("fonts-dejavu-core/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts/DejaVuSans.ttf"),
    ("fonts-dejavu-core/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf", "fonts/DejaVuSans-Bold.ttf"),
    ("pypdf/LICENSE", "licenses/pypdf"),
    ("openpyxl/LICENCE.rst", "licenses/openpyxl"),
    ("python-et-xmlfile/LICENCE.rst", "licenses/et_xmlfile"),
    ("python-et-xmlfile/LICENCE.python", "licenses/et_xmlfile.python"),
    ("python3-reportlab/usr/share/doc/python3-reportlab/copyright", "licenses/reportlab"),
    ("fonts-dejavu-core/usr/share/doc/fonts-dejavu-core/copyright", "licenses/dejavu"),
]


def read(path):
    with open(os.path.join(sources, path), "rb") as f:
        return f.read()


def compiled(source, name):
    """A .pyc that is taken without a look at its source, as the standard library's are."""
    code = compile(source, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source) + marshal.dumps(code)


files = {}
for folder, name, left_out in PACKAGES:
    root = os.path.join(sources, folder)
    for at, _, names in os.walk(root):
        for file in names:
            path = os.path.relpath(os.path.join(at, file), root)
            if not file.endswith((".py", ".xml", ".json")) or path.startswith(left_out) or "/tests/" in path:
                continue
            data = read(os.path.join(folder, path))
            files[f"{name}/{path}"] = data
            if file.endswith(".py"):
                files[f"{name}/{path}c"] = compiled(data, f"{name}/{path}")
for path, name in OTHERS:
    files[name] = read(path)

with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
    for name in sorted(files):
        z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), files[name], zipfile.ZIP_DEFLATED, 9)
print(f"paddock: skills: {len(files)} files, {os.path.getsize(out) >> 10} KiB")
