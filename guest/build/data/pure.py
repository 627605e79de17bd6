"""Compiles the Python part of what was installed: pure.py INSTALLED LIB.

As stdlib.py does for the standard library; tests and what is for compilers stay out.
"""
import os
import py_compile
import sys

installed, lib = sys.argv[1:]
LEFT_OUT = {"tests", "f2py", "distutils", "_pyinstaller", "__pycache__"}
count = 0
for folder, folders, files in os.walk(installed):
    folders[:] = sorted(f for f in folders if f not in LEFT_OUT)
    where, found, inside = folder.partition("-packages/")
    for file in sorted(files) if found else ():
        if file.endswith(".py"):
            name = os.path.join(inside, file)
            target = os.path.join(lib, name + "c")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            py_compile.compile(os.path.join(folder, file), target, dfile="/lib/python/" + name, doraise=True,
                               invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
            count += 1
print(count, "modules")
