#!/usr/bin/env python3
"""Where the latency of a sealed PostgreSQL comes from.

Four arms get pgbench's load at a fixed rate, one after the other, in slices whose order is drawn: a
plain server, another one as control, a sealed one, and `busier`. That is a plain server at a rate
that is higher by a factor R, with each latency multiplied by R. A queue whose every service takes R
times as long is such a queue, only slower. So `busier` shows what CPU time alone does to latencies,
and sealed over busier is what remains for anything else: waits, wake-ups, page faults. `idle` is
the share of all CPUs' time that was left: the less of it, the longer the queue that more work
makes.

A transaction's latency counts from its scheduled moment. The middle of each slice counts: its ends
have new connections in them. For that time the kernel says, of the server's backends, the time on a
CPU, the time in which they were ready and had none, and how often they slept, were put aside and
met page faults. Prints ratios: geometric means over the rounds, with Student's 95 % interval of
their logarithms. `--rows FILE` keeps each slice as a line of JSON: times of a transaction in
microseconds.
"""

import argparse
import json
import math
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from private_servers import add_options, interval, servers_of

CLIENTS = 4
WARM = 60
# pgbench's options of each load, its scale, and whether full-page images are used up first.
LOADS = {
    "read_only": (["-S"], 25, False),
    "tpcb": ([], 25, False),
    "tpcb_warm": ([], 10, True),
}
SETTINGS = """
shared_buffers = 128MB
max_connections = 20
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 16GB
listen_addresses = ''
"""
COUNTED = ["cpu", "ready", "slept", "preempted", "faults"]


def backends(server):
    """The process ids of pgbench's connections."""
    all_of = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' ORDER BY pid"
    pids = server.sql(all_of)
    if len(pids) != CLIENTS:
        sys.exit(f"error: {len(pids)} connections instead of {CLIENTS}")
    return pids


def used(pids):
    """Of each of these processes: microseconds on a CPU and ready, and counts."""
    total = dict.fromkeys(COUNTED, 0)
    for pid in pids:
        on, ready, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
        status = Path(f"/proc/{pid}/status").read_text()
        # The name of the program is in brackets and may have blanks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total["cpu"] += on / 1e3
        total["ready"] += ready / 1e3
        total["slept"] += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[1])
        total["preempted"] += int(re.search(r"nonvoluntary_ctxt_switches:\s+(\d+)", status)[1])
        total["faults"] += int(fields[7])
    return total


