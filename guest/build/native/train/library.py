"""Training: containers and the standard library, files, a database, dates, source code."""
import array
import ast
import asyncio
import bisect
import collections
import copy
import datetime
import functools
import heapq
import io
import itertools
import os
import pathlib
import pprint
import random
import sqlite3
import sys
import tokenize
import traceback
import typing

random.seed(20250103)


def shortest(width):
    graph = collections.defaultdict(list)
    for x, y in itertools.product(range(width), repeat=2):
        for dx, dy in ((1, 0), (0, 1), (1, 1)):
            graph[x, y].append(((x + dx, y + dy), random.randint(1, 9)))
    distances, queue = {(0, 0): 0}, [(0, (0, 0))]
    while queue:
        far, place = heapq.heappop(queue)
        if far > distances[place]:
            continue
        for neighbour, weight in graph.get(place, ()):
            if far + weight < distances.get(neighbour, 1 << 30):
                distances[neighbour] = far + weight
                heapq.heappush(queue, (far + weight, neighbour))
    seen, waiting = set(), collections.deque([(0, 0)])
    while waiting:
        place = waiting.popleft()
        if place not in seen:
            seen.add(place)
            waiting.extend(neighbour for neighbour, _ in graph.get(place, ()))
    return max(distances.values()), len(seen)


def containers():
    counter = collections.Counter(random.choices("abcdefghij", k=4000))
    recent = collections.deque(maxlen=50)
    Point = collections.namedtuple("Point", "x y")
    points = [Point(i % 17, i % 13) for i in range(1500)]
    ordered = collections.OrderedDict((p, i) for i, p in enumerate(points))
    for p in points[:500]:
        ordered.move_to_end(p)
        recent.append(p._replace(x=0))
    numbers = sorted(random.sample(range(10000), 600))
    places = [bisect.bisect_left(numbers, n) for n in range(0, 10000, 13)]
    a, b = set(numbers), {n * 3 for n in numbers}
    table = {str(n): n for n in numbers}
    table.update({f"k{n}": [n] for n in numbers})
    for key in list(table)[::3]:
        del table[key]
    inverted = {v if isinstance(v, int) else tuple(v): k for k, v in table.items()}
    stack = []
    for n in numbers:
        stack.append(n)
        if n % 3 == 0:
            stack.pop()
        if n % 50 == 0:
            stack.insert(0, n)
    stack.reverse()
    merged = {**table, "x": 1} | {"y": 2}
    chunk = array.array("d", (n / 2 for n in numbers))
    return (counter.most_common(3), a & b, a | b, a - b, a ^ b, a <= b, places, inverted, merged, sum(chunk), stack[10:100:3], list(recent),
            collections.ChainMap(table, merged)["x"], [*zip(*[iter(numbers)] * 3)], numbers.index(numbers[300]), copy.deepcopy([points[:100], table]))


def iterators():
    pairs = list(itertools.combinations(range(24), 3))
    groups = {key: len(list(group)) for key, group in itertools.groupby(sorted(pairs, key=sum), key=sum)}
    running = list(itertools.accumulate(range(1000), max))
    mixed = itertools.chain.from_iterable(zip(range(1000), itertools.cycle("abc"), itertools.count(5)))
    picked = list(itertools.islice(filter(lambda v: v != "b", mixed), 10, 2000, 2))
    folded = functools.reduce(lambda x, y: x * 31 + y & 0xFFFFFF, map(sum, pairs), 7)
    return len(groups), running[-1], len(picked), folded, list(itertools.pairwise("abcdef")), list(itertools.permutations("abcd"))[-1], sum(1 for _ in itertools.takewhile(lambda n: n < 500, range(1000)))


def dates():
    day, out = datetime.datetime(2025, 1, 31, 23, 59, tzinfo=datetime.timezone.utc), []
    for n in range(700):
        later = day + datetime.timedelta(days=n, hours=n % 24, minutes=7)
        out.append((later.isoformat(), later.strftime("%d.%m.%Y %H:%M %a"), later.weekday(), later.date().isocalendar()[1], (later - day).total_seconds()))
    back = [datetime.datetime.fromisoformat(text) for text, *_ in out]
    read = [datetime.datetime.strptime(text, "%d.%m.%Y %H:%M %a") for _, text, *_ in out[:80]]
    return max(back), min(read), sorted(back, reverse=True)[0], datetime.date(2024, 2, 29).replace(year=2028)


