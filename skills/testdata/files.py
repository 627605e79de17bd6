"""Looking for files and in them, and changing them."""
import os

from skills.files import diff, digest, duplicates, find, grep, head, human, read, replace, tail, text_diff, tree, usage

for name, data in {"t/a.py": "import os\nTODO x\n", "t/src/b.py": "y = 1\r\n# todo\r\n", "t/src/deep/c.txt": "one\ntwo\nthree", "t/.git/config": "TODO", "t/.hidden": "TODO",
                   "t/node_modules/m.py": "TODO", "t/u16.txt": "", "t/bin": "", "t/empty": "", "t/sp ace.py": "one"}.items():
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w", newline="") as f:
        f.write(data)
with open("t/u16.txt", "wb") as f:
    f.write("ünï TODO\n".encode("utf-16"))
with open("t/bin", "wb") as f:
    f.write(b"TODO\0\1")

assert find("*.py", "t") == ["a.py", "sp ace.py", "src/b.py"]
assert find("**/*.{py,txt}", "t") == ["a.py", "sp ace.py", "src/b.py", "src/deep/c.txt", "u16.txt"] and find("src/*", "t") == ["src/b.py"]
assert find("[!a]*.py", "t") == ["sp ace.py", "src/b.py"] and find(["*.txt", "bin"], "t", exclude="u*") == ["bin", "src/deep/c.txt"]
assert find(path="t", kind="folder") == ["src", "src/deep"] and find("config", "t", hidden=True) == [".git/config"]
assert find(path="t", max_size=0) == ["empty"] and find("c.txt", "t", newer=1) == ["src/deep/c.txt"] and find("c.txt", "t", older=1) == []
assert len(find(path="t", limit=2)) == 2

found = grep("todo", "t", ignore_case=True, context=1)
assert [str(m) for m in found] == ["a.py:2:TODO x", "src/b.py:2:# todo", "u16.txt:1:ünï TODO"] and found[0]["before"] == ["import os"]
assert grep("x", "t/a.py")[0].line == 2 and grep("(", "t", fixed=True) == [] and grep("TODO", "t", glob="src/**", limit=1) == []
assert read("t/bin") is None and read("t/u16.txt") == "ünï TODO\n"

drawn = tree("t", depth=2)
assert drawn.splitlines()[:4] == ["t/", "├── src/", "│   ├── deep/", "│   └── b.py"] and "c.txt" not in drawn and "node_modules" not in drawn, drawn
assert tree("t", limit=2).endswith("…") and "(6 B" not in drawn and "6 B" in tree("t", sizes=True) and human(1536) == "1.5 KiB" and human(5 << 40) == "5120.0 GiB"

assert replace("one", "1", "t", dry_run=True) == {"sp ace.py": 1, "src/deep/c.txt": 1} and open("t/sp ace.py").read() == "one"
assert replace(r"t(w)o", r"\1", "t", glob="*.txt") == {"src/deep/c.txt": 1} and open("t/src/deep/c.txt").read() == "one\nw\nthree"
assert replace("y = 1", r"z\1", "t/src/b.py", fixed=True) == {"t/src/b.py": 1} and open("t/src/b.py", "rb").read() == b"z\\1\r\n# todo\r\n"

assert text_diff("a\nb\n", "a\nc\n") == "--- before\n+++ after\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n" and text_diff("a", "a") == ""
assert diff("t/a.py", "t/a.py") == "" and "-import os" in diff("t/a.py", "t/src/b.py") and "no text" in diff("t/bin", "t/a.py")
os.makedirs("v/src", exist_ok=True)
with open("v/a.py", "w") as f:
    f.write("import os\nTODO y\n")
assert "+TODO y" in diff("t", "v") and "+++ /dev/null" in diff("t", "v")

assert head("t/src/deep/c.txt", 2) == "one\nw\n" and tail("t/src/deep/c.txt", 2) == "w\nthree" and tail("t/empty") == "" and tail("t/a.py", 0) == ""
with open("long", "w") as f:
    f.writelines(f"line {k}\n" for k in range(50_000))
assert tail("long", 2) == "line 49998\nline 49999\n" and len(tail("long", 20_000).splitlines()) == 20_000
with open("t/same", "w") as f:
    f.write("one")
assert duplicates("t") == [["same", "sp ace.py"]] and digest("t/same") == digest("t/sp ace.py")
assert usage("t", 1)[0] == (35, "src/") or usage("t", 1)[0][1].endswith("/"), usage("t")
print("files: fine")
