"""What coding agents do all day, over 1,200 small files; prints the best of three of each, in milliseconds.

The same file runs in a box, in its workspace, and on the host with the same
image as its root, in the folder that it is started in.
"""
import os
import shutil
import sqlite3
import subprocess
import sys
import time

TOP = "project-of-the-benchmark"
PACKAGES, MODULES = 40, 30
GIT = ("git", "-c", "user.name=b", "-c", "user.email=b@example.org", "-C", TOP)


def run(*args):
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def status():
    assert run(*GIT, "status", "--short") == b""


def search():
    assert run("grep", "-rl", "def function_7_of_7(", TOP, "--include=*.py").count(b"\n") == 1


def find():
    assert run("find", TOP, "-name", "*.py", "-newer", "/etc/passwd").count(b"\n") >= 0


def compileall():
    run(sys.executable, "-m", "compileall", "-q", "-f", TOP)
    for folder, folders, _ in os.walk(TOP):
        if "__pycache__" in folders:
            shutil.rmtree(os.path.join(folder, "__pycache__"))


def tar():
    run("tar", "-cf", TOP + ".tar", TOP)
    os.mkdir(TOP + "-again")
    run("tar", "-xf", TOP + ".tar", "-C", TOP + "-again")
    shutil.rmtree(TOP + "-again")
    os.remove(TOP + ".tar")


def spawn():
    for _ in range(20):
        run("/bin/true")


def database():
    with sqlite3.connect(TOP + "/.git/rows.db") as db:
        db.execute("create table if not exists rows (number integer primary key, text)")
        db.execute("delete from rows")
        for i in range(20):
            db.executemany("insert into rows values (?, ?)", ((i * 100 + k, "text") for k in range(100)))
            db.commit()
    db.close()


os.environ["HOME"] = os.getcwd()
for n in range(PACKAGES):
    os.makedirs(f"{TOP}/package{n}")
    for k in range(MODULES):
        with open(f"{TOP}/package{n}/module{k}.py", "w") as f:
            f.write(f"def function_{k}_of_{n}(x):\n    return x + {k}\n" * 3)
for args in ("init", "-q"), ("add", "."), ("commit", "-q", "-m", "all"):
    run(*GIT, *args)
best = {}
for _ in range(3):
    for program in (status, search, find, compileall, tar, spawn, database):
        begin = time.perf_counter()
        program()
        took = time.perf_counter() - begin
        best[program.__name__] = min(best.get(program.__name__, took), took)
shutil.rmtree(TOP)
for name, took in best.items():
    print(name, round(took * 1000, 3))
