"""Random numbers that follow from their key."""

from __future__ import annotations

import hashlib

import numpy as np

from rightlung.core.keyed import RandomStream, key_number, text_digest, text_generator


def test_a_digest_tells_where_each_text_ends() -> None:
    assert text_digest("ab", "c") != text_digest("a", "bc")
    assert (
        text_digest(7, "a\ud800")
        == hashlib.blake2b("1:72:a\ud800".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    )


def test_numbers_follow_from_the_key() -> None:
    assert key_number(7, 0, "body") == int.from_bytes(hashlib.blake2b(b"7/0/body", digest_size=8).digest(), "big")
    assert RandomStream(7, 0, "body").shuffled(range(9)) == RandomStream(7, 0, "body").shuffled(range(9))
    seed = int.from_bytes(hashlib.blake2b(b"1:05:probe", digest_size=16).digest(), "big")
    assert (text_generator(0, "probe").random(5) == np.random.default_rng(seed).random(5)).all()
