"""Finds what the extension modules of a build are made of.

link.py BUILD SOURCE LIST: goes through BUILD, where compile.sh wrote down in place of
each shared library what would go into it. Writes to SOURCE the C function that registers
all of the modules with the interpreter, and to LIST the objects and archives to link,
those with the same content once.
"""
import hashlib
import os
import sys

build, source, wanted = sys.argv[1:]
modules, files, known = [], [], set()
for folder, folders, names in os.walk(build):
    folders.sort()
    for name in sorted(names):
        module = name.split(".")[0]
        # What only numpy's own tests of its C use stays out.
        if not name.endswith(".so") or "test" in module or module == "_simd":
            continue
        modules.append((os.path.relpath(folder, build).replace(os.sep, ".") + "." + module, module))
        with open(os.path.join(folder, name), encoding="utf-8") as made_of:
            for path in made_of.read().splitlines():
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).digest()
                if digest not in known:
                    known.add(digest)
                    files.append(path)

with open(source, "w", encoding="utf-8") as out:
    out.write("#include <Python.h>\n\n")
    for _, module in modules:
        out.write(f"PyMODINIT_FUNC PyInit_{module}(void);\n")
    out.write("\nvoid pd_register_modules(void)\n{\n")
    for full, module in modules:
        out.write(f'    PyImport_AppendInittab("{full}", PyInit_{module});\n')
    out.write("}\n")
with open(wanted, "w", encoding="utf-8") as out:
    out.writelines(path + "\n" for path in files)
print(len(modules), "modules of", len(files), "objects")
