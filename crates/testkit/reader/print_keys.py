"""Prints every secret of a protected directory, for a test that looks where they must not be.

print_keys.py DIR KEY_FILE      lines `what hexadecimal`: principal, keyring, data, file keys
"""

import os
import sys

import tidelock_reader as reader


def main(directory, key_file):
    principal = open(key_file, "rb").read()
    keyring = open(os.path.join(directory, ".tidelock/keyring"), "rb").read()
    ring = reader.open_keyring(keyring, principal)
    print("principal", principal.hex())
    count = int.from_bytes(keyring[48:50], "little")
    table = keyring[112 : 112 + int.from_bytes(keyring[40:44], "little")]
    for slot in reader.slots(table, count):
        key = reader.open_slot(slot, keyring[16:32], principal)
        if key:
            print("keyring", key.hex())
    for key in ring.keys.values():
        print("data", key.hex())
        print("mac", reader.expand(key, b"tidelock v1 header mac", 32).hex())
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if name != ".tidelock"]
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                start = file.read(768)
            if start[:8] == b"\x89TDLK\r\n\x1a":
                header, key = reader.header_of(start, ring)
                info = b"tidelock v1 file key" + header[16:17] + header[12:16] + header[96:128]
                print("file", reader.expand(key, info, 64).hex())


if __name__ == "__main__":
    main(*sys.argv[1:])
