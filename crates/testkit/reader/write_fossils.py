"""Writes the plain bytes of a set of fossils below a directory, by ordinary calls.

write_fossils.py DIR OFFSET     the files of the set of this data offset; always the same bytes
"""

import os
import sys

EDGES = [0, 1, 15, 16, 17, 4095, 4096, 4097, 8192 + 5]
SETS = {
    "4096": {"bytes": [*EDGES, "hole", "lost-a", "lost-b"]},
    "8192": {"paged": [0, 17, 4096, 8192 + 5, "hole"], "log": [1, 4097, "lost-b"], "bytes": [15]},
}


def content(size):
    return bytes((at * 137 + at // 241 + size) % 255 + 1 for at in range(size))


def write_with_holes(path):
    """A hole before, between and behind what is written, none of them whole blocks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(descriptor, b"first", 3)
    os.pwrite(descriptor, b"last", 9000)
    os.ftruncate(descriptor, 13001)
    os.close(descriptor)


def main(directory, offset):
    for place, files in SETS[offset].items():
        os.makedirs(os.path.join(directory, place), exist_ok=True)
        for name in files:
            path = os.path.join(directory, place, str(name))
            if name == "hole":
                write_with_holes(path)
                continue
            with open(path, "wb") as file:
                file.write(content(name if isinstance(name, int) else 20))


if __name__ == "__main__":
    main(*sys.argv[1:])
