#!/usr/bin/env python3
"""Reads sealed files without Tidelock: a second implementation, written from FORMAT.md alone.

    tidelock_reader.py KEYRING (--key-file FILE | --recovery TEXT) SEALED > PLAIN

Needs `cryptography` (https://cryptography.io). Opens the keyring with a key file or a recovery key, checks the header's
MAC, and writes the plain bytes. Any rule of the format that is broken ends it with exit code 1.
"""

import argparse
import hashlib
import hmac
import struct
import sys

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

UNIT, BLOCK = 4096, 16
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Broken(Exception):
    """A rule of the format does not hold."""


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


def open_slot(slot, keyring_id, principal):
    """The keyring key, or None if this slot has another principal key."""
    ref_len, wrapped_len = struct.unpack_from("<HH", slot, 60)
    reference = slot[64:64 + ref_len]
    wrapped = slot[64 + ref_len:]
    require(len(wrapped) == wrapped_len, "the length of a slot")
    slot_id = slot[8:24]
    check = expand(principal, b"tidelock v1 principal key check" + keyring_id + slot_id, 16)
    if slot[5] != 1 or check != wrapped[:16]:
        return None
    associated = b"tidelock v1 slot" + keyring_id + slot[4:62] + reference
    payload = AESGCM(principal).decrypt(wrapped[16:28], wrapped[28:], associated)
    require(payload[:32] == keyring_id + slot_id, "a slot of another keyring")
    return payload[32:]


def data_keys(keyring, principal):
    """The data keys by id, and the generation."""
    require(keyring[:8] == b"TDLKRING", "not a keyring")
    version, header, cipher, kdf = struct.unpack_from("<4H", keyring, 8)
    require((version, header, cipher, kdf) == (1, 112, 1, 1), "the version of the keyring")
    keyring_id = keyring[16:32]
    generation, table_len, body_len, count = struct.unpack_from("<QIIH", keyring, 32)
    table = keyring[112:112 + table_len]
    opened = (open_slot(slot, keyring_id, principal) for slot in slots(table, count))
    key = next((key for key in opened if key), None)
    require(key, "no slot has this principal key")
    commitment = expand(key, b"tidelock v1 keyring commitment" + keyring_id, 32)
    require(commitment == keyring[64:96], "another keyring key")
    info = b"tidelock v1 keyring body" + keyring_id + struct.pack("<Q", generation)
    sealed = keyring[112 + table_len:]
    require(len(sealed) == body_len + 16, "the length of the keyring")
    body = AESGCM(expand(key, info, 32)).decrypt(keyring[96:108], sealed, keyring[:112 + table_len])
    number = struct.unpack_from("<H", body, 2)[0]
    entries = (body[32 + 80 * i:112 + 80 * i] for i in range(number))
    return {entry[:16]: entry[16:48] for entry in entries}, generation


def header_of(sealed, keys, generation):
    """The valid copy with the higher sequence, and its data key."""
    good = []
    for copy in (sealed[0:256], sealed[512:768]):
        if len(copy) < 256 or copy[:8] != b"\x89TDLK\r\n\x1a":
            continue
        key = keys.get(copy[80:96])
        if key is None:
            continue
        mac = hmac.new(expand(key, b"tidelock v1 header mac", 32), copy[:224], hashlib.sha256)
        if hmac.compare_digest(mac.digest(), copy[224:256]):
            good.append((struct.unpack_from("<Q", copy, 48)[0], copy, key))
    require(good, "no valid header under these keys")
    _, copy, key = max(good, key=lambda item: item[0])
    version, length, _, cipher, kdf = struct.unpack_from("<HHIBB", copy, 8)
    require((version, length, cipher, kdf) == (1, 256, 1, 1), "the version of the file")
    require(struct.unpack_from("<III", copy, 20) == (UNIT, 0, 0), "the unit size")
    require(struct.unpack_from("<Q", copy, 40)[0] == 0, "an incompatible feature")
    require(not any(copy[128:224]), "reserved bytes")
    require(struct.unpack_from("<Q", copy, 72)[0] <= generation, "the keyring was rolled back")
    return copy, key


def plain_bytes(sealed, keys, generation):
    if not sealed:
        return b""
    header, key = header_of(sealed, keys, generation)
    (start,) = struct.unpack_from("<I", header, 12)
    body = sealed[start:]
    rest = len(body) % BLOCK
    size = len(body) - BLOCK * (rest > 0) if rest == 0 or len(body) > BLOCK else 0
    blocks = body[:len(body) - rest] if size else b""
    info = b"tidelock v1 file key" + header[16:17] + header[12:16] + header[96:128]
    file_key = expand(key, info, 64)
    require(file_key[:32] != file_key[32:], "the halves of the file key")
    out = bytearray()
    for number in range(0, (len(blocks) + UNIT - 1) // UNIT):
        out += open_unit(file_key, number, blocks[number * UNIT:(number + 1) * UNIT], header[18])
    return bytes(out[:size])


def open_unit(key, number, unit, zero_rule):
    if not any(unit):
        return unit
    decryptor = Cipher(algorithms.AES(key), modes.XTS(number.to_bytes(16, "little"))).decryptor()
    plain = bytearray(decryptor.update(unit) + decryptor.finalize())
    if zero_rule == 1:
        for at in range(0, len(unit), BLOCK):
            if not any(unit[at:at + BLOCK]):
                plain[at:at + BLOCK] = bytes(BLOCK)
    return plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("keyring")
    opener = parser.add_mutually_exclusive_group(required=True)
    opener.add_argument("--key-file")
    opener.add_argument("--recovery")
    parser.add_argument("sealed")
    asked = parser.parse_args()
    principal = recovery_key(asked.recovery) if asked.recovery else open(asked.key_file, "rb").read()
    try:
        keys, generation = data_keys(open(asked.keyring, "rb").read(), principal)
        sys.stdout.buffer.write(plain_bytes(open(asked.sealed, "rb").read(), keys, generation))
    except Broken as broken:
        sys.exit(f"not a sealed file of this keyring: {broken}")


if __name__ == "__main__":
    main()
