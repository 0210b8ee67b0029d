"""Writes files of edge sizes and of each class below a directory, for the reader's test.

write_files.py DIR      what a file holds follows from its place: plain and sealed agree
"""

import os
import sys

SIZES = [0, 1, 15, 16, 17, 31, 32, 4079, 4080, 4081, 4095, 4096, 4097, 8191, 8192, 8193, 70001]
PLACES = {"bytes": "{}.bin", "paged": "base/1/{}", "log": "pg_wal/{}"}


def content(size):
    return bytes((at * 131 + at // 251 + size) % 255 + 1 for at in range(size))


def main(directory):
    for place in PLACES.values():
        os.makedirs(os.path.dirname(os.path.join(directory, place.format(0))), exist_ok=True)
        for size in SIZES:
            with open(os.path.join(directory, place.format(16384 + size)), "wb") as file:
                file.write(content(size))
        # A hole between two writes, one that ends the file, and a cut inside a block.
        descriptor = os.open(
            os.path.join(directory, place.format(99001)), os.O_RDWR | os.O_CREAT, 0o600
        )
        os.pwrite(descriptor, b"first", 3)
        os.pwrite(descriptor, b"last", 30000)
        os.ftruncate(descriptor, 50001)
        os.close(descriptor)
        descriptor = os.open(
            os.path.join(directory, place.format(99002)), os.O_RDWR | os.O_CREAT, 0o600
        )
        os.pwrite(descriptor, content(9000), 0)
        os.ftruncate(descriptor, 4099)
        os.ftruncate(descriptor, 12345)
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1])
