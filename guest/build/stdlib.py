"""Compiles the part of the standard library that the guest carries.

stdlib.py SOURCE OUT BUILD [PATH ...]: compiles SOURCE (CPython's Lib) into
OUT, as .pyc files that are used without looking at their source; adds the
build's sysconfig data with every PATH of this machine taken out of it.
"""
import glob
import os
import py_compile
import sys

source, out, build, *paths = sys.argv[1:]

# What cannot work in the guest, or is of no use to a program in it.
LEFT_OUT = {
    "__pycache__", "config-3.13", "ctypes", "curses", "ensurepip", "idlelib", "lib-dynload", "lib2to3",
    "msilib", "site-packages", "test", "tests", "tkinter", "turtledemo", "venv",
}
LEFT_OUT_FILES = {"antigravity.py", "this.py", "turtle.py"}


def compile_file(path, name):
    target = os.path.join(out, name + "c")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    py_compile.compile(path, target, dfile="/lib/python/" + name, doraise=True,
                       invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


count = 0
for folder, folders, files in os.walk(source):
    folders[:] = sorted(f for f in folders if f not in LEFT_OUT)
    for file in sorted(files):
        if file.endswith(".py") and file not in LEFT_OUT_FILES:
            path = os.path.join(folder, file)
            compile_file(path, os.path.relpath(path, source))
            count += 1

for path in glob.glob(os.path.join(build, "build", "lib.*", "_sysconfigdata_*.py")) + glob.glob(os.path.join(build, "_sysconfigdata_*.py")):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for p in paths:
        text = text.replace(p, "/build")
    clean = os.path.join(out, "sysconfigdata.tmp")
    with open(clean, "w", encoding="utf-8") as f:
        f.write(text)
    compile_file(clean, os.path.basename(path))
    os.unlink(clean)
    count += 1

print(count, "modules")
