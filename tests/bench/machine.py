"""Work that leans on the machine's kernel; prints the best of some runs of each, in milliseconds.

The same file runs in a box, in its workspace, and on the host with the same
image as its root, in the folder that it is started in.
"""
import mmap
import os
import shutil
import subprocess
import sys
import threading
import time

TOP = "machine-of-the-benchmark"
BIG = TOP + "/big"
CHUNK = os.urandom(1 << 20)
FOLDERS, FILES = 40, 25  # of a tree


def run(*args, **more):
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


def calls():
    for _ in range(10000):
        os.getppid()


def spawn():
    for _ in range(20):
        run("/bin/true")


def shell():
    run("bash", "-c", "for i in $(seq 20); do /bin/true; done; x=$(echo a | tr a b); test $x = b")


def pipe():
    """64 MiB through a pipe to another process."""
    run("bash", "-c", "head -c 67108864 /dev/zero | cat | wc -c")


def pingpong():
    """A byte to another process and back, a thousand times."""
    child = subprocess.Popen([sys.executable, "-c", "import os\nwhile os.read(0, 1): os.write(1, b'x')"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    begin = None
    a, b = child.stdin.fileno(), child.stdout.fileno()
    for i in range(1020):
        if i == 20:
            begin = time.perf_counter()
        os.write(a, b"x")
        os.read(b, 1)
    took = time.perf_counter() - begin
    child.stdin.close()
    child.wait()
    return took


def threads():
    """A lock handed to and fro between two threads."""
    one, two = threading.Semaphore(1), threading.Semaphore(0)

    def work():
        for _ in range(1000):
            two.acquire()
            one.release()
    other = threading.Thread(target=work)
    other.start()
    for _ in range(1000):
        one.acquire()
        two.release()
    other.join()


def memory():
    """Pages that are touched for the first time, and given back."""
    for _ in range(4):
        with mmap.mmap(-1, 32 << 20) as m:
            for at in range(0, 32 << 20, 4096):
                m[at] = 1


def write():
    with open(BIG, "wb") as f:
        for _ in range(64):
            f.write(CHUNK)


def read():
    with open(BIG, "rb", buffering=0) as f:
        while f.read(1 << 20):
            pass


def small_reads():
    """64 MiB in pieces of 4 KiB."""
    with open(BIG, "rb", buffering=0) as f:
        while f.read(4096):
            pass


def tree():
    for n in range(FOLDERS):
        os.makedirs(f"{TOP}/tree/{n}")
        for k in range(FILES):
            with open(f"{TOP}/tree/{n}/{k}.txt", "w") as f:
                f.write(f"file {k} of folder {n}\n")


def walk():
    assert sum(len(files) for _, _, files in os.walk(TOP + "/tree")) == FOLDERS * FILES


def grep():
    run("grep", "-r", "file 7 of folder 7", TOP + "/tree")


def commit():
    run("git", "init", "-q", ".", cwd=TOP + "/tree")
    run("git", "add", ".", cwd=TOP + "/tree")
    run("git", "-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-q", "-m", "all", cwd=TOP + "/tree")


def status():
    run("git", "status", "--short", cwd=TOP + "/tree")


def remove():
    shutil.rmtree(TOP + "/tree")


def python():
    run("python3", "-I", "-S", "-c", "pass")


def imports():
    run("python3", "-c", "import json, re, csv, decimal, asyncio, http.client")


def pandas():
    run("python3", "-c", "import pandas")


def node():
    run("node", "-e", "0")


def compile():
    with open(TOP + "/a.c", "w") as f:
        f.write("#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(\"x\"); return 0; }\n")
    run("gcc", "-O1", "-o", TOP + "/a.out", TOP + "/a.c")


os.environ["HOME"] = os.getcwd()
os.makedirs(TOP)
best = {}
for rounds, programs in (5, (calls, spawn, shell, pipe, pingpong, threads, memory, write, read, small_reads)), (2, (tree, walk, grep, commit, status, remove)), (2, (python, imports, pandas, node, compile)):
    for _ in range(rounds):
        for program in programs:
            begin = time.perf_counter()
            took = program() or time.perf_counter() - begin
            best[program.__name__] = min(best.get(program.__name__, took), took)
shutil.rmtree(TOP)
for name, took in best.items():
    print(name, round(took * 1000, 3))
