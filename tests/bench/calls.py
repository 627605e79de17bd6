# The fifty calls of a session that cleans data, each after a line of "#%%".
# Some fail, as calls of models do.
#%%
import csv, json, re, io, random, statistics
from collections import Counter, defaultdict
from datetime import date, timedelta
#%%
random.seed(7)
CITIES = ["Berlin", "berlin ", "PARIS", "Paris", "Rome", "rome", "Madrid", "madrid?"]
def raw_row(i):
    day = date(2025, 1, 1) + timedelta(days=i % 365)
    price = f"{random.uniform(1, 900):.2f}"
    return [str(i), random.choice(CITIES), str(day) if i % 11 else day.strftime("%d.%m.%Y"), price if i % 17 else "n/a", f"user{i % 97}@example.org"]
#%%
with open("raw.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["id", "city", "day", "price", "mail"])
    w.writerows(raw_row(i) for i in range(2000))
#%%
rows = list(csv.DictReader(open("raw.csv")))
len(rows), rows[0]
#%%
Counter(r["city"] for r in rows)
#%%
rows[0]["prize"]
#%%
def clean_city(name):
    return re.sub(r"[^a-z]", "", name.strip().lower()).title()
#%%
Counter(clean_city(r["city"]) for r in rows).most_common()
#%%
def parse_day(text):
    if m := re.fullmatch(r"(\d\d)\.(\d\d)\.(\d{4})", text):
        return date(int(m[3]), int(m[2]), int(m[1]))
    return date.fromisoformat(text)
#%%
min(parse_day(r["day"]) for r in rows), max(parse_day(r["day"]) for r in rows)
#%%
sum(float(r["price"]) for r in rows)
#%%
def parse_price(text):
    try:
        return float(text)
    except ValueError:
        return None
#%%
sum(1 for r in rows if parse_price(r["price"]) is None)
#%%
class Sale:
    __slots__ = ("id", "city", "day", "price", "mail")
    def __init__(self, row):
        self.id, self.city, self.day = int(row["id"]), clean_city(row["city"]), parse_day(row["day"])
        self.price, self.mail = parse_price(row["price"]), row["mail"]
    def __repr__(self):
        return f"Sale({self.id}, {self.city}, {self.day}, {self.price})"
#%%
sales = [Sale(r) for r in rows]
sales[:3]
#%%
known = [s for s in sales if s.price is not None]
len(known)
#%%
mean, median = statistics.mean(s.price for s in known), statistics.median(s.price for s in known)
mean, median
#%%
for s in sales:
    if s.price is None:
        s.price = median
#%%
by_city = defaultdict(list)
for s in sales:
    by_city[s.city].append(s)
{c: len(v) for c, v in by_city.items()}
#%%
totals = {c: round(sum(s.price for s in v), 2) for c, v in by_city.items()}
totals
#%%
json.dump(totals, open("totals.json", "w"), indent=1)
#%%
print(open("totals.json").read())
#%%
by_month = defaultdict(float)
for s in sales:
    by_month[s.day.strftime("%Y-%m")] += s.price
sorted(by_month.items())
#%%
best = max(by_month, key=by_month.get)
best
#%%
mails = Counter(s.mail for s in sales)
mails.most_common(5)
#%%
domains = {re.search(r"@(.+)$", m)[1] for m in mails}
domains
#%%
def outliers(values, k=2.0):
    m, d = statistics.mean(values), statistics.pstdev(values)
    return [v for v in values if abs(v - m) > k * d]
#%%
len(outliers([s.price for s in sales], 1.6))
#%%
sales.sort(key=lambda s: (s.city, s.day, s.id))
#%%
with open("clean.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["id", "city", "day", "price", "mail"])
    w.writerows([s.id, s.city, s.day.isoformat(), f"{s.price:.2f}", s.mail] for s in sales)
#%%
open("clean.csv").readline()
#%%
window = 7
prices = [s.price for s in sorted(sales, key=lambda s: s.day)]
smooth = [sum(prices[i:i + window]) / window for i in range(len(prices) - window)]
#%%
smooth[:3], len(smooth)
#%%
grid = [[random.random() for _ in range(100)] for _ in range(600)]
#%%
columns = list(zip(*grid))
[round(statistics.mean(c), 3) for c in columns[:5]]
#%%
del columns
#%%
x = 1
#%%
x += 1
#%%
report = {"rows": len(sales), "mean": mean, "median": median, "best": best, "totals": totals}
#%%
json.dump(report, open("report.json", "w"))
#%%
report["cities"] = sorted(by_city)
report
#%%
raise ValueError("not what was meant")
#%%
index = {s.id: s for s in sales}
index[42]
#%%
index[42].price = 10.0
#%%
def changed(a, b):
    return [k for k in a if a[k] != b.get(k)]
#%%
changed({"a": 1, "b": 2}, {"a": 1, "b": 3})
#%%
lines = [f"{s.id}: {s.city} {s.price:.1f}" for s in sales]
#%%
open("report.txt", "w").write("\n".join(lines[:200]))
#%%
import os
sorted((n, os.path.getsize(n)) for n in os.listdir("."))
#%%
del grid, lines, smooth
print("done", x)
