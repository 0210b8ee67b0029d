#!/usr/bin/env python3
"""SQLite under Tidelock beside SQLCipher, on SQLite's own speedtest1.

Each block runs every arm once, in an order that changes: SQLite plain, the same again as a control,
SQLite on a protected directory, SQLCipher without a key, with a key, and with a key but without its
HMAC. The two engines are of different age, so each encryption is compared with its own engine
without it. `--rows FILE` keeps each trial as a line of JSON: block, arm, seconds of CPU and of wall
time, in the order in which they ran. Prints the ratios of CPU time (user and system, of the program
and of `tidelock exec` before it) and of wall time: their geometric mean over the blocks, with
Student's 95 % interval of the logarithms. Above 1, encryption costs. The page cache of SQLite is
smaller than the database, so pages move.

SQLCipher authenticates each page unless its HMAC is off; Tidelock does not.
"""

import argparse
import contextlib
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = Path("build/speedtest1")
# A raw key, so that no passphrase is stretched. speedtest1 puts its text between `PRAGMA key('` and
# `')`, so other statements fit behind it; the page size of SQLCipher 3 has a pragma of its own.
RAW = "x''" + "2d" * 32 + "''');PRAGMA cipher_page_size={pages};{more}SELECT ('"
# Each encryption, and what it is compared with.
PAIRS = [
    ("control", "plain"),
    ("sealed", "plain"),
    ("sqlcipher, key", "sqlcipher, plain"),
    ("sqlcipher, key, no HMAC", "sqlcipher, plain"),
]
# Student's t, two-sided 95 %, for 1 to 29 degrees of freedom.
T = (
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
    + [2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]
    + [2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045]
)


class Arm:
    """One way to run speedtest1, and its database."""

    def __init__(self, program, database, before=(), key=None):
        self.program = program
        self.database = database
        self.before = list(before)
        self.key = key

    def run(self, options, environment):
        """CPU seconds, wall seconds and what it printed, of a database made from nothing."""
        for left in self.database.parent.glob(self.database.name + "*"):
            left.unlink()
        command = [*self.before, str(self.program), *options]
        if self.key:
            command += ["--key", self.key]
        command.append(str(self.database))
        # Temporary files lie beside the database, as `tidelock exec` would have it.
        environment = dict(environment, SQLITE_TMPDIR=str(self.database.parent))
        with tempfile.TemporaryFile() as said:
            begin = time.monotonic()
            child = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
            _, status, used = os.wait4(child.pid, 0)
            wall = time.monotonic() - begin
            child.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read().decode(errors="replace")
        if child.returncode != 0 or "error" in text.lower():
            sys.exit(f"error: {command} ended with {child.returncode}: {text[-2000:]}")
        return used.ru_utime + used.ru_stime, wall, text


def arms(given, place, environment):
    sealed = place / "sealed"
    tidelock = str(Path(given.tidelock).resolve())
    init = [tidelock, "init", sealed, "--profile", "sqlite", "--no-recovery"]
    init += ["--provider", f"file:{place}/home/key"]
    subprocess.run(init, check=True, env=environment, capture_output=True)
    sqlite, sqlcipher = ((PROGRAMS / name).resolve() for name in ("sqlite", "sqlcipher"))
    keys = [
        RAW.format(pages=given.pagesize, more=more)
        for more in ("", "PRAGMA cipher_use_hmac=OFF;")
    ]
    before = [tidelock, "exec", "-D", str(sealed), "--"]
    return {
        "plain": Arm(sqlite, place / "plain.db"),
        "control": Arm(sqlite, place / "control.db"),
        "sealed": Arm(sqlite, sealed / "sealed.db", before),
        "sqlcipher, plain": Arm(sqlcipher, place / "open.db"),
        "sqlcipher, key": Arm(sqlcipher, place / "keyed.db", key=keys[0]),
        "sqlcipher, key, no HMAC": Arm(sqlcipher, place / "bare.db", key=keys[1]),
    }


