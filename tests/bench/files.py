"""Seven programs that use many files; prints the best of five of each, in milliseconds.

The same file runs in the guest, in its workspace, and on the host's own
Python, in the folder that it is started in.
"""
import os
import shutil
import sqlite3
import time

TOP = "files-of-the-benchmark"
FOLDER = TOP + "/inner"
NAMES = [f"{FOLDER}/small-{i:03}.txt" for i in range(300)]
TEXT = "one line of a small file\n" * 8


def write():
    for name in NAMES:
        with open(name, "w") as f:
            f.write(TEXT)


def read():
    for name in NAMES:
        with open(name) as f:
            assert len(f.read()) == len(TEXT)


def stat():
    for i in range(1000):
        assert os.stat(NAMES[i % 300]).st_size == len(TEXT)


def listing():
    for _ in range(10):
        assert len(os.listdir(FOLDER)) == 300
        with os.scandir(FOLDER) as found:
            assert sum(e.is_file() for e in found) == 300


def rename():
    for suffix in ".new", "":
        old = "" if suffix else ".new"
        for name in NAMES[:200]:
            os.rename(name + old, name + suffix)


def remove():
    for name in NAMES:
        os.unlink(name)


def database():
    with sqlite3.connect(TOP + "/rows.db") as db:
        db.execute("create table if not exists rows (number integer primary key, text)")
        db.execute("delete from rows")
        db.commit()
        for i in range(20):
            db.executemany("insert into rows values (?, ?)", ((i * 100 + k, TEXT) for k in range(100)))
            db.commit()
    db.close()


os.makedirs(FOLDER)
best = {}
for _ in range(5):
    for program in (write, read, stat, listing, rename, remove, database):
        begin = time.perf_counter()
        program()
        took = time.perf_counter() - begin
        best[program.__name__] = min(best.get(program.__name__, took), took)
shutil.rmtree(TOP)
for name, took in best.items():
    print(name, round(took * 1000, 3))
