"""Workers of multiprocessing that commit to one database, started by fork and by spawn.

    sqlite_workers.py DIRECTORY TEXT

Prints for each way how many rows there are, by how many workers, and what SQLite says of the file.
The first task of each worker waits until all of them have one.
"""

import multiprocessing
import os
import sqlite3
import sys

WORKERS, ROWS = 3, 60
started = None


def begin(barrier):
    global started
    started = barrier


def insert(task):
    path, text, number = task
    if number < WORKERS:
        started.wait(timeout=60)
    database = sqlite3.connect(path, timeout=60)
    with database:
        database.execute("INSERT INTO t VALUES (?, ?, ?)", (number, os.getpid(), text))
    database.close()


def main():
    directory, text = sys.argv[1:]
    for way in ("fork", "spawn"):
        path = os.path.join(directory, f"{way}.db")
        # Closed before the workers begin: SQLite takes no connection over a fork.
        database = sqlite3.connect(path)
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, worker INTEGER, text TEXT)")
        database.close()
        context = multiprocessing.get_context(way)
        barrier = context.Barrier(WORKERS)
        with context.Pool(WORKERS, begin, (barrier,)) as pool:
            tasks = [(path, text, number) for number in range(ROWS)]
            pool.map(insert, tasks, chunksize=1)
        database = sqlite3.connect(path)
        counts = "SELECT count(*), count(DISTINCT worker) FROM t"
        rows, workers = database.execute(counts).fetchone()
        (checked,) = database.execute("PRAGMA integrity_check").fetchone()
        print(way, rows, workers, checked)
        database.close()


if __name__ == "__main__":
    main()
