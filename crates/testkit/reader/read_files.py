#!/usr/bin/env python3
"""Reads files below FROM, whose names LIST has, one a line; the bytes go to TO.

`VERDICT NAME` goes to standard output.

read_files.py LIST FROM TO                    as any program does
read_files.py LIST FROM TO KEYRING KEY_FILE   by the independent reader
"""

import os
import sys

import tidelock_reader as reader


def as_any_program(path, _):
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        found = file.read()
    return found if size == len(found) else b"another size than fstat says", None


def main(names, source, target, keyring=None, key_file=None):
    read = as_any_program
    if keyring:
        ring = reader.open_keyring(open(keyring, "rb").read(), open(key_file, "rb").read())
        read = lambda path, name: reader.plain_bytes(open(path, "rb").read(), ring, name)
    with open(names, "rb") as file:
        lines = file.read().splitlines()
    for name in lines:
        try:
            found, fault = read(os.path.join(os.fsencode(source), name), name)
        except (OSError, reader.Broken):
            sys.stdout.buffer.write(b"refused\t" + name + b"\n")
            continue
        path = os.path.join(os.fsencode(target), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(found)
        sys.stdout.buffer.write((b"cut\t" if fault else b"good\t") + name + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
