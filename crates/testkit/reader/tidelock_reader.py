#!/usr/bin/env python3
"""Reads sealed files without Tidelock: a second implementation, written from FORMAT.md alone.

    tidelock_reader.py KEYRING (--key-file FILE | --recovery TEXT | --passphrase-file FILE) \
        [--name NAME] SEALED > PLAIN

Needs `cryptography` (https://cryptography.io), and `argon2-cffi` for passphrases. Opens the
keyring, checks the header's MAC, and writes the plain bytes. With NAME, the path of the file in
its directory, the policy's rules for that place hold too. A file that must be refused ends it with
exit code 1; one that is cut, or whose end is not as it must be, is written as far as it goes and
ends it with exit code 5.
"""

import argparse
import hashlib
import hmac
import os
import re
import struct
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

UNIT, BLOCK = 4096, 16
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


MAGIC, END_MAGIC = b"\x89TDLK\r\n\x1a", b"\x89TDLE\r\n\x1a"
# What stands before a log of SQLite, in place of a copy of its header.
NEWER_LOG = bytes.fromhex("377f0683ffffffff00000200000000000000000000000000157b248cbbf83a13")
OFFSETS = (4096, 8192, 16384, 65536, 131072)
PLAIN, PAGED, LOG, BYTES = range(4)


class Broken(Exception):
    """A rule of the format does not hold."""


class Keyring:
    """What an open keyring holds."""

    def __init__(self, id, generation, keys, offset, policy):
        self.id, self.generation, self.keys = id, generation, keys
        self.offset, self.policy = offset, policy


def require(holds, what):
    if not holds:
        raise Broken(what)


def expand(key, info, length):
    """HKDF-Expand with SHA-256 (RFC 5869, 2.3)."""
    out, block, count = b"", b"", 1
    while len(out) < length:
        block = hmac.new(key, block + info + bytes([count]), hashlib.sha256).digest()
        out, count = out + block, count + 1
    return out[:length]


def recovery_key(text):
    letters = text.upper().replace("O", "0").replace("I", "1").replace("L", "1")
    digits = [CROCKFORD.index(c) for c in letters if c not in " -\n"]
    require(len(digits) == 56, "a recovery key has 56 characters")
    number = 0
    for digit in digits:
        number = number << 5 | digit
    raw = number.to_bytes(35, "big")
    key, check = raw[:32], raw[32:]
    digest = hashlib.sha256(b"tidelock v1 recovery key checksum" + key).digest()
    require(digest[:3] == check, "the recovery key has a typing error")
    return key


def slots(table, count):
    for _ in range(count):
        (length,) = struct.unpack_from("<I", table)
        yield table[:length]
        table = table[length:]
    require(not table, "bytes behind the last slot")


def stretched(slot, passphrase):
    """The principal key of a slot: the passphrase's bytes through the slot's function."""
    (function,) = struct.unpack_from("<H", slot, 6)
    memory, passes, lanes = struct.unpack_from("<3I", slot, 32)
    if function == 1:
        from argon2.low_level import Type, hash_secret_raw

        return hash_secret_raw(passphrase, slot[44:60], passes, memory, lanes, 32, Type.ID, 0x13)
    if function == 2:
        return hashlib.pbkdf2_hmac("sha256", passphrase, slot[44:60], passes, 32)
    return b""


def open_slot(slot, keyring_id, principal):
    """The keyring key, or None if this slot has another principal key; a passphrase is (bytes,)."""
    if isinstance(principal, tuple):
        principal = stretched(slot, *principal)
        if not principal:
            return None
    ref_len, wrapped_len = struct.unpack_from("<HH", slot, 60)
    reference = slot[64 : 64 + ref_len]
    wrapped = slot[64 + ref_len :]
    require(len(wrapped) == wrapped_len, "the length of a slot")
    slot_id = slot[8:24]
    if slot[4] == 4:
        require(
            slot[5] == 1 and slot[6:8] == b"\0\0",
            "a recovery slot wraps directly, without a function",
        )
    check = expand(principal, b"tidelock v1 principal key check" + keyring_id + slot_id, 16)
    if slot[5] != 1 or check != wrapped[:16]:
        return None
    associated = b"tidelock v1 slot" + keyring_id + slot[4:62] + reference
    payload = AESGCM(principal).decrypt(wrapped[16:28], wrapped[28:], associated)
    require(payload[:32] == keyring_id + slot_id, "a slot of another keyring")
    return payload[32:]