def agree(all_arms, options, environment):
    """Every arm computes the same, and only those that encrypt hide the first bytes."""
    hashes = set()
    for name, arm in all_arms.items():
        _, _, text = arm.run([*options, "--verify"], environment)
        version = re.search(r"Speedtest1 for (SQLite \S+)", text)
        found = re.search(r"Verification Hash: (.*)", text)
        if not version or not found:
            sys.exit(f"error: {name} printed no version or hash: {text[-2000:]}")
        hashes.add(found[1])
        clear = arm.database.read_bytes().startswith(b"SQLite format 3\0")
        if clear == (arm.key is not None or bool(arm.before)):
            sys.exit(f"error: the database of {name} is {'plain' if clear else 'encrypted'}")
        size = arm.database.stat().st_size
        print(f"{name:24} {version[1]}, {size / (1 << 20):.1f} MiB", flush=True)
    if len(hashes) != 1:
        sys.exit(f"error: the arms computed different results: {hashes}")


def interval(ratios):
    """Geometric mean with the 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    half = T[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (math.exp(mean + off) for off in (-half, 0, half))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tidelock", default="target/release/tidelock")
    options.add_argument("--blocks", type=int, default=10, choices=range(2, len(T) + 2))
    options.add_argument("--size", type=int, default=50, help="of speedtest1")
    options.add_argument("--cachesize", type=int, default=500, help="pages of SQLite's cache")
    options.add_argument("--pagesize", type=int, default=4096)
    options.add_argument("--journal", default="delete", help="delete, truncate, persist or wal")
    options.add_argument("--nosync", action="store_true", help="synchronous = OFF")
    options.add_argument("--seed", type=int, default=1, help="of the order within the blocks")
    options.add_argument("--rows", type=argparse.FileType("x"), help="a new file of all trials")
    options.add_argument("--under", default="/var/tmp", help="a folder of the file system")
    given = options.parse_args()
    words = ["--nosync"] if given.nosync else []
    for name in ("size", "cachesize", "pagesize", "journal"):
        words += [f"--{name}", str(getattr(given, name))]
    print(f"speedtest1 {' '.join(words)}, {given.blocks} blocks")
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory(dir=given.under) as place:
        place = Path(place)
        for name in ("home", "run"):
            (place / name).mkdir(mode=0o700)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment = dict(kept, HOME=f"{place}/home", TIDELOCK_RUN_DIR=f"{place}/run")
        all_arms = arms(given, place, environment)
        agree(all_arms, words, environment)
        found = {name: [] for name in all_arms}
        with contextlib.closing(given.rows) if given.rows else contextlib.nullcontext():
            for block in range(given.blocks):
                order = list(all_arms)
                draw.shuffle(order)
                for name in order:
                    cpu, wall, _ = all_arms[name].run(words, environment)
                    found[name].append((cpu, wall))
                    if given.rows:
                        row = {"block": block, "arm": name, "cpu": cpu, "wall": wall}
                        print(json.dumps(row), file=given.rows, flush=True)
        for name, trials in found.items():
            cpus, walls = (statistics.median(column) for column in zip(*trials))
            print(f"{name:24} CPU {cpus:7.3f} s, wall {walls:7.3f} s (medians)")
        for index, measure in enumerate(["CPU time", "wall time"]):
            for name, base in PAIRS:
                pairs = zip(found[name], found[base])
                ratios = [one[index] / other[index] for one, other in pairs]
                print(f"{measure}: {name} / {base}: {interval(ratios)}")
            # Which of the two costs its engine more.
            for cipher in ("sqlcipher, key", "sqlcipher, key, no HMAC"):
                rows = zip(*(found[n] for n in (cipher, "sqlcipher, plain", "sealed", "plain")))
                ratios = [(a[index] / b[index]) / (c[index] / d[index]) for a, b, c, d in rows]
                print(f"{measure}: cost of {cipher} / cost of sealed: {interval(ratios)}")


main()
