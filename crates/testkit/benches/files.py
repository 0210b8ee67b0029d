#!/usr/bin/env python3
"""What PostgreSQL's work on many files costs, and a base backup: plain, control, sealed in turns.

    first_row   one row into each of 2,000 empty tables, in one transaction
    checkpoint  the one after it
    start       after a kill, with 20,000 tables: the walk that syncs each file, and recovery
    backup      pg_basebackup of 900 MB; of a sealed server into a directory with keys of its own
    unverified  the same, and the server compares no checksums of pages
    disk        bytes that the tables of `start` take

CPU time is that of all processes of a server, and of pg_basebackup; seconds are those of the clock.
Prints ratios: geometric means over the rounds, with Student's 95 % interval of their logarithms.
`--peer FILE` adds a server of another encryption, as the lab's file of it says.
`--rows FILE` keeps each measurement as a line of JSON.
"""

import argparse
import ctypes
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

from private_servers import (
    add_options,
    cpu,
    interval,
    of_running,
    peer_of,
    postmaster,
    servers_of,
)

FEW, SCALE = 2_000, 60
PR_SET_CHILD_SUBREAPER = 36
SETTINGS = """
shared_buffers = 256MB
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 16GB
max_locks_per_transaction = 1024
max_parallel_maintenance_workers = 0
listen_addresses = ''
"""


class Session:
    """One connection, so that no process of its server ends while it is measured."""

    def __init__(self, server):
        pipe = subprocess.PIPE
        command = [server.programs / "psql", "-XAtq", "-U", "postgres", "-v", "ON_ERROR_STOP=1"]
        self.psql = subprocess.Popen(
            command, env=server.environment, stdin=pipe, stdout=pipe, text=True
        )

    def run(self, statement):
        self.psql.stdin.write(f"{statement};\n\\echo done\n")
        self.psql.stdin.flush()
        if self.psql.stdout.readline() != "done\n":
            sys.exit(f"error: {statement[:60]} failed")

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()


def measured(server, work):
    """CPU seconds of the server and seconds of the clock."""
    before, began = cpu(server), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    return {"cpu": cpu(server) - before, "seconds": seconds}


def loop(session, tables, statement):
    """A statement for each table, whose number is `%s`; in parts that leave room for locks."""
    for first in range(1, tables + 1, FEW):
        body = f"EXECUTE format('{statement}', n)"
        last = min(first + FEW - 1, tables)
        session.run(f"DO $$ BEGIN FOR n IN {first}..{last} LOOP {body}; END LOOP; END $$")


def small_tables(server):
    session = Session(server)
    loop(session, FEW, "CREATE TABLE few_%s (n int)")
    session.run("CHECKPOINT")
    rows = measured(server, lambda: loop(session, FEW, "INSERT INTO few_%s VALUES (1)"))
    checkpoint = measured(server, lambda: session.run("CHECKPOINT"))
    loop(session, FEW, "DROP TABLE few_%s")
    session.run("CHECKPOINT")
    session.close()
    return {"first_row": rows, "checkpoint": checkpoint}


def kill(server):
    """As the end of a machine, but for what the kernel has."""
    first = postmaster(server)
    # The postmaster first, or it would answer for its children.
    pids = sorted(map(int, of_running(first)), key=lambda pid: pid != first)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for pid in pids:
        # They have become ours. What is not reaped holds its lock file.
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass


def start_again(server):
    kill(server)
    began = time.perf_counter()
    server.start()
    return {"start": {"seconds": time.perf_counter() - began}}


def children_cpu():
    used = os.times()
    return used.children_user + used.children_system


def backups(server, place):
    options = {"backup": [], "unverified": ["--no-verify-checksums"]}
    order = random.sample([*options], len(options))
    found = {name: backup(server, place, options[name]) for name in order}
    return {name: found[name] for name in options}


