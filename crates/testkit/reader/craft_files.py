#!/usr/bin/env python3
"""Writes files that ask each question of FORMAT.md into a protected directory, with valid MACs, and
the answers.

    craft_files.py DIR KEY_FILE PLAIN

One line a file on standard output: `VERDICT VERIFY NAME`, separated by tabs. VERDICT is what
everybody who opens the file must find: `good`; `cut`, bytes that a tool gives with a complaint and
a server without one; `refused`. VERIFY is `good` or `bad`. The bytes that must be read are in
PLAIN/NAME. The profile has data at 4096, zero rule 2 below paged and log, 1 elsewhere.
"""

import hashlib
import hmac
import os
import struct
import sys

import tidelock_reader as reader
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

D, UNIT = 4096, 4096
BYTES, PAGED, LOG = (1, 3), (2, 1), (2, 2)


def content(size):
    return bytes((at * 137 + at // 241 + size) % 255 + 1 for at in range(size))


class Craft:
    def __init__(self, directory, key_file, plain):
        keyring = open(os.path.join(directory, ".tidelock/keyring"), "rb").read()
        self.ring = reader.open_keyring(keyring, open(key_file, "rb").read())
        self.directory, self.plain = os.fsencode(directory), os.fsencode(plain)
        self.id, self.key = next(iter(self.ring.keys.items()))
        self.nonce = b"\x77" * 32

    def copy(self, sequence=1, kind=BYTES, changes=(), key=None):
        """One copy of a header, some of its fields changed, with a valid MAC."""
        fields = bytearray(224)
        struct.pack_into("<8sHHIBBBBI", fields, 0, reader.MAGIC, 1, 256, D, 1, 1, *kind, UNIT)
        struct.pack_into(
            "<Q16sQ16s32s",
            fields,
            48,
            sequence,
            self.ring.id,
            self.ring.generation,
            self.id,
            self.nonce,
        )
        for at, value in changes:
            fields[at : at + len(value)] = value
        key = reader.expand(key or self.key, b"tidelock v1 header mac", 32)
        return bytes(fields) + hmac.new(key, bytes(fields), hashlib.sha256).digest()

    def mark(self, signed, size):
        """The end mark of a file whose signed bytes are these."""
        own = bytes([1]) + struct.pack("<I", D) + self.nonce
        key = reader.expand(self.key, b"tidelock v1 stream end" + own, 32)
        mark = reader.END_MAGIC + struct.pack("<Q", size) + bytes(16)
        return mark + hmac.new(key, signed + mark, hashlib.sha256).digest()

    def header(self, first=None, second=None, slack=()):
        first = self.copy() if first is None else first
        region = bytearray(D)
        region[0:256] = first
        region[512:768] = first if second is None else second
        for at, value in slack:
            region[at : at + len(value)] = value
        return bytes(region)

    def seal(self, plain):
        """Whole blocks, as units from 0 on."""
        key = reader.expand(
            self.key, b"tidelock v1 file key" + b"\x01" + struct.pack("<I", D) + self.nonce, 64
        )
        out = b""
        for number in range(0, len(plain), UNIT):
            tweak = (number // UNIT).to_bytes(16, "little")
            sealer = Cipher(algorithms.AES(key), modes.XTS(tweak)).encryptor()
            out += sealer.update(plain[number : number + UNIT]) + sealer.finalize()
        return out

    def open(self, sealed, number):
        key = reader.expand(
            self.key, b"tidelock v1 file key" + b"\x01" + struct.pack("<I", D) + self.nonce, 64
        )
        opener = Cipher(algorithms.AES(key), modes.XTS(number.to_bytes(16, "little"))).decryptor()
        return opener.update(sealed) + opener.finalize()

    def body(self, plain):
        rest = len(plain) % 16
        return self.seal(plain + bytes(-len(plain) % 16)) + bytes(rest)

    def put(self, name, raw, verdict, verify, plain=b""):
        name = os.fsencode(name)
        for top, text in ((self.directory, raw), (self.plain, plain)):
            path = os.path.join(top, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(text)
        sys.stdout.buffer.write(b"\t".join([verdict.encode(), verify.encode(), name]) + b"\n")


def unknown_fields(craft):
    """Each field of version 1 with a value that it does not have."""
    strange = {
        "version": (8, b"\x02"),
        "length": (10, b"\x00\x02"),
        "offset": (12, b"\x88\x13\0\0"),
        "cipher": (16, b"\x02"),
        "kdf": (17, b"\x02"),
        "rule": (18, b"\x03"),
        "rule-of-another-class": (18, b"\x02"),
        "class": (19, b"\x09"),
        "unit": (20, b"\0\x20\0\0"),
        "auth-unit": (24, b"\x10"),
        "pad": (28, b"\x01"),
        "feature-1": (40, b"\x02"),
        "feature-63": (47, b"\x80"),
        "second-key": (128, b"\x01"),
        "second-nonce": (175, b"\x01"),
        "watermark": (176, b"\x01"),
        "reserved-first": (184, b"\x01"),
        "reserved-last": (223, b"\x01"),
    }
    plain = content(100)
    for name, change in strange.items():
        odd, good, older = craft.copy(2, changes=[change]), craft.copy(1), craft.copy(3)
        craft.put(f"a/{name}", craft.header(odd, good) + craft.body(plain), "refused", "bad")
        craft.put(f"b/{name}", craft.header(good, odd) + craft.body(plain), "refused", "bad")
        craft.put(
            f"older/{name}", craft.header(odd, older) + craft.body(plain), "good", "bad", plain
        )
    craft.put(
        "compatible",
        craft.header(craft.copy(changes=[(32, b"\xfe" + b"\xff" * 7)])) + craft.body(plain),
        "good",
        "good",
        plain,
    )
    # Whole files: the mark is right, missing, of another file, wrong, and there without the flag.
    flagged = craft.header(craft.copy(changes=[(32, b"\x01")]))
    for name, sealed, signed, verdict in (
        ("right", flagged, flagged[:768] + craft.body(plain), "good"),
        ("missing", flagged, None, "cut"),
        ("body", flagged, flagged[:768] + craft.body(plain[::-1]), "cut"),
        ("header", flagged, craft.header()[:768] + craft.body(plain), "cut"),
    ):
        mark = b"" if signed is None else craft.mark(signed, len(plain))
        sealed = sealed[:768] + mark + sealed[768 + len(mark) :]
        verify = "good" if verdict == "good" else "bad"
        craft.put(f"whole/{name}", sealed + craft.body(plain), verdict, verify, plain)
    unflagged = craft.header()[:768] + mark + bytes(D - 768 - len(mark))
    craft.put("whole/unflagged", unflagged + craft.body(plain), "good", "bad", plain)
    torn = bytearray(craft.copy(2))
    torn[210] ^= 1
    craft.put(
        "torn", craft.header(craft.copy(), bytes(torn)) + craft.body(plain), "good", "bad", plain
    )
    craft.put(
        "lost-copy",
        craft.header(bytes(256), craft.copy()) + craft.body(plain),
        "good",
        "good",
        plain,
    )


def keys(craft):
    plain = content(33)
    foreign = lambda sequence: craft.copy(sequence, changes=[(80, b"\xee" * 16)], key=b"\x5a" * 32)
    craft.put(
        "key/newer", craft.header(foreign(2), craft.copy()) + craft.body(plain), "refused", "bad"
    )
    craft.put(
        "key/same", craft.header(craft.copy(), foreign(1)) + craft.body(plain), "good", "bad", plain
    )
    craft.put("key/both", craft.header(foreign(1)) + craft.body(plain), "refused", "bad")
    twin = craft.copy(changes=[(32, b"\x01")])
    craft.put(
        "key/equal-sequences",
        craft.header(craft.copy(), twin) + craft.body(plain),
        "refused",
        "bad",
    )
    later = struct.pack("<Q", craft.ring.generation + 1)
    ahead = craft.header(craft.copy(changes=[(72, later)]))
    craft.put("key/rolled-back", ahead + craft.body(plain), "refused", "bad")
    other = craft.header(craft.copy(changes=[(56, b"\xdd" * 16), (72, later)]))
    craft.put("key/another-keyring", other + craft.body(plain), "good", "good", plain)


def policy(craft):
    plain = content(50)
    craft.put("paged/rule-1", craft.header() + craft.body(plain), "refused", "bad")
    craft.put("rule-2", craft.header(craft.copy(kind=PAGED)) + craft.body(plain), "refused", "bad")
    craft.put(
        "paged/log", craft.header(craft.copy(kind=LOG)) + craft.body(plain), "good", "good", plain
    )
    wide = craft.copy(changes=[(12, b"\0\x20\0\0")])
    craft.put("offset", craft.header(wide) + bytes(4096) + craft.body(plain), "refused", "bad")
    craft.put(b"name-\xff\xfe", craft.header() + craft.body(plain), "good", "good", plain)
    craft.put(
        "stream",
        craft.header(craft.copy(changes=[(40, b"\x01")])) + craft.body(plain),
        "refused",
        "bad",
    )


def header_region(craft):
    plain = content(70)
    craft.put(
        "slack/between", craft.header(slack=[(300, b"X")]) + craft.body(plain), "good", "bad", plain
    )
    craft.put(
        "slack/behind", craft.header(slack=[(3000, b"X")]) + craft.body(plain), "good", "bad", plain
    )
    for size in (8, 100, 255):
        craft.put(f"short/{size}", craft.header()[:size], "refused", "bad")
    for size in (256, 500, 600, 768, 4095):
        craft.put(f"short/{size}", craft.header()[:size], "cut", "bad")
    craft.put("short/4096", craft.header(), "good", "good")
    craft.put("text", b"plain words\n", "refused", "bad")
    craft.put("damaged", craft.header(b"\x55" * 256) + craft.body(plain), "refused", "bad")


def journals(craft):
    """Of SQLite: one copy of the header, and something else before it."""
    plain = content(70)
    log = reader.NEWER_LOG + bytes(224)
    for name, first in (("db-wal", log), ("db-journal", bytes(256)), ("log-moved", log)):
        raw = craft.header(first, craft.copy()) + craft.body(plain)
        craft.put(f"journals/{name}", raw, "good", "good", plain)
    # A power cut has lost the second sector of the first write, without and with data behind it.
    craft.put("journals/torn", craft.header(log, bytes(256))[:512], "good", "good")
    torn = craft.header(log, bytes(256))
    craft.put("journals/lost", torn + craft.body(plain), "refused", "bad")
    craft.put("journals/blank", torn + bytes(4096), "good", "good", bytes(4096))


def zeros(craft):
    for size in (0, 1, 255, 768, 4095, 4096):
        craft.put(f"zeros/{size}", bytes(size), "good", "good")
    for size, plain in ((4100, 0), (4112, 16), (4113, 1), (5000, 888), (12288, 8192)):
        craft.put(f"zeros/{size}", bytes(size), "good", "good", bytes(plain))
    craft.put("zeros/slack", bytes(3000) + b"X" + bytes(1999), "good", "bad", bytes(888))
    craft.put("zeros/between", bytes(300) + b"X" + bytes(4699), "refused", "bad")
    craft.put("zeros/lost", bytes(D) + craft.body(content(40)), "refused", "bad")


def ends(craft):
    plain = content(100)
    whole = craft.header() + craft.body(plain)
    craft.put("end/tail", whole[:-1] + b"X", "cut", "bad", plain)
    padded = craft.seal(plain + b"X" * 12) + bytes(4)
    craft.put("end/padding", craft.header() + padded, "cut", "bad", plain)
    craft.put("end/no-size", craft.header() + b"\0" * 5, "cut", "bad")
    craft.put(
        "end/exact", craft.header() + craft.body(content(4096)), "good", "good", content(4096)
    )


def holes(craft):
    paged = craft.header(craft.copy(kind=PAGED))
    first, last = content(UNIT), content(32)
    craft.put(
        "paged/short-hole", paged + craft.seal(first) + bytes(32), "good", "good", first + bytes(32)
    )
    craft.put(
        "paged/odd-hole",
        paged + craft.seal(first) + bytes(32) + bytes(1),
        "good",
        "good",
        first + bytes(17),
    )
    half = bytes(16) + craft.seal(first + last)[UNIT + 16 :]
    read = craft.open(half, 1)
    craft.put("paged/half-hole", paged + craft.seal(first) + half, "good", "good", first + read)
    craft.put(
        "block-hole",
        craft.header() + craft.seal(first) + half,
        "good",
        "good",
        first + bytes(16) + last[16:],
    )


def main(directory, key_file, plain):
    craft = Craft(directory, key_file, plain)
    for question in (unknown_fields, keys, policy, header_region, journals, zeros, ends, holes):
        question(craft)


if __name__ == "__main__":
    main(*sys.argv[1:])
