"""Prints what each of several processes may do while another one has a lock: sqlite_locks.py DIR

The parent tells the child by a pipe what to run, and waits for the answer: nothing depends on time.
"""

import os
import signal
import sqlite3
import subprocess
import sys


class Other:
    """A connection in a forked process."""

    def __init__(self, path):
        down, self.to = os.pipe()
        self.back, up = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self.to)
            os.close(self.back)
            self.serve(path, os.fdopen(down), os.fdopen(up, "w"))
            os._exit(0)
        os.close(down)
        os.close(up)
        self.to, self.back = os.fdopen(self.to, "w"), os.fdopen(self.back)

    @staticmethod
    def serve(path, down, up):
        database = sqlite3.connect(path, timeout=0, isolation_level=None)
        for line in down:
            try:
                if line.startswith("another"):
                    # SQLite puts off the close that would drop this process's locks.
                    again = sqlite3.connect(path, timeout=0)
                    answer = repr(again.execute("SELECT count(*) FROM t").fetchall())
                    again.close()
                else:
                    answer = repr(database.execute(line).fetchall())
            except sqlite3.Error as error:
                answer = f"{type(error).__name__}: {error}"
            print(answer, file=up, flush=True)

    def run(self, statement):
        print(statement, file=self.to, flush=True)
        return self.back.readline().rstrip()

    def kill(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def end(self):
        self.to.close()
        os.waitpid(self.process, 0)


def shell(path, statement):
    """The same by sqlite3, which has no connection of this program."""
    done = subprocess.run(["sqlite3", "-batch", path, statement], capture_output=True, text=True)
    return f"{done.stdout.strip()!r} {done.stderr.strip()!r}"


def main(directory):
    for mode in ["delete", "persist", "wal"]:
        path = os.path.join(directory, f"{mode}.db")
        table = "CREATE TABLE t (a); INSERT INTO t VALUES (1)"
        print(mode, shell(path, f"PRAGMA journal_mode={mode}; {table}"))
        one, two = Other(path), Other(path)
        for who, name, statement in [
            (one, "one", "BEGIN"),
            (one, "one", "SELECT count(*) FROM t"),
            (two, "two", "BEGIN IMMEDIATE"),
            (two, "two", "INSERT INTO t VALUES (2)"),
            (one, "one", "INSERT INTO t VALUES (3)"),
            (two, "two", "COMMIT"),
            (one, "one", "COMMIT"),
            (two, "two", "COMMIT"),
            (one, "one", "BEGIN IMMEDIATE"),
            (two, "two", "BEGIN IMMEDIATE"),
            (two, "two", "SELECT count(*) FROM t"),
            (one, "one", "INSERT INTO t VALUES (4)"),
        ]:
            print(mode, name, statement, who.run(statement))
        print(mode, "sqlite3 reads", shell(path, "SELECT count(*) FROM t"))
        print(mode, "sqlite3 writes", shell(path, "INSERT INTO t VALUES (5)"))
        print(mode, "one", "another connection opens and closes", one.run("another"))
        print(mode, "two writes", two.run("INSERT INTO t VALUES (6)"))
        # Death takes the lock, and the change with it.
        one.kill()
        print(mode, "two writes", two.run("INSERT INTO t VALUES (7)"))
        print(mode, "two reads", two.run("SELECT a FROM t ORDER BY a"))
        print(mode, "exclusive", two.run("BEGIN EXCLUSIVE"))
        print(mode, "sqlite3 reads", shell(path, "SELECT count(*) FROM t"))
        print(mode, "end", two.run("ROLLBACK"))
        two.end()
        print(mode, shell(path, "SELECT count(*) FROM t; PRAGMA integrity_check"))


main(sys.argv[1])
