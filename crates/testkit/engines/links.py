"""Makes a database or a file by a path that it resolves by itself first: WAY PATH TEXT."""

import ctypes
import os
import sqlite3
import sys

way, path, text = sys.argv[1:]
directory, name = os.path.split(path)

if way == "realpath":
    libc = ctypes.CDLL(None, use_errno=True)
    libc.realpath.restype = ctypes.c_char_p
    directory = libc.realpath(directory.encode(), None).decode()
    path = os.path.join(directory, name)
elif way == "chdir":
    os.chdir(directory)
    path = name

if way == "openat":
    shelf = os.open(os.path.realpath(directory), os.O_RDONLY | os.O_DIRECTORY)
    file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=shelf)
    os.write(file, text.encode() * 100)
else:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=PERSIST")
    database.execute("CREATE TABLE t (x)")
    database.executemany("INSERT INTO t VALUES (?)", [(text + str(i),) for i in range(400)])
    database.commit()
    database.execute("UPDATE t SET x = x || 'y'")
    database.commit()
    assert database.execute("SELECT count(*) FROM t").fetchone() == (400,)