def open_keyring(keyring, principal):
    require(keyring[:8] == b"TDLKRING", "not a keyring")
    version, header, cipher, kdf = struct.unpack_from("<4H", keyring, 8)
    require((version, header, cipher, kdf) == (1, 112, 1, 1), "the version of the keyring")
    keyring_id = keyring[16:32]
    generation, table_len, body_len, count = struct.unpack_from("<QIIH", keyring, 32)
    table = keyring[112 : 112 + table_len]
    opened = (open_slot(slot, keyring_id, principal) for slot in slots(table, count))
    key = next((key for key in opened if key), None)
    require(key, "no slot has this principal key")
    commitment = expand(key, b"tidelock v1 keyring commitment" + keyring_id, 32)
    require(commitment == keyring[64:96], "another keyring key")
    info = b"tidelock v1 keyring body" + keyring_id + struct.pack("<Q", generation)
    sealed = keyring[112 + table_len :]
    require(len(sealed) == body_len + 16, "the length of the keyring")
    body = AESGCM(expand(key, info, 32)).decrypt(
        keyring[96:108], sealed, keyring[: 112 + table_len]
    )
    number, offset = struct.unpack_from("<HI", body, 2)
    entries = [body[32 + 80 * i : 112 + 80 * i] for i in range(number)]
    (policy_len,) = struct.unpack_from("<I", body, 32 + 80 * number)
    policy = body[36 + 80 * number : 36 + 80 * number + policy_len]
    keys = {entry[:16]: entry[16:48] for entry in entries}
    return Keyring(keyring_id, generation, keys, offset, Policy(policy))


class Policy:
    """Which class a name has. Names and globs are bytes, whatever they encode."""

    def __init__(self, encoded):
        self.rest = encoded
        require(self.number("<H") == 1, "the version of the policy")
        self.text()
        for _ in range(2):
            for _ in range(self.number("<H")):
                self.text()
        self.component, self.prefix = self.text(), self.text()
        self.rules = []
        for _ in range(self.number("<H")):
            action, _ = self.number("<B"), self.number("<B")
            self.rules.append((self.text(), action))
            self.text()

    def number(self, form):
        (value,) = struct.unpack_from(form, self.rest)
        self.rest = self.rest[struct.calcsize(form) :]
        return value

    def text(self):
        length = self.number("<H")
        text, self.rest = self.rest[:length], self.rest[length:]
        return text

    def decide(self, name):
        parts = name.split(b"/")
        for at, part in enumerate(parts):
            if self.component and component_pattern(self.component).fullmatch(part):
                parts = self.prefix.split(b"/") + parts[at:]
                break
        for glob, action in self.rules:
            if covers(glob.split(b"/"), parts):
                return action
        return BYTES


def covers(pattern, parts):
    if not pattern:
        return not parts
    if pattern[0] == b"**":
        if len(pattern) == 1:
            return bool(parts)
        return any(covers(pattern[1:], parts[at:]) for at in range(len(parts) + 1))
    return bool(parts and component_pattern(pattern[0]).fullmatch(parts[0])) and covers(
        pattern[1:], parts[1:]
    )


def component_pattern(glob):
    out, at = b"", 0
    while at < len(glob):
        char = glob[at : at + 1]
        at += 1
        if char == b"*":
            out += b".*"
        elif char == b"?":
            out += b"."
        elif char == b"[":
            negated = glob[at : at + 1] in (b"!", b"^")
            start = at + negated
            end = glob.index(b"]", start + 1)
            members = (
                glob[start:end].replace(b"\\", b"\\\\").replace(b"]", b"\\]").replace(b"[", b"\\[")
            )
            out += (
                b"[" + (b"^" if negated else b"\\" if members[:1] == b"^" else b"") + members + b"]"
            )
            at = end + 1
        else:
            out += re.escape(char)
    return re.compile(out, re.DOTALL)


def header_of(sealed, ring):
    """The copy that counts, and its data key."""
    good, unknown = [], []
    first, second = sealed[0:256], sealed[512:768]
    for copy in (first, second) if first != second else (first,):
        if len(copy) < 256 or copy[:8] != MAGIC:
            continue
        key = ring.keys.get(copy[80:96])
        (sequence,) = struct.unpack_from("<Q", copy, 48)
        if key is None:
            unknown.append((sequence, copy))
        elif mac_is_right(key, copy):
            good.append((sequence, copy, key))
    require(good or unknown, "no copy of the header is valid")
    require(
        not good or max(good)[0] >= max(unknown, default=(0,))[0],
        "the newer copy has an unknown data key",
    )
    require(good, "the data key is in no keyring at hand")
    require(len(good) < 2 or good[0][0] != good[1][0], "two valid copies of one sequence")
    _, copy, key = max(good)
    version, length, offset, cipher, kdf, zero_rule, klass = struct.unpack_from("<HHIBBBB", copy, 8)
    require((version, length, cipher, kdf) == (1, 256, 1, 1), "the version of the file")
    require(offset in OFFSETS, "an unknown data offset")
    require((zero_rule, klass) in ((2, PAGED), (2, LOG), (1, BYTES)), "class and zero rule")
    require(struct.unpack_from("<III", copy, 20) == (UNIT, 0, 0), "the unit size")
    require(struct.unpack_from("<Q", copy, 40)[0] in (0, 1), "an incompatible feature")
    require(not any(copy[128:224]), "reserved bytes")
    if copy[56:72] == ring.id:
        require(
            struct.unpack_from("<Q", copy, 72)[0] <= ring.generation, "the keyring was rolled back"
        )
    return copy, key


