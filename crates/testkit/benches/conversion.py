#!/usr/bin/env python3
"""Conversion beside `cp --reflink=never` of the same files, with as many jobs, in turns.

Each conversion follows a copy, so that both meet the same machine. A copy is synced at its end,
since a conversion is. `--unsynced` also times copies that are left in the page cache. Prints
seconds, user and system time of each, and the median ratios with their range: above 1, the
conversion is faster.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

# Files of a folder: a copy's jobs take folders where there are many files.
FOLDER = 1000


def timed(command, home):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    environment = dict(os.environ, HOME=str(home))
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, env=environment, stdout=quiet, stderr=quiet)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, cpu


def fill(data, count, size):
    block = os.urandom(min(size, 1 << 20))
    for number in range(count):
        folder = data / str(number // FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / str(number), "wb") as file:
            for at in range(0, size, len(block)):
                file.write(block[: size - at])


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tidelock", default="target/release/tidelock")
    options.add_argument("--files", type=int, default=100_000)
    options.add_argument("--size", type=int, default=8192, help="bytes of each")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--unsynced", action="store_true")
    options.add_argument("--under", default="/var/tmp", help="a folder of the file system")
    given = options.parse_args()
    tidelock = str(Path(given.tidelock).resolve())
    with tempfile.TemporaryDirectory(dir=given.under) as place:
        place = Path(place)
        data, copy = place / "data", place / "copy"
        fill(data, given.files, given.size)
        many = given.files > FOLDER
        what = "-mindepth 1 -maxdepth 1 -type d" if many else "-type f"
        cp = (
            f"mkdir {copy}; cd {data}; find . {what} -print0 | "
            f"xargs -0 -P {given.jobs} -n 1 cp -a --reflink=never -t {copy}"
        )
        how = ["--jobs", str(given.jobs), "--no-compare"]
        conversions = {
            "encrypt": ["encrypt", data, "--profile", "generic", "--no-recovery"],
            "rekey": ["rekey", data],
            "decrypt": ["decrypt", data],
        }
        ratios = {}
        for _ in range(given.rounds):
            for name, words in conversions.items():
                copies = [("cp, synced", f"{cp}; sync -f {copy}")]
                if given.unsynced:
                    copies.append(("cp", cp))
                base = {}
                for kind, line in copies:
                    subprocess.run(["sync", "-f", place], check=True)
                    base[kind] = timed(["sh", "-c", line], place)
                    shutil.rmtree(copy)
                subprocess.run(["sync", "-f", place], check=True)
                own = timed([tidelock, *map(str, words), *how], place)
                for kind, (wall, cpu) in base.items():
                    print(f"{kind:11} {wall:7.2f} s, CPU {cpu:7.2f} s", end="   ")
                    ratios.setdefault((kind, name), []).append((wall / own[0], cpu / own[1]))
                print(f"{name:8} {own[0]:7.2f} s, CPU {own[1]:7.2f} s", flush=True)
        for (kind, name), pairs in ratios.items():
            for index, measure in enumerate(["time", "CPU time"]):
                some = [pair[index] for pair in pairs]
                middle = statistics.median(some)
                span = f"[{min(some):.2f}, {max(some):.2f}]"
                print(f"{kind} / {name}, {measure}: {middle:.2f} {span}")


main()
