"""Packs pip for the guest: pip.py WHEEL DIR leaves DIR/lib/pip.zip, its modules
compiled and used without looking at their source, and DIR/licenses/pip.
"""
import os
import py_compile
import sys
import zipfile

wheel, out = sys.argv[1:]
os.makedirs(os.path.join(out, "lib"), exist_ok=True)
os.makedirs(os.path.join(out, "licenses"), exist_ok=True)
source, compiled = os.path.join(out, "module.py"), os.path.join(out, "module.pyc")
with zipfile.ZipFile(wheel) as given, zipfile.ZipFile(os.path.join(out, "lib", "pip.zip"), "w") as packed:
    for name in sorted(given.namelist()):
        data = given.read(name)
        if name.endswith((".dist-info/LICENSE.txt", ".dist-info/licenses/LICENSE.txt")):
            with open(os.path.join(out, "licenses", "pip"), "wb") as file:
                file.write(data)
        if not name.startswith("pip/") or name.endswith((".exe", ".pyi", "/")):
            continue
        if name.endswith(".py"):
            with open(source, "wb") as file:
                file.write(data)
            py_compile.compile(source, compiled, dfile="/lib/python/pip.zip/" + name, doraise=True,
                               invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
            with open(compiled, "rb") as file:
                name, data = name + "c", file.read()
        # Nothing is compressed: the pack that it goes into is.
        packed.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
os.unlink(source)
os.unlink(compiled)
