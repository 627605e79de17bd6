"""Tables, JSON and XML."""
import json
import math
import os
import sqlite3

from skills.data import Table, XMLError, flatten, from_xml, get, json_lines, number, paths, query, read, table, to_xml


def refused(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError("it is not refused")


assert [number(x) for x in ("1", "-2", "007", "1.5", "1e3", ".5", "abc", "", "1,5", "123456789012345678901", "nan", None)] == \
    [1, -2, "007", 1.5, 1000.0, 0.5, "abc", "", "1,5", "123456789012345678901", "nan", None]


def written(name, data):
    with open(name, "wb") as f:
        f.write(data)
    return read(name)


assert written("a.csv", b'a,b\n1,"x, y"\n2,"q""\nz"\n') == [{"a": 1, "b": "x, y"}, {"a": 2, "b": 'q"\nz'}]
assert written("b.csv", "\ufeffä;b\r\n1,5;2\r\n".encode()) == [{"ä": "1,5", "b": 2}]
assert written("c.csv", "ä;b\n1;2\n".encode("cp1252")) == [{"ä": 1, "b": 2}]
assert written("d.csv", "a\tb\n1\t2\n".encode("utf-16")) == [{"a": 1, "b": 2}]
assert written("e.csv", b"a,a,\n1,2,3,4\n5\n") == [{"a": 1, "a_2": 2, "column 3": 3, "column 4": 4}, {"a": 5, "a_2": None, "column 3": None, "column 4": None}]
assert written("f.csv", b"") == [] and written("g.csv", b"a,b\n") == [] and read("a.csv", numbers=False)[0]["a"] == "1"
assert read("a.csv", columns=["x", "y"])[0] == {"x": "a", "y": "b"}
assert written("a.jsonl", b'{"a": 1}\n\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]
assert written("a.json", b'{"n": 2, "data": {"x": 1, "items": [{"a": 1}]}}'[:0] + b'{"items": [{"a": 1}]}') == [{"a": 1}]
assert written("a.xml", b"<f><i n='1'><t>a</t></i><i n='2'/></f>") == [{"@n": "1", "t": "a"}, {"@n": "2"}]
with open("n.json", "w") as f:
    json.dump({"a": [{"x": 1}], "b": [{"y": 2}]}, f)
refused(ValueError, lambda: read("n.json"))
assert read("n.json", at="b") == [{"y": 2}]
base = sqlite3.connect("a.db")
base.execute("create table t (a, b)")
base.execute("insert into t values (1, 'x')")
base.commit()
base.close()
assert read("a.db") == [{"a": 1, "b": "x"}]
os.rename("a.db", "a?b#1%.db")
assert read("a?b#1%.db") == [{"a": 1, "b": "x"}]

t = table([["k", "v", "w"], ["a", 1, 2.0], ["b", 5, None], ["a", 3, ""]])
assert t.columns == ["k", "v", "w"] and t.where(k="a").column("v") == [1, 3] and len(t.where(lambda r: r["v"] > 2)) == 2
assert t.select("v", key="k")[0] == {"v": 1, "key": "a"} and t.drop("w")[0] == {"k": "a", "v": 1}
assert t.sort("-k", "v").column("v") == [5, 1, 3] and t.sort("v", reverse=True).column("v") == [5, 3, 1]
assert t.sort("w").column("w") == [None, 2.0, ""] and t.distinct("k").column("v") == [1, 5]
assert t.group("k", n="count", s=("sum", "v"), m=("mean", "w"), l=("list", "v")) == [{"k": "a", "n": 2, "s": 4, "m": 2.0, "l": [1, 3]}, {"k": "b", "n": 1, "s": 5, "m": None, "l": None}][:1] + [{"k": "b", "n": 1, "s": 5, "m": None, "l": [5]}]
assert t.group(total=("sum", "v")) == [{"total": 9}]
o = table([{"k": "a", "v": "left"}, {"k": "c", "v": "none"}])
assert t.join(o, "k").column("v_2") == ["left", "left"] and len(t.join(o, "k", "left")) == 3 and t.join(o, "k", "outer")[-1] == {"k": "c", "v": None, "w": None, "v_2": "none"}
assert t.pivot("k", "v", "v", "count") == [{"k": "a", "1": 1, "3": 1, "5": None}, {"k": "b", "1": None, "3": None, "5": 1}]
about = t.describe()
assert about.where(column="v")[0] == {"column": "v", "values": 3, "missing": 0, "distinct": 3, "type": "int", "min": 1, "max": 5, "mean": 3.0}
refused(KeyError, lambda: t.column("none"))
refused(ValueError, lambda: t.group("k", x=("none", "v")))
assert t == table(t) and isinstance(t.add(z=1, y=lambda r: r["v"] + 1), Table) and t.add(z=lambda r: r["v"] * 2)[1]["z"] == 10 and "z" not in t[1]
assert str(table([{"a|b": "x\ny"}])) == "| a\\|b |\n| --- |\n| x<br>y |" and "… and 5 more rows" in table({"a": k} for k in range(10)).to_markdown(5)
for name in "w.csv", "w.tsv", "w.json", "w.jsonl":
    t.drop("w").write(name)
    assert read(name) == t.drop("w"), name
t.write("w.xlsx")
assert read("w.xlsx").column("v") == [1, 5, 3]
refused(ValueError, lambda: t.write("w.doc"))
assert query('select k, sum(v) as s from t join o using (k) group by k', t=t.drop("w"), o=o.drop("v")) == [{"k": "a", "s": 4}]
assert query('select "a b" as x from "my t"', **{"my t": [{"a b": [1]}]}) == [{"x": "[1]"}]

doc = {"a": {"b": [{"c": 1}, {"c": 2}, {}]}, "d.e": None}
assert get(doc, "a.b[0].c") == 1 and get(doc, "a.b[-2].c") == 2 and get(doc, "a.b[*].c") == [1, 2] and get(doc, '["d.e"]') is None and get(doc, "x.y", 7) == 7
refused(KeyError, lambda: get(doc, "a.x"))
refused(ValueError, lambda: get(doc, "a..b["))
assert flatten(doc) == {"a.b[0].c": 1, "a.b[1].c": 2, "a.b[2]": {}, "d.e": None} and paths(doc)["a.b[*].c"] == "int"
assert list(json_lines("a.jsonl")) == [{"a": 1}, {"a": 2}]
deep = []
for _ in range(100_000):
    deep = [deep]
assert len(flatten(deep)) == 1
while deep:
    deep = deep[0]

for text in "<a/>", "<a b='1'>x &amp; y</a>", "<a><b>1</b><b/><c d='&quot;'>t</c></a>":
    assert from_xml(to_xml(from_xml(text))) == from_xml(text), text
assert from_xml("<s:a xmlns:s='u'><s:b>1</s:b></s:a>") == {"a": {"b": "1"}} and "s:b" in from_xml("<s:a xmlns:s='u'><s:b>1</s:b></s:a>", True)["s:a"]
refused(XMLError, lambda: from_xml("<a>"))
refused(XMLError, lambda: from_xml('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'))
refused(XMLError, lambda: from_xml("<a>" * 1000 + "</a>" * 1000))
refused(ValueError, lambda: to_xml({"a b": 1}))
refused(ValueError, lambda: to_xml({"a": {"x><y": 1}}))
assert math.isnan(float("nan")) and table([{"x": float("nan")}]).describe()[0]["values"] == 1
print("data: fine")