def ticks_of_cpus():
    """Ticks of all CPUs since the start: those without work, and all of them."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    # After user, nice and system come idle and the wait for a disk.
    return ticks[3] + ticks[4], sum(ticks)


def ended_between(logs, begin, end):
    """Microseconds that each transaction of that time took, in their order by length."""
    latencies = []
    for log in logs.iterdir():
        for line in log.read_text().splitlines():
            _, _, took, _, epoch, micros, *_ = line.split()
            if begin <= int(epoch) + int(micros) / 1e6 < end:
                latencies.append(int(took))
    return sorted(latencies)


def calls_of(server, options, scale, rate, logs):
    """The backends' system calls by strace: how many of each a transaction makes."""
    for left in logs.iterdir():
        left.unlink()
    bench = server.pgbench(
        *options, "-s", scale, "-c", CLIENTS, "-j", 2, "-T", 6, "-R", f"{rate:.3f}",
        "-l", "--log-prefix", logs / "calls",
    )  # fmt: skip
    time.sleep(1)
    table = server.data.parent / "calls"
    traced = ["strace", "-qq", "-f", "-c", "-U", "name,calls", "-o", table]
    traced += [word for pid in backends(server) for word in ("-p", pid)]
    begin = time.time()
    strace = subprocess.Popen(traced, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(3)
    strace.send_signal(signal.SIGINT)
    strace.wait()
    end = time.time()
    bench.communicate()
    transactions = len(ended_between(logs, begin, end))
    rows = (line.split() for line in table.read_text().splitlines())
    return {row[0]: int(row[1]) / transactions for row in rows if row[-1].isdigit()}


def tell_calls(servers, options, scale, rate, logs):
    plain, sealed = (calls_of(servers[n], options, scale, rate, logs) for n in ("plain", "sealed"))
    for name in sorted((plain | sealed).keys() - {"total"}, key=lambda n: -sealed.get(n, 0)):
        one, other = plain.get(name, 0), sealed.get(name, 0)
        if max(one, other) >= 0.001:
            print(f"    {name:20} plain {one:8.3f}, sealed {other:8.3f} a transaction")


def slice_of(server, options, scale, rate, seconds, logs):
    """One slice at `rate` transactions a second: what each of them took, on the average."""
    for left in logs.iterdir():
        left.unlink()
    prefix = logs / "slice"
    bench = server.pgbench(
        *options, "-s", scale, "-c", CLIENTS, "-j", 2, "-T", seconds, "-R", f"{rate:.3f}",
        "-l", "--log-prefix", prefix, "--random-seed", random.randrange(1 << 30),
    )  # fmt: skip
    time.sleep(0.5)
    pids = backends(server)
    begin, before, (idle, ticks) = time.time(), used(pids), ticks_of_cpus()
    time.sleep(seconds - 1.2)
    end, after, (idle_then, ticks_then) = time.time(), used(pids), ticks_of_cpus()
    text = bench.communicate()[0].decode()
    if bench.returncode != 0:
        sys.exit(f"error: pgbench ended with {bench.returncode}: {text}")
    latencies = ended_between(logs, begin, end)
    if len(latencies) < 100:
        sys.exit(f"error: {len(latencies)} transactions in a slice say nothing")
    found = {key: (after[key] - before[key]) / len(latencies) for key in COUNTED}
    found["idle"] = (idle_then - idle) / (ticks_then - ticks)
    found["mean"] = statistics.fmean(latencies)
    for share in (50, 95, 99):
        found[f"p{share}"] = latencies[min(len(latencies) - 1, len(latencies) * share // 100)]
    # Asleep: in the network, a lock, the disk; and all that passed before the backend was reached.
    found["elsewhere"] = found["mean"] - found["cpu"] - found["ready"]
    return found


def measure(servers, given, load, share, keep, logs):
    options, scale, warm = LOADS[load]
    plain = servers["plain"]
    for server in servers.values():
        server.loaded("-i", "-s", scale, "-q")
        server.sql("CHECKPOINT")
        if warm:
            server.loaded(*options, "-s", scale, "-c", CLIENTS, "-j", 2, "-T", WARM)
        else:
            server.loaded(*options, "-s", scale, "-c", CLIENTS, "-j", 2, "-T", 10)
    speeds = [
        float(re.search(r"tps = ([\d.]+)", plain.loaded(*options, "-s", scale, "-c", CLIENTS,
                                                        "-j", 2, "-T", 3))[1])
        for _ in range(3)
    ]  # fmt: skip
    rate = share * statistics.median(speeds)
    print(f"{load}, {share:.0%} of {statistics.median(speeds):.0f} a second", flush=True)
    if given.calls:
        tell_calls(servers, options, scale, rate, logs)
    arms = ["plain", "control", "sealed", "busier"]
    found = {arm: [] for arm in arms}
    if not given.rounds:
        return
    for block in range(given.rounds):
        random.shuffle(arms)
        for arm in arms:
            more = given.factor if arm == "busier" else 1.0
            # Both plain servers stand for the busier one, in turns.
            name = ("plain", "control")[block % 2] if arm == "busier" else arm
            if not warm and load != "read_only":
                servers[name].sql("CHECKPOINT")
            row = slice_of(servers[name], options, scale, rate * more, given.seconds, logs)
            if arm == "busier":
                for key in ("mean", "p50", "p95", "p99", "cpu", "ready", "elsewhere"):
                    row[key] *= more
            found[arm].append(row)
            if keep:
                named = {"load": load, "share": share, "block": block, "arm": arm, **row}
                print(json.dumps(named), file=keep, flush=True)
    print(f"{'':12}" + "".join(f"{arm:>12}" for arm in found))
    keys = ["mean", "p50", "p95", "p99", "elsewhere", "idle", *COUNTED]
    for key in keys:
        medians = [statistics.median(row[key] for row in rows) for rows in found.values()]
        print(f"{key:12}" + "".join(f"{value:12.3f}" for value in medians))
    base = [
        {key: math.sqrt(max(0, a[key]) * max(0, b[key])) for key in keys}
        for a, b in zip(found["plain"], found["control"])
    ]
    for name, one, other in (
        ("control / plain", found["control"], found["plain"]),
        ("sealed / both plain", found["sealed"], base),
        ("busier / both plain", found["busier"], base),
        ("sealed / busier", found["sealed"], found["busier"]),
    ):
        print(name)
        for key in keys:
            print(f"    {key:12}" + interval([(a[key], b[key]) for a, b in zip(one, other)]))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(options)
    options.add_argument("--rounds", type=int, default=20, help="0 for the calls alone")
    options.add_argument("--seconds", type=int, default=4, help="of a slice")
    options.add_argument("--loads", default=",".join(LOADS))
    options.add_argument("--shares", default="0.4,0.7", help="of a plain server's capacity")
    options.add_argument("--factor", type=float, default=1.03, help="of the CPU time of `busier`")
    options.add_argument("--calls", action="store_true", help="count system calls first (strace)")
    given = options.parse_args()
    if unknown := set(given.loads.split(",")) - set(LOADS):
        options.error(f"no such load: {', '.join(unknown)}")
    random.seed(given.seed)
    with servers_of(given, SETTINGS) as (place, servers):
        (place / "logs").mkdir(mode=0o700)
        for load in given.loads.split(","):
            for share in given.shares.split(","):
                measure(servers, given, load, float(share), given.rows, place / "logs")


main()
