"""Private PostgreSQL servers, plain and sealed, for benchmarks that compare them; and their ratios.

A server is reached by its socket alone, and ends with the benchmark.
"""

import argparse
import contextlib
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

# Student's t, two-sided 95 %, for 1 to 29 degrees of freedom, then for more.
T = (
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
    + [2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]
    + [2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]
)


class Server:
    """A private server, reached by its socket."""

    def __init__(self, place, name, programs, environment, settings, tidelock=None):
        self.data = place / name
        self.sockets = place / f"{name}-socket"
        self.sockets.mkdir()
        self.programs = programs
        self.environment = dict(environment, PGHOST=str(self.sockets), PGDATABASE="postgres")
        self.log = place / f"{name}.log"
        self.before = []
        if tidelock:
            key = f"file:{place}/home/key"
            init = [tidelock, "init", self.data, "--no-recovery", "--provider", key]
            subprocess.run(init, check=True, env=self.environment, capture_output=True)
            self.before = [tidelock, "exec", "-D", str(self.data), "--"]
        self.run("initdb", "-D", self.data, "-A", "trust", "-U", "postgres")
        with open(self.data / "postgresql.conf", "a") as file:
            file.write(settings + f"unix_socket_directories = '{self.sockets}'\n")
        self.start()

    def start(self):
        self.run("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "300", "start")

    def run(self, program, *options):
        command = [*self.before, str(self.programs / program), *map(str, options)]
        quiet = subprocess.DEVNULL
        ended = subprocess.run(
            command, env=self.environment, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE
        )
        if ended.returncode != 0:
            sys.exit(f"error: {command} ended with {ended.returncode}: {ended.stderr.decode()}")

    def sql(self, statement):
        command = [self.programs / "psql", "-XAtqc", statement, "-U", "postgres"]
        done = subprocess.run(command, env=self.environment, check=True, capture_output=True)
        return done.stdout.decode().split()

    def pgbench(self, *options):
        """Started at once; its standard output is kept."""
        command = [self.programs / "pgbench", "-n", "-U", "postgres", *map(str, options)]
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, env=self.environment, stdout=pipe, stderr=quiet)

    def loaded(self, *options):
        """What a whole pgbench printed."""
        bench = self.pgbench(*options)
        text = bench.communicate()[0].decode()
        if bench.returncode != 0:
            sys.exit(f"error: pgbench {options} ended with {bench.returncode}: {text}")
        return text

    def stop(self):
        self.run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")


@contextlib.contextmanager
def servers_of(given, settings, peer=None):
    """A plain server, another as control, and a sealed one, by name; and the folder they lie in.

    A `peer` of `peer_of` is a fourth one, by its name. They are made in an order that is drawn, and
    are to be filled in that of the dictionary. `given` has what `add_options` adds.
    """
    if os.geteuid() == 0:
        sys.exit("error: PostgreSQL refuses root: run this as another user")
    tidelock = str(Path(given.tidelock).resolve())
    with tempfile.TemporaryDirectory(dir=given.under) as place, contextlib.ExitStack() as ends:
        place = Path(place)
        for name in ("home", "run"):
            (place / name).mkdir(mode=0o700)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment = dict(kept, HOME=f"{place}/home", TIDELOCK_RUN_DIR=f"{place}/run")
        # Servers that are made in one order, or have names of another length, are not equal.
        names = ["plain", "control", "sealed"]
        names += [peer["name"]] if peer else []
        random.shuffle(names)
        servers = {}
        for number, name in enumerate(names):
            own = tidelock if name == "sealed" else None
            of_peer = peer and name == peer["name"]
            lines = settings + (peer["settings"] if of_peer else "")
            place_of = f"server{number}"
            server = Server(place, place_of, Path(given.bin), environment, lines, own)
            ends.callback(server.stop)
            if of_peer:
                for statement in peer["sql"]:
                    server.sql(statement)
                server.stop()
                server.start()
            servers[name] = server
        yield place, servers


def peer_of(path):
    """What the lab's file of a peer says of the arm that has the experiment's name.

    Its name, lines of settings, and statements that are run once, before the server starts again.
    """
    file = tomllib.loads(Path(path).read_text())
    arms = [arm for arm in file.get("arm", []) if arm.get("name") == file.get("name")]
    known = {"name", "title", "like", "bin", "settings", "sql", "restart"}
    if len(arms) != 1 or not {"settings", "sql"} <= arms[0].keys() <= known:
        sys.exit(f"error: {path} has no arm of its own name with settings, sql and nothing else")
    lines = [f"{key} = '{value}'\n" for key, value in arms[0]["settings"].items()]
    statements = [part.strip() for part in arms[0]["sql"].split(";")]
    found = {"settings": "".join(lines), "sql": [part for part in statements if part]}
    return {"name": file["name"], **found}


def postmaster(server):
    return int((server.data / "postmaster.pid").read_text().split()[0])


def fields(pid):
    # The name of the program is in brackets and may have blanks.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu(server):
    """Seconds of a CPU that the server's processes have used, those that ended included."""
    first = postmaster(server)
    while True:
        ended, running = of_ended(first), of_running(first)
        # One that ends between the two would be counted nowhere.
        if running.keys() == of_running(first).keys() and ended == of_ended(first):
            return ended + sum(running.values()) / 1e9


def of_ended(first):
    """Seconds of those processes that the postmaster has waited for."""
    return sum(map(int, fields(first)[13:15])) / os.sysconf("SC_CLK_TCK")


def of_running(first):
    """Nanoseconds of the postmaster and each of its children, by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and first in (int(entry.name), int(fields(entry.name)[1])):
                found[entry.name] = int((entry / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def add_options(options):
    """Those that each of these benchmarks has."""
    options.add_argument("--tidelock", default="target/release/tidelock")
    options.add_argument("--bin", default="/usr/lib/postgresql/15/bin", help="of PostgreSQL")
    options.add_argument("--seed", type=int, default=1)
    rows = argparse.FileType("x")
    options.add_argument("--rows", type=rows, help="a new file of all that was measured")
    options.add_argument("--under", default="/var/tmp", help="a folder of the file system")


def interval(pairs):
    """Geometric mean of the ratios with its 95 % interval; no word where one side has a zero."""
    logs = [math.log(one / other) for one, other in pairs if one > 0 and other > 0]
    if len(logs) < max(2, len(pairs)):
        return "-"
    low, middle, high = (math.exp(log) for log in mean(logs))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def mean(values):
    """Of two values or more, between the ends of Student's 95 % interval."""
    middle = statistics.fmean(values)
    half = T[min(len(values), len(T) + 1) - 2] * statistics.stdev(values) / math.sqrt(len(values))
    return middle - half, middle, middle + half
