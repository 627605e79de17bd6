"""Numerical programs whose work is done by compiled code; prints the best of
five of each, in milliseconds. The same file runs in a box and on the host."""
import time

import numpy
import pandas

random = numpy.random.default_rng(7)
a, b = random.random((400, 400)), random.random((400, 400))
vector = random.random(1_000_000)
table = pandas.DataFrame({"key": random.integers(0, 1000, 200_000), "value": random.random(200_000)})


def product():
    a @ b


def elements():
    numpy.sqrt(vector * 2 + 1).sum()


def sorting():
    numpy.sort(vector)


def fourier():
    numpy.fft.fft(vector[:1 << 18])


def solve():
    numpy.linalg.solve(a, b)


def groups():
    table.groupby("key")["value"].agg(["mean", "max"]).sort_values("mean")


best = {}
for _ in range(5):
    for program in (product, elements, sorting, fourier, solve, groups):
        begin = time.perf_counter()
        program()
        took = time.perf_counter() - begin
        best[program.__name__] = min(best.get(program.__name__, took), took)
for name, took in best.items():
    print(name, round(took * 1000, 3))
