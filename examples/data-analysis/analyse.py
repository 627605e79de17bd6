"""Reads sales as CSV from stdin, writes a chart as SVG to stdout, and what it found to stderr."""
import csv
import sqlite3
import statistics
import sys

db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE sales (month TEXT, region TEXT, units INTEGER, price REAL)")
rows = csv.DictReader(sys.stdin)
db.executemany("INSERT INTO sales VALUES (:month, :region, :units, :price)", rows)

by_month = db.execute("SELECT month, sum(units * price) FROM sales GROUP BY month ORDER BY month").fetchall()
by_region = db.execute("SELECT region, sum(units * price) FROM sales GROUP BY region ORDER BY 2 DESC").fetchall()
revenue = [amount for _, amount in by_month]
trend = statistics.linear_regression(range(len(revenue)), revenue)

for region, amount in by_region:
    print(f"{region:8}{amount:10,.0f}", file=sys.stderr)
print(f"a month: {statistics.mean(revenue):,.0f}, and {trend.slope:+,.0f} with each", file=sys.stderr)

WIDTH, HEIGHT, BAR = 640, 320, 40
scale = (HEIGHT - 60) / max(revenue)


def y(amount):
    return HEIGHT - 30 - amount * scale


print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">')
print(f'<text x="20" y="20" font-size="16">Revenue, {by_month[0][0]} to {by_month[-1][0]}</text>')
for n, (month, amount) in enumerate(by_month):
    x = 20 + n * (WIDTH - 40) / len(by_month)
    print(f'<rect x="{x:.0f}" y="{y(amount):.0f}" width="{BAR}" height="{amount * scale:.0f}" fill="steelblue"/>')
    print(f'<text x="{x + BAR / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{month[-2:]}</text>')
ends = [(20 + BAR / 2, trend.intercept), (WIDTH - 20 - BAR / 2, trend.intercept + trend.slope * (len(revenue) - 1))]
points = " ".join(f"{x:.0f},{y(amount):.0f}" for x, amount in ends)
print(f'<polyline points="{points}" stroke="crimson" stroke-width="2" fill="none"/>')
print("</svg>")