def backup(server, place, options):
    target = place / "copy"
    before = []
    if server.before:
        tidelock = server.before[0]
        init = [tidelock, "init", target, "--no-recovery", "--provider", f"file:{place}/home/copy"]
        subprocess.run(init, check=True, env=server.environment, capture_output=True)
        before = [tidelock, "exec", "-D", str(target), "--"]
    command = [*before, server.programs / "pg_basebackup", "-D", target, "-U", "postgres"]
    command += ["--checkpoint=fast", "--no-sync", "--wal-method=none", "--no-manifest"]
    command += options

    def run():
        done = subprocess.run(command, env=server.environment, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"error: pg_basebackup: {done.stderr.decode()}")

    own = children_cpu()
    found = measured(server, run)
    found["cpu"] += children_cpu() - own
    shutil.rmtree(target)
    if server.before:
        (place / "home" / "copy").unlink()
    return found


def disk(server):
    blocks = sum(path.lstat().st_blocks for path in (server.data / "base").rglob("*"))
    return {"disk": {"bytes": blocks * 512}}


def rounds(servers, given, what, work):
    """Rows of each arm; in each round the servers in another order."""
    rows = {name: [] for name in servers}
    names = list(servers)
    for number in range(-1, given.rounds):
        random.shuffle(names)
        for name in names:
            found = work(servers[name])
            # The first one fills caches.
            if number < 0:
                continue
            rows[name].append(found)
            if given.rows:
                named = {"round": number, "arm": name, **found}
                print(json.dumps(named), file=given.rows, flush=True)
    for part in rows["plain"][0] if rows["plain"] else []:
        for unit in rows["plain"][0][part]:
            value = {arm: [row[part][unit] for row in of_arm] for arm, of_arm in rows.items()}
            base = [math.sqrt(a * b) for a, b in zip(value["plain"], value["control"])]
            medians = ", ".join(f"{arm} {statistics.median(of):.4g}" for arm, of in value.items())
            print(f"{part}, {unit}: {medians}")
            print(f"    control / plain      {interval([*zip(value['control'], value['plain'])])}")
            for arm in [arm for arm in value if arm not in ("plain", "control")]:
                print(f"    {arm} / both plain  {interval([*zip(value[arm], base)])}", flush=True)
    if not rows["plain"]:
        sys.exit(f"error: no round of {what}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(options)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--parts", default="few,start,backup")
    options.add_argument("--peer", help="the lab's file of a peer that --bin has: one more server")
    options.add_argument("--many", type=int, default=20_000, help="tables before a start")
    given = options.parse_args()
    parts = given.parts.split(",")
    if given.rounds < 2 or set(parts) - {"few", "start", "backup"}:
        options.error("--rounds is 2 at least, --parts are of few, start, backup")
    random.seed(given.seed)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    peer = peer_of(given.peer) if given.peer else None
    with servers_of(given, SETTINGS, peer) as (place, servers):
        if "few" in parts:
            rounds(servers, given, "few", small_tables)
        if "backup" in parts:
            for server in servers.values():
                server.loaded("-i", "-s", SCALE, "-q")
                server.sql("CHECKPOINT")
            rounds(servers, given, "backup", lambda server: backups(server, place))
            for server in servers.values():
                server.sql("DROP TABLE pgbench_accounts")
        if "start" in parts:
            before = {name: disk(server)["disk"]["bytes"] for name, server in servers.items()}
            for server in servers.values():
                session = Session(server)
                loop(session, given.many, "CREATE TABLE many_%s (n int)")
                loop(session, given.many, "INSERT INTO many_%s VALUES (1)")
                session.run("CHECKPOINT")
                session.close()
            for name, server in servers.items():
                grown = disk(server)["disk"]["bytes"] - before[name]
                print(f"disk of {given.many} tables with one row: {name} {grown / 1e6:.1f} MB")
                if given.rows:
                    print(json.dumps({"arm": name, "disk": {"bytes": grown}}), file=given.rows)
            rounds(servers, given, "start", start_again)


main()
