"""Commits rows to a database of SQLite and acknowledges them, or checks what is there.

sqlite.py write DATABASE MODE RECORD WRITER COUNT
    Opens the database in the journal mode MODE, makes it if need be, and commits COUNT transactions
    after those that are there. Appends "WRITER NUMBER" to RECORD when a commit has returned.
sqlite.py check DATABASE
    Prints "ok" if SQLite and the rows' own sums find nothing wrong, then "WRITER NUMBER" for each.
sqlite.py crash DATABASE MODE
    Commits 400 rows to a new database in the journal mode MODE, and dies by signal 9 in a
    transaction that changes all of them, with pages of it in the database or in the log.
sqlite.py look URI
    Opens a database, asks for its rows and closes it, whatever came of that.
sqlite.py hold DATABASE
    Opens a database, asks for its rows, prints "held" whatever came of that, and closes it when its
    standard input ends. For "-" instead of a path it first prints "waits" and reads one.
sqlite.py checkpoint DATABASE
    Asks SQLite's library for rows and then, whatever came of that, for a checkpoint; prints what it
    answers to the latter.
"""

import contextlib
import ctypes
import hashlib
import os
import signal
import sqlite3
import sys
import time


TABLES = """
CREATE TABLE IF NOT EXISTS rows (writer, number, content, UNIQUE (writer, number));
CREATE TABLE IF NOT EXISTS counts (writer PRIMARY KEY, many);
"""


def content(writer, number):
    """What the row must have: of every length up to four pages, so that rows overflow."""
    seed = hashlib.sha256(f"{writer} {number}".encode()).digest()
    return (seed * 512)[: int.from_bytes(seed[:2], "big") % 16384]


def connect(path):
    return sqlite3.connect(path, timeout=300, isolation_level=None)


def set_journal_mode(database, mode):
    """Two that switch to WAL at once: SQLite tells one that it is locked, whatever its timeout."""
    until = time.monotonic() + 60
    while True:
        try:
            found = database.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
            assert found == mode, found
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def write(path, mode, record, writer, count):
    database = connect(path)
    set_journal_mode(database, mode)
    # FULL promises nothing of a power cut after the journal was deleted; EXTRA syncs its directory.
    database.execute("PRAGMA synchronous=EXTRA")
    # Checkpoints in the middle of everything.
    database.execute("PRAGMA wal_autocheckpoint=16")
    database.executescript(TABLES)
    database.execute("INSERT OR IGNORE INTO counts VALUES (?, 0)", (writer,))
    done = database.execute("SELECT many FROM counts WHERE writer = ?", (writer,))
    first = done.fetchone()[0] + 1
    acknowledged = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in range(first, first + count):
        database.execute("BEGIN IMMEDIATE")
        row = (writer, number, content(writer, number))
        database.execute("INSERT INTO rows VALUES (?, ?, ?)", row)
        database.execute("UPDATE counts SET many = many + 1 WHERE writer = ?", (writer,))
        if number % 7 == 0:
            # Pages become free, and files shrink and grow.
            database.execute("CREATE TABLE gone AS SELECT * FROM rows")
            database.execute("DROP TABLE gone")
        database.execute("COMMIT")
        os.write(acknowledged, b"%s %d\n" % (writer.encode(), number))
        if number % 11 == 0:
            database.execute("VACUUM")


def check(path):
    database = connect(path)
    wrong = [text for (text,) in database.execute("PRAGMA integrity_check") if text != "ok"]
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'counts'").fetchall():
        # Killed before the first commit of all.
        print("; ".join(wrong) or "ok")
        return
    rows = database.execute("SELECT writer, number, content FROM rows ORDER BY 1, 2").fetchall()
    wrong += [f"content of {w} {n}" for w, n, c in rows if c != content(w, n)]
    for writer, many in database.execute("SELECT writer, many FROM counts"):
        if [n for w, n, _ in rows if w == writer] != list(range(1, many + 1)):
            wrong.append(f"numbers of {writer}, which counts {many}")
    print("; ".join(wrong) or "ok")
    for writer, number, _ in rows:
        print(writer, number)


def crash(path, mode):
    database = connect(path)
    set_journal_mode(database, mode)
    # The log keeps all; a cache that is too small has pages written before the commit.
    database.execute("PRAGMA wal_autocheckpoint=0")
    database.execute("PRAGMA cache_size=1")
    database.execute("CREATE TABLE kept (x, filler)")
    database.execute("BEGIN")
    rows = ((x, "x" * 999) for x in range(1, 401))
    database.executemany("INSERT INTO kept VALUES (?, ?)", rows)
    database.execute("COMMIT")
    database.execute("BEGIN")
    database.execute("UPDATE kept SET x = x + 1000, filler = 'y' || substr(filler, 2)")
    os.kill(os.getpid(), signal.SIGKILL)


def look(uri):
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        print(database.execute("SELECT count(*) FROM kept").fetchone())


def hold(path):
    if path == "-":
        print("waits", flush=True)
        path = sys.stdin.readline().strip()
    database = connect(path)
    try:
        database.execute("SELECT count(*) FROM kept").fetchone()
    except sqlite3.Error as error:
        print(error, file=sys.stderr)
    print("held", flush=True)
    sys.stdin.read()
    database.close()


def checkpoint(path):
    library, database = ctypes.CDLL("libsqlite3.so.0"), ctypes.c_void_p()
    library.sqlite3_open(os.fsencode(path), ctypes.byref(database))
    library.sqlite3_exec(database, b"SELECT count(*) FROM kept", None, None, None)
    answer = library.sqlite3_wal_checkpoint_v2(database, None, 3, None, None)
    print(answer)
    library.sqlite3_close(database)


if sys.argv[1] == "write":
    write(*sys.argv[2:6], int(sys.argv[6]))
elif sys.argv[1] == "crash":
    crash(*sys.argv[2:4])
elif sys.argv[1] == "look":
    look(sys.argv[2])
elif sys.argv[1] == "hold":
    hold(sys.argv[2])
elif sys.argv[1] == "checkpoint":
    checkpoint(sys.argv[2])
else:
    check(sys.argv[2])
