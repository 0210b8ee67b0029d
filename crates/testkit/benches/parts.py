#!/usr/bin/env python3
"""Where the CPU time of a sealed PostgreSQL goes: the cipher, the library, libc, kernel, server.

Plain, control and sealed do the same work in turns, in an order that is drawn, while perf samples
all processes of their server by the CPU's clock:

    scan         serial scans of pgbench_accounts
    read_only    pgbench -S
    new          the same with a new connection for each transaction
    connections  the same by 1,000 connections, which are made first
    tpcb         pgbench, after a checkpoint and with the next one
    bulk         INSERT of a million rows, and a checkpoint

A part's milliseconds are those of its samples, so that they are of a CPU; the last two lines are
the CPU time that the kernel counts, and the clock's. perf makes each fork dearer, and a process has
no sample in its first half of a millisecond: measure connections with --no-parts. "library" has
AWS-LC's code around the cipher too, "server" all other shared objects. Prints medians, control less
plain, and sealed less the mean of both: means over the rounds, with Student's 95 % interval, which
knows nothing of what two equal servers differ by. `--rows FILE` keeps the machine, then each trial
as a line of JSON, with the symbols that have most samples in each part. Needs perf, and a
kernel.perf_event_paranoid of 1 or less.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from private_servers import add_options, cpu, interval, mean, of_running, postmaster, servers_of

HERTZ = 1999
SETTINGS = """
max_connections = 1010
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 16GB
max_parallel_workers_per_gather = 0
listen_addresses = ''
"""
ARMS = ["plain", "control", "sealed"]
PARTS = ["cipher", "library", "libc", "kernel", "server"]
CIPHER = re.compile(r"^(?!.*tidelock).*(aes_hw_|aesni_|_xts|xts_|gcm|ghash)|tidelock_ffi::vaes")
KERNEL = re.compile(r"^\[(guest\.)?kernel|\.ko(\.\w+)?$")
LIBC = re.compile(r"/(libc|libm|ld-linux[^/]*)(\.so|-\d)|^\[vdso\]")
KEPT_SYMBOLS = 12
# The least part of the CPU time that is in samples.
SEEN = 0.6


def part_of(symbol, program):
    if "libtidelock" in program:
        return "cipher" if CIPHER.search(symbol) else "library"
    if KERNEL.search(program):
        return "kernel"
    return "libc" if LIBC.search(program) else "server"


def used(server, given, work):
    """Milliseconds of a CPU that the kernel counts while `work` runs, and of the clock."""
    first = postmaster(server)
    before, began = cpu(server), time.perf_counter()
    pids = of_running(first).keys()
    work(server, given)
    seconds = time.perf_counter() - began
    # Backends end after their clients.
    for _ in range(3_000):
        if not of_running(first).keys() - pids:
            break
        time.sleep(0.01)
    else:
        sys.exit(f"error: backends of {server.data} do not end")
    return {"counted": (cpu(server) - before) * 1e3, "clock": seconds * 1e3}


def sampled(server, given, place, work):
    """The same, with the milliseconds in each part and in the dearest symbols of each."""
    data = place / "perf.data"
    data.unlink(missing_ok=True)
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-o", data]
    pids = ",".join(of_running(postmaster(server)))
    quiet = subprocess.DEVNULL
    perf = subprocess.Popen([*record, "-p", pids], stdout=quiet, stderr=quiet)
    try:
        time.sleep(0.5)
        if perf.poll() is not None:
            sys.exit("error: perf cannot sample the server: see kernel.perf_event_paranoid")
        found = used(server, given, work)
    finally:
        perf.send_signal(signal.SIGINT)
        perf.wait()
    script = ["perf", "script", "-F", "period,ip,sym,dso", "-i", data]
    told = subprocess.run(script, check=True, capture_output=True).stdout.decode(errors="replace")
    parts = dict.fromkeys(PARTS, 0.0)
    symbols = {part: collections.Counter() for part in PARTS}
    for line in told.splitlines():
        sample = re.match(r"\s*(\d+)\s+[0-9a-f]+\s+(.*) \(([^()]*(?:\(deleted\))?)\)$", line)
        if not sample:
            sys.exit(f"error: perf script printed {line!r}")
        milliseconds, part = int(sample[1]) / 1e6, part_of(sample[2], sample[3])
        parts[part] += milliseconds
        symbols[part][sample[2].split("+")[0]] += milliseconds
    parts["all"] = sum(parts.values())
    if parts["all"] < 100 or parts["kernel"] == 0 or parts["all"] < SEEN * found["counted"]:
        seen = f"{parts['all']:.0f} ms in samples, {parts['kernel']:.0f} of them in the kernel"
        of_all = f"of {found['counted']:.0f} ms"
        sys.exit(f"error: {seen}, {of_all}: see kernel.perf_event_paranoid")
    dearest = {part: dict(of_part.most_common(KEPT_SYMBOLS)) for part, of_part in symbols.items()}
    return parts | found | {"symbols": dearest}


def scan(server, _given):
    server.sql(";".join(["SELECT sum(abalance) FROM pgbench_accounts"] * 12))


def read_only(server, given):
    read(server, given.clients, 24_000 // given.clients)


def new(server, given):
    read(server, given.clients, 1_500 // given.clients, "-C")


def connections(server, given):
    read(server, 1_000, given.reads)


def read(server, clients, transactions, *more):
    jobs = 1 if clients < 100 else 2
    server.loaded("-S", "-c", clients, "-j", jobs, "-t", transactions, "--random-seed", 7, *more)


def tpcb(server, given):
    transactions = 3_000 // given.clients
    server.loaded("-c", given.clients, "-j", 1, "-t", transactions, "--random-seed", 7)
    server.sql("CHECKPOINT")


def bulk(server, _given):
    rows = "SELECT n, 'a row of no length to speak of' FROM generate_series(1, 1000000) n"
    server.sql(f"TRUNCATE bulk; INSERT INTO bulk {rows}")
    server.sql("CHECKPOINT")


LOADS = {
    "scan": scan,
    "read_only": read_only,
    "new": new,
    "connections": connections,
    "tpcb": tpcb,
    "bulk": bulk,
}


def difference(pairs):
    """Mean of the differences with its 95 % interval."""
    low, middle, high = mean([one - other for one, other in pairs])
    return f"{middle:9.1f} [{low:.1f}, {high:.1f}]"


def measure(servers, given, settings, load, place):
    rows = {name: [] for name in servers}
    names = list(servers)
    version = servers["plain"].sql("SHOW server_version")[0]
    for number in range(-1, given.rounds):
        random.shuffle(names)
        for name in names:
            if load == "tpcb":
                servers[name].sql("CHECKPOINT")
            # Another backend's end is no part of it, and perf refuses what has ended.
            time.sleep(0.3)
            if given.parts:
                found = sampled(servers[name], given, place, LOADS[load])
            else:
                found = used(servers[name], given, LOADS[load])
            # The first one fills caches.
            if number < 0:
                continue
            rows[name].append(found)
            if given.rows:
                named = {"version": version, "settings": settings, "load": load}
                named |= {"scale": given.scale, "clients": given.clients, "reads": given.reads}
                named |= {"round": number, "arm": name}
                print(json.dumps(named | found), file=given.rows, flush=True)
    print(f"{load}, {settings}: milliseconds")
    heads = "".join(f"{name:>9}" for name in ARMS)
    print(f"    {'':10}{heads}   control less plain, sealed less both")
    for part in [*(PARTS + ["all"] if given.parts else []), "counted", "clock"]:
        value = {arm: [row[part] for row in rows[arm]] for arm in ARMS}
        base = [(a + b) / 2 for a, b in zip(value["plain"], value["control"])]
        medians = "".join(f"{statistics.median(value[name]):9.1f}" for name in ARMS)
        control = difference([*zip(value["control"], value["plain"])])
        sealed = difference([*zip(value["sealed"], base)])
        ratio = interval([*zip(value["sealed"], base)])
        print(f"    {part:10}{medians} {control}  {sealed}  {ratio}", flush=True)


def machine():
    """When and on what a run was made."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    processors = os.cpu_count()
    return {"begun": begun, "cpu": model[1], "processors": processors, "kernel": os.uname().release}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(options)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--scale", type=int, default=10, help="of pgbench's tables")
    options.add_argument("--loads", default="scan,read_only,tpcb,bulk")
    options.add_argument("--shared-buffers", default="8MB")
    no = argparse.BooleanOptionalAction
    options.add_argument("--parts", action=no, default=True, help="without perf: the count alone")
    options.add_argument("--clients", type=int, default=2, help="of pgbench's loads")
    options.add_argument("--reads", type=int, default=50, help="of each of 1,000 connections")
    options.add_argument("--settings", default="", help="others: io_method=sync,NAME=VALUE")
    given = options.parse_args()
    loads = given.loads.split(",")
    if given.rounds < 2 or set(loads) - set(LOADS):
        options.error(f"--rounds is 2 at least, --loads are of {', '.join(LOADS)}")
    if given.parts and not shutil.which("perf"):
        options.error("perf is not installed; --no-parts counts without it")
    random.seed(given.seed)
    settings = f"shared_buffers={given.shared_buffers},{given.settings}".rstrip(",")
    lines = settings.replace(",", "\n") + "\n"
    with servers_of(given, SETTINGS + lines) as (place, servers):
        for server in servers.values():
            server.loaded("-i", "-s", given.scale, "-q")
            for statement in ("CREATE TABLE bulk (n bigint, text text)", "VACUUM", "CHECKPOINT"):
                server.sql(statement)
        if given.rows:
            print(json.dumps({"run": machine()}), file=given.rows, flush=True)
        for load in loads:
            measure(servers, given, settings, load, place)


main()
