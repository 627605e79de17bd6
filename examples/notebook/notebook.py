"""Runs a notebook's code cells in a paddock session and writes their outputs back.

notebook.py NOTEBOOK.ipynb OUT.ipynb

Cells share the variables of one session, which is removed afterwards. As Jupyter does, it
stops at the first cell that fails, and keeps what that one says.
"""

import json
import subprocess
import sys

PADDOCK = "paddock"


def paddock(*args, stdin=""):
    done = subprocess.run([PADDOCK, *args], input=stdin, capture_output=True, text=True)
    if done.returncode == 125:  # paddock itself failed, not the cell
        sys.exit(done.stderr)
    return done


def outputs(result, count):
    """What a cell shows, as the notebook format has it."""
    error = result.get("error")
    for stream in ["stdout"] if error else ["stdout", "stderr"]:
        if result[stream]:
            yield {"output_type": "stream", "name": stream, "text": result[stream]}
    if result["result"]:
        yield {
            "output_type": "execute_result",
            "execution_count": count,
            "metadata": {},
            "data": {"text/plain": result["result"]},
        }
    if error:
        traceback = result["stderr"].splitlines()
        yield {"output_type": "error", "ename": error["type"], "evalue": error["message"], "traceback": traceback}


def run(notebook):
    session = json.loads(paddock("run", "--keep", "--json", "-l", "python", "-c", "pass").stdout)["session_id"]
    try:
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for count, cell in enumerate(cells, 1):
            source = "".join(cell["source"])
            result = json.loads(paddock("run", "--session", session, "--json", "-l", "python", "-", stdin=source).stdout)
            cell["execution_count"], cell["outputs"] = count, list(outputs(result, count))
            if not result["success"]:
                print(f"cell {count} fails: {result['error']['type']}")
                break
        print(f"{count} of {len(cells)} cells ran")
    finally:
        paddock("session", "rm", session)


with open(sys.argv[1]) as f:
    notebook = json.load(f)
run(notebook)
with open(sys.argv[2], "w") as f:
    json.dump(notebook, f, indent=1)