def mac_is_right(key, copy):
    mac = hmac.new(expand(key, b"tidelock v1 header mac", 32), copy[:224], hashlib.sha256)
    return hmac.compare_digest(mac.digest(), copy[224:256])


def plain_bytes(sealed, ring, name=None):
    """The plain bytes, and what is wrong with the file's end or None."""
    offset = ring.offset
    if not any(sealed[:768].removeprefix(NEWER_LOG)):
        body = sealed[offset:]
        require(not any(body), "the header is lost")
        return bytes(plain_size(len(body))), None
    header, key = header_of(sealed, ring)
    require(header[12:16] == struct.pack("<I", offset), "another data offset than the keyring's")
    is_stream = header[40] == 1
    if name is not None and ring.policy.decide(name) != PLAIN:
        require(
            header[18] == (1 if ring.policy.decide(name) == BYTES else 2),
            "another zero rule than the policy's",
        )
        require(not is_stream, "a stream is no file of a directory")
    body, fault = sealed[offset:], None
    own = header[16:17] + header[12:16] + header[96:128]
    if is_stream:
        require(
            len(sealed) >= offset + 64 and sealed[-64:-56] == END_MAGIC, "the end mark is missing"
        )
        stream_key = expand(key, b"tidelock v1 stream end" + own, 32)
        mac = hmac.new(stream_key, sealed[:-32], hashlib.sha256).digest()
        require(hmac.compare_digest(mac, sealed[-32:]), "the MAC of the stream")
        body = body[:-64]
        require(
            struct.unpack_from("<Q", sealed[-56:])[0] == plain_size(len(body)),
            "the size of the stream",
        )
        require(not any(sealed[-48:-32]), "reserved bytes of the end mark")
    elif len(sealed) < offset and len(sealed) != 4096 or 0 < len(body) < BLOCK:
        fault = "no plain size has this disk size"
    size = plain_size(len(body))
    if header[32] & 1 and not is_stream and not fault:
        fault = whole_fault(sealed, key, own, body, size)
    blocks = body[: size + -size % BLOCK]
    if any(body[len(blocks) :]) and not fault:
        fault = "the bytes behind the last block are not zero"
    file_key = expand(key, b"tidelock v1 file key" + own, 64)
    require(file_key[:32] != file_key[32:], "the halves of the file key")
    out = bytearray()
    for number in range(0, (len(blocks) + UNIT - 1) // UNIT):
        out += open_unit(file_key, number, blocks[number * UNIT : (number + 1) * UNIT], header[18])
    if any(out[size:]) and not fault:
        fault = "the last block is not padded with zeros"
    return bytes(out[:size]), fault


def whole_fault(sealed, key, own, body, size):
    """What is wrong with a whole file: its mark lies behind the copies of the header."""
    mark = sealed[768:832]
    signed = END_MAGIC + struct.pack("<Q", size) + bytes(16)
    stream_key = expand(key, b"tidelock v1 stream end" + own, 32)
    mac = hmac.new(stream_key, sealed[:768] + body + signed, hashlib.sha256).digest()
    return None if hmac.compare_digest(mark, signed + mac) else "the MAC over the whole file"


def plain_size(body):
    rest = body % BLOCK
    return body if rest == 0 else max(body - BLOCK, 0)


def open_unit(key, number, unit, zero_rule):
    if not any(unit):
        return unit
    decryptor = Cipher(algorithms.AES(key), modes.XTS(number.to_bytes(16, "little"))).decryptor()
    plain = bytearray(decryptor.update(unit) + decryptor.finalize())
    if zero_rule == 1:
        for at in range(0, len(unit), BLOCK):
            if not any(unit[at : at + BLOCK]):
                plain[at : at + BLOCK] = bytes(BLOCK)
    return plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("keyring")
    opener = parser.add_mutually_exclusive_group(required=True)
    opener.add_argument("--key-file")
    opener.add_argument("--recovery")
    opener.add_argument("--passphrase-file")
    parser.add_argument("--name", type=os.fsencode)
    parser.add_argument("sealed")
    asked = parser.parse_args()
    try:
        if asked.recovery:
            principal = recovery_key(asked.recovery)
        elif asked.passphrase_file:
            principal = (open(asked.passphrase_file, "rb").read().split(b"\n")[0],)
        else:
            principal = open(asked.key_file, "rb").read()
        ring = open_keyring(open(asked.keyring, "rb").read(), principal)
        plain, fault = plain_bytes(open(asked.sealed, "rb").read(), ring, asked.name)
    except Broken as broken:
        sys.exit(f"not a sealed file of this keyring: {broken}")
    sys.stdout.buffer.write(plain)
    if fault:
        sys.stdout.flush()
        print(f"the file is cut or changed: {fault}", file=sys.stderr)
        sys.exit(5)


if __name__ == "__main__":
    main()
