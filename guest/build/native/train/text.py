"""Training: strings, patterns, and the formats that programs read and write."""
import base64
import bz2
import csv
import difflib
import hashlib
import html
import io
import json
import pickle
import random
import re
import string
import struct
import textwrap
import unicodedata
import urllib.parse
import xml.etree.ElementTree as ElementTree
import zlib

random.seed(20250102)
NAMES = ["".join(random.choices(string.ascii_lowercase, k=random.randint(2, 10))) for _ in range(1500)]
PROSE = " ".join(name.capitalize() + ("." if i % 11 == 0 else "") for i, name in enumerate(NAMES))


def words():
    counts, index = {}, {}
    for at, word in enumerate(PROSE.lower().replace(".", "").split()):
        counts[word] = counts.get(word, 0) + 1
        index.setdefault(word[0], []).append(at)
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:20]
    lines = [f"{word:<12}|{count:>4}|{'#' * count}" for word, count in top]
    return "\n".join(lines), max(index, key=lambda letter: len(index[letter]))


def strings():
    out = []
    for i, name in enumerate(NAMES):
        out.append(name.upper() if i % 2 else name[::-1])
        if name.startswith(("a", "b")) or name.endswith("e") or "th" in name:
            out.append(name.center(20, "*").strip("*").title())
        out.append("%s-%05d-%.2f" % (name, i, i / 3))
        out.append("{0}:{1!r:>12}".format(i, name))
    joined = ",".join(out)
    parts = joined.split(",")
    caesar = joined.translate(str.maketrans(string.ascii_lowercase, string.ascii_lowercase[3:] + "abc"))
    is_palindrome = [w for w in parts if w == w[::-1]]
    vowels = sum(1 for c in joined if c in "aeiou")
    built = ""
    for c in joined[:4000]:
        built += chr((ord(c) + 1) % 128)
    return len(caesar), is_palindrome, vowels, joined.count("a"), joined.find("zzz"), built.isalpha(), joined.encode().decode("utf-8"), PROSE.partition("."), PROSE.splitlines()


def foreign():
    text = "Größe naïve Ελλάδα 日本語 🙂 Москва " * 60
    data = text.encode("utf-8")
    return (data.decode("utf-8") == text, text.casefold(), unicodedata.normalize("NFD", text), text.encode("utf-16"), text.encode("ascii", "replace"),
            "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)), [c for c in text if c.isupper()])


def patterns():
    log = "\n".join(f"2025-{i % 12 + 1:02d}-{i % 28 + 1:02d}T10:{i % 60:02d}:00 {['INFO', 'WARN', 'ERROR'][i % 3]} [{name}] took {i * 37 % 911}ms path=/api/v{i % 3}/{name}?q={i}" for i, name in enumerate(NAMES[:600]))
    line = re.compile(r"^(?P<when>\d{4}-\d\d-\d\dT[\d:]+) (?P<level>[A-Z]+) \[(?P<who>\w+)\] took (?P<ms>\d+)ms", re.MULTILINE)
    slow = {m["who"]: int(m["ms"]) for m in line.finditer(log) if m["level"] != "INFO"}
    tokens = re.findall(r"\s*(?:(\d+\.?\d*)|([A-Za-z_]\w*)|(.))", "x1 = 3.14 * (radius ** 2) + foo_bar(7, 'q')" * 30)
    return (len(slow), len(tokens), re.sub(r"(\w+)=(\w+)", lambda m: m[2] + "=" + m[1], log), re.split(r"[\s/?=&]+", log), re.fullmatch(r"[a-z]+", "abc"),
            re.sub(r"\s+", " ", log), re.findall(r"(?i)error|warn", log), re.search(r"(a|b)*c", "ab" * 50), [bool(re.match(r"^\+?\d{1,3}(-\d{2,4}){2,3}$", n)) for n in ("+1-202-5550", "49-30-123-4567")] * 50)


def documents():
    tree = {"users": [{"name": name, "age": i % 90, "score": i / 7, "tags": [name[:2], name[-2:]], "active": i % 2 == 0, "boss": None, "note": 'say "hi"\n\u00e9'} for i, name in enumerate(NAMES[:250])]}
    compact = json.dumps(tree, separators=(",", ":"))
    pretty = json.dumps(tree, indent=2, sort_keys=True)
    assert json.loads(compact) == json.loads(pretty) == tree
    try:
        json.loads(compact[:-3])
    except json.JSONDecodeError as error:
        str(error)
    return json.dumps(tree, ensure_ascii=False), [json.loads(json.dumps(u)) for u in tree["users"][:60]]


def tables():
    file = io.StringIO()
    writer = csv.DictWriter(file, ["name", "n", "quote"])
    writer.writeheader()
    writer.writerows({"name": name, "n": i, "quote": 'a "b", c' if i % 5 == 0 else "plain"} for i, name in enumerate(NAMES[:800]))
    file.seek(0)
    rows = list(csv.DictReader(file))
    total = sum(int(row["n"]) for row in rows if row["quote"] != "plain")
    groups = {}
    for row in csv.reader(file.getvalue().splitlines()):
        groups.setdefault(row[0][:1], []).append(row)
    return total, len(groups)


def bytes_():
    data = PROSE.encode() * 3
    packed = zlib.compress(data, 6)
    assert zlib.decompress(packed) == data and bz2.decompress(bz2.compress(data[:20000])) == data[:20000]
    digests = [hashlib.new(name, data).hexdigest() for name in ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b")]
    chain = b""
    for _ in range(300):
        chain = hashlib.sha256(chain + b"block").digest()
    records = b"".join(struct.pack("<IhdB3s", i, -i, i / 3, i % 256, b"abc") for i in range(500))
    numbers = [sum(r[:2]) for r in struct.iter_unpack("<IhdB3s", records)]
    key = bytes(a ^ b for a, b in zip(data[:3000], data[1:3001]))
    return digests, zlib.crc32(data), zlib.adler32(data), base64.b64decode(base64.b64encode(data)) == data, key.hex(), bytes.fromhex(chain.hex()), sum(data), numbers[-1], memoryview(data)[10:20].tolist(), bytearray(data[:100]).replace(b"a", b"bb")


def formats():
    page = "<list>" + "".join(f'<item id="{i}"><name>{name}</name><n>{i}</n></item>' for i, name in enumerate(NAMES[:250])) + "</list>"
    root = ElementTree.fromstring(page)
    found = {item.get("id"): item.findtext("name") for item in root.iter("item")}
    urls = [urllib.parse.urlsplit(f"https://example.org:80/{urllib.parse.quote(name + ' é')}?{urllib.parse.urlencode({'q': name, 'n': i})}#x") for i, name in enumerate(NAMES[:150])]
    queries = [urllib.parse.parse_qs(url.query) for url in urls]
    copies = pickle.loads(pickle.dumps((found, queries, [NAMES, {1: (2, 3.5)}, {4, 5}, b"bytes"])))
    diff = list(difflib.unified_diff(NAMES[:100], NAMES[5:105], lineterm=""))
    close = difflib.get_close_matches(NAMES[3], NAMES[:200])
    wrapped = textwrap.fill(PROSE, 72), textwrap.dedent("\n".join("    " + n for n in NAMES[:50])), textwrap.shorten(PROSE, 50)
    filled = string.Template("$name is $n").substitute(name="x", n=3)
    return len(copies), ElementTree.tostring(root), diff, close, wrapped, filled, html.unescape(html.escape(page))


for _ in range(4):
    words(), strings(), foreign(), patterns(), documents(), tables(), bytes_(), formats()
