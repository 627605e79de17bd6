"""A first program: it runs in a WebAssembly interpreter, isolated."""
import hashlib
import sys

words = ["paddock", "runs", "this", "in", "CPython", sys.version.split()[0]]
print(" ".join(words), "on", sys.platform)
print("sha256:", hashlib.sha256(" ".join(words).encode()).hexdigest()[:16])
