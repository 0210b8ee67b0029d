"""Commits numbers to an engine and acknowledges them, or checks what is there.

engine.py duckdb|rocksdb|redis write DIR RECORD
    Commits one number after the other behind those that are there, until it is killed. Appends
    "a NUMBER" to RECORD when a commit has returned.
engine.py duckdb|rocksdb|redis check DIR
    Prints "ok" if the values are those of their numbers, then "a NUMBER" for each.
"""

import hashlib
import os
import socket
import subprocess
import sys
import time


def content(number):
    """What the number must have, of every length up to 8 KiB."""
    seed = hashlib.sha256(b"%d" % number).hexdigest()
    return (seed * 128)[: int(seed[:8], 16) % 8192]


class Duckdb:
    def __init__(self, directory):
        import duckdb

        self.database = duckdb.connect(os.path.join(directory, "app.duckdb"))
        # Checkpoints in the middle of everything.
        self.database.execute("PRAGMA checkpoint_threshold='64KB'")
        table = "t (number BIGINT PRIMARY KEY, content TEXT)"
        self.database.execute(f"CREATE TABLE IF NOT EXISTS {table}")

    def commit(self, number):
        self.database.execute("INSERT INTO t VALUES (?, ?)", [number, content(number)])

    def all(self):
        return dict(self.database.execute("SELECT * FROM t").fetchall())


class Rocksdb:
    def __init__(self, directory):
        import rocksdict

        # RocksDB's own keys and values. The wheel keeps its other types in a file that it never
        # syncs, which a power cut empties.
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        # Flushes and compactions in the middle of everything.
        options.set_write_buffer_size(128 << 10)
        self.database = rocksdict.Rdict(os.path.join(directory, "app"), options)
        self.sync = rocksdict.WriteOptions()
        self.sync.sync = True

    def commit(self, number):
        self.database.put(b"%d" % number, content(number).encode(), self.sync)

    def all(self):
        return {int(number): value.decode() for number, value in self.database.items()}


class Redis:
    def __init__(self, directory):
        address = os.path.join(directory, "socket")
        words = ["--port", "0", "--unixsocket", address, "--dir", directory, "--appendonly", "yes"]
        words += ["--appendfsync", "always", "--save", "", "--daemonize", "no", "--logfile", "log"]
        # The log of appends is written again in the middle of everything.
        words += ["--auto-aof-rewrite-min-size", "64kb", "--auto-aof-rewrite-percentage", "20"]
        self.server = subprocess.Popen(["redis-server", *words])
        self.client = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.client.connect(address)
                self.read = self.client.makefile("rb")
                if self.ask("PING") == "PONG":
                    break
                self.client.close()
                self.client = socket.socket(socket.AF_UNIX)
            except (FileNotFoundError, ConnectionRefusedError):
                pass
            assert self.server.poll() is None, "the server ended"
            time.sleep(0.02)

    def ask(self, *words):
        words = [str(word).encode() for word in words]
        parts = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.client.sendall(b"*%d\r\n%s" % (len(words), parts))
        return self.answer()

    def answer(self):
        line = self.read.readline().rstrip()
        kind, rest = line[:1], line[1:].decode()
        if kind == b"$":
            return self.read.read(int(rest) + 2)[:-2].decode() if rest != "-1" else None
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        return rest

    def commit(self, number):
        assert self.ask("SET", number, content(number)) == "OK"

    def all(self):
        numbers = self.ask("KEYS", "*")
        return {int(number): self.ask("GET", number) for number in numbers}

    def end(self):
        self.server.kill()
        self.server.wait()


def main(name, what, directory, record=None):
    engine = {"duckdb": Duckdb, "rocksdb": Rocksdb, "redis": Redis}[name](directory)
    found = engine.all()
    if what == "write":
        acknowledged = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        number = len(found)
        while True:
            number += 1
            engine.commit(number)
            os.write(acknowledged, b"a %d\n" % number)
    wrong = [str(number) for number, value in found.items() if value != content(number)]
    if sorted(found) != list(range(1, len(found) + 1)):
        wrong.append("numbers are missing")
    print("wrong: " + " ".join(wrong) if wrong else "ok")
    for number in sorted(found):
        print("a", number)
    if name == "redis":
        engine.end()


main(*sys.argv[1:])