def database():
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, who TEXT, amount REAL, day TEXT)")
        db.executemany("INSERT INTO orders (who, amount, day) VALUES (?, ?, ?)", [(f"c{i % 40}", i * 1.5, f"2025-01-{i % 28 + 1:02d}") for i in range(2500)])
        db.execute("CREATE INDEX by_who ON orders (who)")
        db.execute("UPDATE orders SET amount = amount * 1.1 WHERE who = 'c7'")
        totals = db.execute("SELECT who, COUNT(*), SUM(amount), MAX(day) FROM orders GROUP BY who HAVING SUM(amount) > 100 ORDER BY 3 DESC").fetchall()
        joined = db.execute("SELECT a.who, b.day FROM orders a JOIN orders b ON a.who = b.who AND b.id = a.id + 40 WHERE a.amount > 200 LIMIT 500").fetchall()
        some = [db.execute("SELECT amount FROM orders WHERE id = ?", (i,)).fetchone()[0] for i in range(1, 300)]
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT * FROM orders WHERE who LIKE 'c1%' AND day BETWEEN '2025-01-05' AND '2025-01-20'")]
        return len(totals), len(joined), sum(some), len(rows)


SOURCE = "\n".join(f'''
def f{i}(a, b={i}, *rest, **named):
    """Function number {i}."""
    values = [i * a for i in range(b) if i % 2]
    try:
        return {{k: v for k, v in named.items()}} or values[-1:]
    except (KeyError, ValueError) as error:
        raise RuntimeError(f"{{error}} in {{a!r}}") from error
class C{i}(Base):
    size: int = {i}
    def method(self, other: "C{i}") -> int:
        return self.size + other.size if other is not self else lambda: 0
''' for i in range(60))


class Renamer(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.copy_location(ast.Name(node.id + "_", node.ctx), node) if node.id == "values" else node


def code():
    tree = ast.parse(SOURCE)
    kinds = collections.Counter(type(node).__name__ for node in ast.walk(tree))
    names = {"Base": object, "__name__": "made"}
    exec(compile(ast.fix_missing_locations(Renamer().visit(tree)), "<made>", "exec"), names)
    results = [names[f"f{i}"](2) for i in range(60)]
    tokens = sum(1 for _ in tokenize.generate_tokens(io.StringIO(SOURCE).readline))
    try:
        names["f1"]([], 3, x=1), names["f2"]()
    except TypeError:
        trace = traceback.format_exc()
    try:
        compile("def broken(:\n", "<broken>", "exec")
    except SyntaxError as error:
        trace += "".join(traceback.format_exception(error))
    sums = [eval(f"{i} * ({i} + 1) // 2") for i in range(200)]
    return kinds, results, tokens, trace, sums, ast.unparse(tree), ast.literal_eval(pprint.pformat({"a": [1, 2, {"b": (3,)}] * 20})), typing.get_type_hints(names["C1"])


async def worker(queue, results, lock):
    while True:
        n = await queue.get()
        async with lock:
            results[n] = n * n
        await asyncio.sleep(0)
        queue.task_done()


async def concurrent():
    queue, results, lock = asyncio.Queue(), {}, asyncio.Lock()
    tasks = [asyncio.create_task(worker(queue, results, lock)) for _ in range(8)]
    for n in range(400):
        queue.put_nowait(n)
    await queue.join()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    async def numbers(n):
        for i in range(n):
            yield i
            await asyncio.sleep(0)
    return sum([i async for i in numbers(150)]), await asyncio.wait_for(asyncio.sleep(0, "done"), 1)


def files():
    root = pathlib.PurePosixPath("/lib/data/report.tar.gz")
    paths = [root.parent / f"{root.stem}-{i}{root.suffix}" for i in range(150)]
    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    for i, path in enumerate(paths):
        print(i, path, file=text, sep="\t")
    text.seek(0)
    lines = [line.rstrip("\n").split("\t") for line in text]
    for path in sys.path:
        if os.path.isdir(path):
            names = sorted(os.listdir(path))
            sizes = {name: os.stat(os.path.join(path, name)).st_size for name in names[:60]}
            for name in names[:12]:
                if os.path.isfile(os.path.join(path, name)):
                    with open(os.path.join(path, name), "rb") as file:
                        sizes[name] = len(file.read())
    with_errors = 0
    for i in range(60):
        try:
            open(f"/nowhere/{i}")
        except FileNotFoundError as error:
            with_errors += error.errno
    for line in lines[:40]:
        print(*line)
    return len(lines)


def imports():
    import argparse, cmd, concurrent.futures, configparser, email.message, gzip, http.client, importlib.metadata, inspect, ipaddress, locale, lzma, platform, shelve, shlex, tarfile, unittest, zipfile
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int)
    for name in "json", "json.decoder", "configparser", "argparse", "shlex":
        importlib.reload(sys.modules[name])
    return parser.parse_args(["--n", "3"]), inspect.signature(argparse.ArgumentParser), shlex.split("a 'b c' d"), lzma.decompress(lzma.compress(SOURCE.encode()))


for _ in range(3):
    shortest(32), containers(), iterators(), dates(), database(), code(), files(), imports()
    await concurrent()
[1, "the end", {"of": ("it",)}]
