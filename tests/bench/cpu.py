"""Ten CPU-bound programs; prints the best of three of each, in milliseconds.

The same file runs in the guest and on the host's own Python.
"""
import hashlib
import json
import re
import time


def bodies():
    """Three bodies that pull on each other, in plain floats."""
    p = [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]
    v = [[0.0, 0.0], [0.0, 0.6], [0.4, 0.0]]
    for _ in range(9000):
        for i in range(3):
            for k in range(3):
                if i != k:
                    dx, dy = p[k][0] - p[i][0], p[k][1] - p[i][1]
                    f = 0.001 / (dx * dx + dy * dy + 0.01) ** 1.5
                    v[i][0] += dx * f
                    v[i][1] += dy * f
        for i in range(3):
            p[i][0] += v[i][0] * 0.001
            p[i][1] += v[i][1] * 0.001


def queens():
    """All ways to put eight queens on a board."""
    def place(row, columns, up, down):
        if row == 8:
            return 1
        return sum(place(row + 1, columns | 1 << c, (up | 1 << c) << 1, (down | 1 << c) >> 1)
                   for c in range(8) if not (columns | up | down) >> c & 1)
    assert place(0, 0, 0, 0) == 92


def documents():
    data = [{"id": i, "name": f"item {i}", "tags": ["red", "green"], "price": i * 1.25, "sold": None} for i in range(200)]
    for _ in range(60):
        assert json.loads(json.dumps(data))[7]["id"] == 7


def patterns():
    text = "On 2026-11-21 ann@example.org wrote to bob@example.net about invoice 4711. " * 120
    mail, date, word = re.compile(r"[\w.]+@[\w.]+"), re.compile(r"(\d{4})-(\d\d)-(\d\d)"), re.compile(r"\b([a-z]+)\s+([a-z]+)\b")
    for _ in range(10):
        mail.findall(text)
        date.sub(r"\3.\2.\1", text)
        word.sub(r"\2 \1", text)


def words():
    counts = {}
    for i in range(90000):
        key = "word" + str(i * 7 % 3001)
        counts[key] = counts.get(key, 0) + len(key.title())
    assert len(sorted(counts)) == 3001


class Money:
    def __init__(self, cents):
        self.cents = cents

    def __add__(self, other):
        return Money(self.cents + other.cents)


def objects():
    total, one = Money(0), Money(1)
    for _ in range(120000):
        total = total + one
    assert total.cents == 120000


def recursion():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)
    assert fib(22) == 17711


def sorting():
    state, numbers = 1, []
    for _ in range(40000):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        numbers.append(state)
    assert sorted(numbers, key=lambda n: -n)[0] == max(numbers)


def integers():
    a, b = 0, 1
    for _ in range(12000):
        a, b = b, a + b
    assert a * b % 1000003 >= 0
    assert len(str(3 ** 6000)) == 2863


def hashing():
    digest = b""
    for _ in range(40):
        digest = hashlib.sha256(digest + b"x" * 32768).digest()


for program in (bodies, queens, documents, patterns, words, objects, recursion, sorting, integers, hashing):
    best = 1e9
    for _ in range(3):
        begin = time.perf_counter()
        program()
        best = min(best, time.perf_counter() - begin)
    print(program.__name__, round(best * 1000, 3))
