"""Compresses a recorded run's segments, as the plugin does with those that are full: for recordings that are kept in tests/data.

    python tests/gpu/prediction/seal.py RUN…
"""

import ctypes
import ctypes.util
import struct
import subprocess
import sys
from pathlib import Path

HEADER, FRAME, RECORD = struct.Struct("<8I4Q"), struct.Struct("<6IQ"), struct.Struct("<BBHI")
SEGMENT_MAGIC, FRAME_MAGIC, VERSION, PLAIN = 0x474F4C53, 0x5A4F4C53, 1, 0  # plugin/format/log_format.h


def checksum(data, seed=0):
    xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    return xxhash.XXH3_64bits_withSeed(data, ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))


def records(data):
    """Up to the last one, with their checks 0: the frame's own stands for all of them."""
    out, at = bytearray(), 0
    while at + RECORD.size <= len(data):
        kind, words, _, delta = RECORD.unpack_from(data, at)
        if kind == 0 or words == 0 or at + 8 * words > len(data):
            break
        out += RECORD.pack(kind, words, 0, delta) + data[at + RECORD.size : at + 8 * words]
        at += 8 * words
    return bytes(out)


def frame(segment):
    """b"" of one that no thread has taken."""
    header = HEADER.unpack_from(segment)
    if header[0] != SEGMENT_MAGIC or not header[11]:
        return b""
    raw = records(segment[HEADER.size :])
    packed = subprocess.run(["zstd", "-19", "-q", "--no-check", "-c"], input=raw, stdout=subprocess.PIPE, check=True).stdout
    begin = struct.pack("<6I", FRAME_MAGIC, VERSION, header[2], len(raw), len(packed), PLAIN)
    return begin + struct.pack("<Q", checksum(packed, checksum(begin))) + segment[: HEADER.size] + packed


def seal(log):
    raw = sorted(path for path in log.glob("*.slog") if path.name != "dropped.slog")
    with open(log / "sealed.slogz", "ab") as sealed:
        for path in raw:
            sealed.write(frame(path.read_bytes()))
    for path in raw:
        path.unlink()


if __name__ == "__main__":
    for run in sys.argv[1:]:
        for log in sorted({path.parent for path in Path(run).rglob("*.slog")}):
            seal(log)
