#!/usr/bin/env python3
"""SQLite's own speedtest1: plain, sealed by Tidelock, and by SQLCipher with and without a key.

The SQL of speedtest1 (`--sqlonly`) is run by the shells `sqlite3` and `sqlcipher`, in turns and in
an order that changes each round. The two are of different versions of SQLite, so each encryption is
compared with the same program without it. Prints versions, and of wall and CPU time the geometric
mean of the ratios with Student's 95 % interval: above 1, encryption costs.
"""

import argparse
import math
import os
import random
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

# Student's t, two-sided 95 %, by degrees of freedom.
T = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093}
KEY = "PRAGMA key = \"x'" + "2d" * 32 + "'\";\n"


def timed(command, sql, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run(command, stdin=open(sql), env=environment, capture_output=True, text=True)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0 or "rror" in done.stderr:
        raise SystemExit(f"error: {command} ended with {done.returncode}: {done.stderr[:400]}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, cpu


def interval(ratios):
    logs = [math.log(ratio) for ratio in ratios]
    mean, count = statistics.fmean(logs), len(logs)
    half = T[count - 1] * statistics.stdev(logs) / math.sqrt(count)
    low, middle, high = (math.exp(mean + off) for off in (-half, 0, half))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def holds(database, needle):
    return needle in database.read_bytes()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tidelock", default="target/release/tidelock")
    options.add_argument("--speedtest", default="build/sqlite3/speedtest1")
    options.add_argument("--size", default="100", help="of speedtest1")
    options.add_argument("--journal", default="delete", help="journal_mode: delete, wal, ...")
    options.add_argument("--rounds", type=int, default=10, choices=[n + 1 for n in T])
    options.add_argument("--under", default="/var/tmp", help="a folder of the file system")
    given = options.parse_args()
    tidelock = str(Path(given.tidelock).resolve())
    with tempfile.TemporaryDirectory(dir=given.under) as place:
        place = Path(place)
        home = place / "home"
        home.mkdir(mode=0o700)
        environment = dict(os.environ, HOME=str(home))
        sealed = place / "sealed"
        subprocess.run(
            [tidelock, "init", sealed, "--profile", "sqlite", "--no-recovery"],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        made = subprocess.run(
            [given.speedtest, "--sqlonly", "--size", given.size, place / "unused.db"],
            check=True,
            capture_output=True,
            text=True,
        )
        script = f"PRAGMA journal_mode = {given.journal};\n" + made.stdout
        plain, keyed = place / "plain.sql", place / "keyed.sql"
        plain.write_text(script)
        keyed.write_text(KEY + script)
        databases = {
            "plain": place / "plain.db",
            "control": place / "control.db",
            "sealed": sealed / "sealed.db",
            "sqlcipher, no key": place / "open.db",
            "sqlcipher": place / "cipher.db",
        }
        arms = {
            name: ["sqlite3" if "cipher" not in name else "sqlcipher", str(path)]
            for name, path in databases.items()
        }
        arms["sealed"] = [tidelock, "exec", "-D", str(sealed), "--", *arms["sealed"]]
        for program in ["sqlite3", "sqlcipher"]:
            asked = [program, "--version"]
            said = subprocess.run(asked, check=True, capture_output=True, text=True)
            print(f"{program}: {said.stdout.strip()}")
        found = {name: [] for name in arms}
        draw = random.Random(1)
        for _ in range(given.rounds):
            order = list(arms)
            draw.shuffle(order)
            for name in order:
                for left in databases[name].parent.glob(databases[name].name + "*"):
                    left.unlink()
                sql = keyed if name == "sqlcipher" else plain
                found[name].append(timed(arms[name], sql, environment))
        first = b"SQLite format 3"
        for name, database in databases.items():
            if holds(database, first) != (name not in ("sealed", "sqlcipher")):
                raise SystemExit(f"error: {name} is not what it must be")
        for name, trials in found.items():
            walls, cpus = zip(*trials)
            wall, cpu = statistics.median(walls), statistics.median(cpus)
            print(f"{name:18} {wall:7.3f} s, CPU {cpu:7.3f} s")
        for name, base in [
            ("control", "plain"),
            ("sealed", "plain"),
            ("sqlcipher", "sqlcipher, no key"),
            ("sqlcipher", "sealed"),
        ]:
            for index, measure in enumerate(["time", "CPU time"]):
                pairs = zip(found[name], found[base])
                ratios = [one[index] / other[index] for one, other in pairs]
                print(f"{name} / {base}, {measure}: {interval(ratios)}")


main()
