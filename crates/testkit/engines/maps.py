"""Writes and reads 3,000 records with an engine that maps its files. maps.py ENGINE DIR

ENGINE is lmdb, leveldb, rocksdb, or rocksdb-mapped: with allow_mmap_reads. Prints "ok" if all is
there.
"""

import os
import sys

RECORDS = [(b"%06d" % number, b"%d" % number * 50) for number in range(3000)]


def lmdb(directory):
    import lmdb

    with lmdb.open(directory, map_size=16 << 20) as database:
        with database.begin(write=True) as transaction:
            for key, value in RECORDS:
                transaction.put(key, value)
        with database.begin() as transaction:
            return list(transaction.cursor())


def leveldb(directory):
    import plyvel

    with plyvel.DB(directory, create_if_missing=True, write_buffer_size=65536) as database:
        for key, value in RECORDS:
            database.put(key, value)
    with plyvel.DB(directory) as database:
        return list(database)


def rocksdb(directory, mapped=False):
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_allow_mmap_reads(mapped)
    for turn in ("write", "read"):
        database = rocksdict.Rdict(directory, options)
        if turn == "write":
            for key, value in RECORDS:
                database[key] = value
            database.flush()
        found = list(database.items())
        database.close()
    return found


ENGINES = {
    "lmdb": lmdb,
    "leveldb": leveldb,
    "rocksdb": rocksdb,
    "rocksdb-mapped": lambda directory: rocksdb(directory, mapped=True),
}

if __name__ == "__main__":
    engine, place = sys.argv[1:]
    found = ENGINES[engine](os.path.join(place, engine))
    print("ok" if found == RECORDS else f"{len(found)} records")
