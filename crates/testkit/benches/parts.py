#!/usr/bin/env python3
"""Where the CPU time of a sealed PostgreSQL goes: the cipher, the library, libc, kernel, server.

Plain, control and sealed do the same work in turns, in an order that is drawn, while perf samples
all processes of their server by the CPU's clock:

    scan         serial scans of pgbench_accounts
    read_only    pgbench -S
    connections  the same by 1,000 connections, which are made first
    tpcb         pgbench, after a checkpoint
    bulk         INSERT of a million rows, and a checkpoint

A part's milliseconds are those of its samples, so that they are of a CPU, not of the clock. Prints
medians and sealed less plain: means over the rounds, with Student's 95 % interval. `--rows FILE`
keeps each trial as a line of JSON, with the symbols that have most samples in each part. Needs
perf, and a kernel.perf_event_paranoid of 1 or less.
"""

import argparse
import collections
import json
import math
import random
import re
import signal
import statistics
import subprocess
import sys
import time

from private_servers import T, add_options, of_running, postmaster, servers_of

HERTZ = 1999
SETTINGS = """
max_connections = 1010
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 16GB
max_parallel_workers_per_gather = 0
listen_addresses = ''
"""
PARTS = ["cipher", "library", "libc", "kernel", "server"]
CIPHER = re.compile(r"^(?!.*tidelock).*(aes_hw_|aesni_|_xts|xts_|gcm|ghash)|tidelock_ffi::vaes")
KEPT_SYMBOLS = 12


def part_of(symbol, program):
    if "libtidelock" in program:
        return "cipher" if CIPHER.search(symbol) else "library"
    if program.startswith("[") or program.endswith(".ko"):
        return "kernel"
    return "libc" if "/libc" in program or "/ld-" in program else "server"


def sampled(server, place, work):
    """Milliseconds of a CPU in each part while `work` ran, and in the dearest symbols of each."""
    data = place / "perf.data"
    data.unlink(missing_ok=True)
    # The backend of the statement before is no part of it, and perf refuses what has ended.
    time.sleep(0.3)
    pids = ",".join(of_running(postmaster(server)))
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-p", pids, "-o", data]
    quiet = subprocess.DEVNULL
    perf = subprocess.Popen(record, stdout=quiet, stderr=quiet)
    time.sleep(0.5)
    began = time.perf_counter()
    work(server)
    seconds = time.perf_counter() - began
    time.sleep(0.1)
    perf.send_signal(signal.SIGINT)
    perf.wait()
    script = ["perf", "script", "-F", "period,ip,sym,dso", "-i", data]
    told = subprocess.run(script, check=True, capture_output=True).stdout.decode(errors="replace")
    parts = dict.fromkeys(PARTS, 0.0)
    symbols = {part: collections.Counter() for part in PARTS}
    for line in told.splitlines():
        found = re.match(r"\s*(\d+)\s+[0-9a-f]+\s+(.*) \(([^()]*(?:\(deleted\))?)\)$", line)
        if not found:
            sys.exit(f"error: perf script printed {line!r}")
        milliseconds, part = int(found[1]) / 1e6, part_of(found[2], found[3])
        parts[part] += milliseconds
        symbols[part][found[2].split("+")[0]] += milliseconds
    parts["all"] = sum(parts.values())
    if parts["all"] < 100:
        sys.exit(f"error: {parts['all']:.0f} ms in samples say nothing")
    dearest = {part: dict(of_part.most_common(KEPT_SYMBOLS)) for part, of_part in symbols.items()}
    return parts | {"seconds": seconds, "symbols": dearest}


def scan(server):
    server.sql(";".join(["SELECT sum(abalance) FROM pgbench_accounts"] * 12))


def read_only(server):
    server.loaded("-S", "-c", 2, "-j", 1, "-t", 12_000, "--random-seed", 7)


def connections(server):
    server.loaded("-S", "-c", 1_000, "-j", 2, "-t", 50, "--random-seed", 7)


def tpcb(server):
    server.loaded("-c", 2, "-j", 1, "-t", 1_500, "--random-seed", 7)


def bulk(server):
    rows = "SELECT n, 'a row of no length to speak of' FROM generate_series(1, 1000000) n"
    server.sql(f"TRUNCATE bulk; INSERT INTO bulk {rows}")
    server.sql("CHECKPOINT")


LOADS = {
    "scan": scan,
    "read_only": read_only,
    "connections": connections,
    "tpcb": tpcb,
    "bulk": bulk,
}


def difference(pairs):
    """Mean of the differences with its 95 % interval."""
    values = [one - other for one, other in pairs]
    middle = statistics.fmean(values)
    half = T[min(len(values), len(T) + 1) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{middle:9.1f} [{middle - half:.1f}, {middle + half:.1f}]"


def measure(servers, given, settings, load, place):
    rows = {name: [] for name in servers}
    names = list(servers)
    version = servers["plain"].sql("SHOW server_version")[0]
    for number in range(-1, given.rounds):
        random.shuffle(names)
        for name in names:
            if load == "tpcb":
                servers[name].sql("CHECKPOINT")
            found = sampled(servers[name], place, LOADS[load])
            # The first one fills caches.
            if number < 0:
                continue
            rows[name].append(found)
            if given.rows:
                named = {"version": version, "settings": settings, "load": load}
                named |= {"round": number, "arm": name}
                print(json.dumps(named | found), file=given.rows, flush=True)
    print(f"{load}, {settings}: milliseconds of a CPU")
    heads = "".join(f"{name:>9}" for name in servers)
    print(f"    {'':10}{heads}   control less plain, sealed less both")
    for part in [*PARTS, "all", "seconds"]:
        value = {arm: [row[part] for row in of_arm] for arm, of_arm in rows.items()}
        if part == "seconds":
            value = {arm: [seconds * 1e3 for seconds in of] for arm, of in value.items()}
        base = [(a + b) / 2 for a, b in zip(value["plain"], value["control"])]
        medians = "".join(f"{statistics.median(value[name]):9.1f}" for name in servers)
        control = difference([*zip(value["control"], value["plain"])])
        sealed = difference([*zip(value["sealed"], base)])
        print(f"    {part:10}{medians} {control}  {sealed}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(options)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--scale", type=int, default=10, help="of pgbench's tables")
    options.add_argument("--loads", default=",".join(LOADS))
    options.add_argument("--shared-buffers", default="8MB")
    options.add_argument("--settings", default="", help="others: io_method=sync,NAME=VALUE")
    given = options.parse_args()
    loads = given.loads.split(",")
    if given.rounds < 2 or set(loads) - set(LOADS):
        options.error(f"--rounds is 2 at least, --loads are of {', '.join(LOADS)}")
    random.seed(given.seed)
    settings = f"shared_buffers={given.shared_buffers},{given.settings}".rstrip(",")
    lines = settings.replace(",", "\n") + "\n"
    with servers_of(given, SETTINGS + lines) as (place, servers):
        for server in servers.values():
            server.loaded("-i", "-s", given.scale, "-q")
            for statement in ("CREATE TABLE bulk (n bigint, text text)", "VACUUM", "CHECKPOINT"):
                server.sql(statement)
        for load in loads:
            measure(servers, given, settings, load, place)


main()
