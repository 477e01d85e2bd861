"""Start time and memory of the local stack: first start, second start, beside a bare interpreter and bare PostgreSQL.

Run: `.venv/bin/python -m benchmarks.start`. Prints a Markdown table; the last figures stand in benchmarks/start.md.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

COMMAND = [sys.executable, "-m", "app.cli"]


def timed(*arguments: str) -> float:
    """Seconds of one command; raises when it fails."""
    began = time.monotonic()
    subprocess.run([*COMMAND, *arguments], check=True, capture_output=True, timeout=300)
    return time.monotonic() - began


def bare_start_s() -> float:
    """The floor: importing the web application once, with nothing started."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import app.main"], check=True, timeout=120)
    return time.monotonic() - began


def memory(pid: int) -> tuple[float, float, int]:
    """Unique and proportional MiB of a process and its children, and how many processes these are."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    full = [process.memory_full_info() for process in processes]
    return sum(f.uss for f in full) / 2**20, sum(f.pss for f in full) / 2**20, len(processes)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        bare = bare_start_s()
        first = timed("up", "--data", str(data), "--detach")
        try:
            timed("down", "--data", str(data))
            second = timed("up", "--data", str(data), "--detach")
            time.sleep(5)
            state = json.loads((data / "run" / "stack.json").read_text())
            print("| measure | seconds | in imports of the web application |")
            print("|---|---|---|")
            print(f"| import of the web application (floor) | {bare:.1f} | 1.0 |")
            print(f"| first start to ready | {first:.1f} | {first / bare:.1f} |")
            print(f"| second start to ready | {second:.1f} | {second / bare:.1f} |")
            print()
            print("| process | processes | unique MiB | proportional MiB |")
            print("|---|---|---|---|")
            total = [0.0, 0.0]
            for service in [{"name": "supervisor", "pid": state["pid"]}, *state["services"]]:
                if not service["pid"] or not psutil.pid_exists(service["pid"]):
                    continue
                if service["name"] == "supervisor":
                    info = psutil.Process(service["pid"]).memory_full_info()
                    unique, proportional, count = info.uss / 2**20, info.pss / 2**20, 1
                else:
                    unique, proportional, count = memory(service["pid"])
                total[0] += unique
                total[1] += proportional
                print(f"| {service['name']} | {count} | {unique:.0f} | {proportional:.0f} |")
            print(f"| sum | | {total[0]:.0f} | {total[1]:.0f} |")
        finally:
            timed("down", "--data", str(data))


if __name__ == "__main__":
    main()
