"""Words that look drawn at random, in every alphabet that keys are written in, and the digests that only look so.

torch's logs are full of digests: of payloads, sources, cache entries and revisions. Those have a form of their own (Inductor's cache keys),
or stand behind a word that says so; nothing else tells a digest from a key of 32 hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, Literal

from dynadiag.share.known_tokens import LEAST_HEX_ENTROPY, hex_entropy
from dynadiag.share.letter_pairs import pair_bits

Place = Literal["", "digest", "key", "password"]
"""What the name of a value says of it."""
_WORD = re.compile(r"(?:[A-Za-z0-9+/_=.-]|%2[BbFf]|%3[Dd]){16,8000}")
_ENCODED = re.compile(r"%2[BbFf]|%3[Dd]")
_MOST_BITS, _MOST_BITS_SMALL, _MOST_BITS_WRITTEN, _MOST_BITS_IN_PART, _MOST_BITS_OF_KEY, _MOST_BITS_OF_REST = 6.9, 6.4, 7.6, 7.25, 6.2, 6
"""Bits a pair: of 70,000 words of programs and logs, one in 300 has more; of random words of 20 letters all but one in 10,000."""
_LONG, _PART, _LONGEST_COMPONENT = 20, 19, 400
_PIECES, _MOST_LETTERS_OF_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^A-Za-z0-9]"), 2.2
# What looks drawn at random and is known to be none: Inductor's cache keys (52 letters of base32, and a letter before them), Triton's,
# UUIDs, addresses, versions, names of temporary files. Hexadecimal digits are looked at by themselves; few of them
# between signs of base64 may be part of it.
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:[a-z]?[a-z2-7]{51,52}|[A-Z2-7]{52}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|0x[0-9A-Fa-f]{1,16}|[0-9a-f]{16,}|[0-9A-F]{16,}|(?<![+/])(?:[0-9a-f]{8,15}|[0-9A-F]{8,15})(?![A-Za-z0-9+/])|\d+\.\d+[\w.]{0,20}\+(?:git|cu|cpu|nv|rocm|xpu)[\w.]{0,40}|tmp[a-z0-9_]{8}|folders/[a-z0-9_]{2}/[a-z0-9_]{20,40}|x{4,}|X{4,})(?![A-Za-z0-9])"
)
# Names of models and weights: three parts and more, each a word or a size (`LFM2-8B-A1B`, `ResNeXt50_32X4D_Weights`, `8x7B`).
_NAME_PART = re.compile(
    r"(?:[A-Z]++[a-z]*+|[a-z]++){1,4}+\d{0,4}|v?\d{1,4}(?:[A-Za-z]{1,3}(?:\d{1,3}[A-Za-z]{0,2})?)?|[A-Za-z]{1,2}\d{1,3}[A-Za-z]{0,2}"
)
_BETWEEN_PARTS = re.compile(r"[-_/.]")
_LONGEST_NAME, _LONGEST_NAME_PART, _MOST_BITS_OF_NAME = 80, 16, 7.25
_MANGLED = re.compile(r"_Z[A-Z]{0,4}[a-z]{0,2}\d{1,3}[A-Za-z_]")
_NAMED_FIRST = re.compile(r"[A-Za-z]{3,}[-/._]")
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-f]{32,}|[0-9A-F]{32,})(?![0-9A-Za-z])")
# Bytes as OpenSSL prints them, 16 and more: a network card's address has six.
_HEX_BYTES: Final = re.compile(r"(?<![0-9A-Za-z:-])[0-9A-Fa-f]{2}(?:(?::[0-9A-Fa-f]{2}){15,}|(?:-[0-9A-Fa-f]{2}){15,})(?![0-9A-Za-z:-])")
_IS_DIGEST_NAME = re.compile(
    r"(?i)(?<!api_)(?<!api-)hash|digest|checksum|md5|sha-?\d{0,3}(?![a-z])|blake2?[bs]?|payload|commit|revision|\brev\b|version|triton|\bgit|\btree"
    r"|\bparent|\bhead|\bmerge|blobs?\b|snapshots?|\betag|cache|fingerprint|checkout|integrity|\boid"
)
_NAME_BEFORE, _BETWEEN = 32, " \t:=,([\"'/@>-"
_LAST_NAME = re.compile(r"[\w\]\[-]+$")
_FILE_BEHIND = re.compile(
    r"\.(?:py|pyc|so|o|h|cpp|cu|ptx|cubin|json|jsonl|pt|pth|bin|safetensors|whl|llir|ttir|ttgir|hsaco|log|txt|lock|tmp)\b"
)
_LIST_OF_SUMS = re.compile(r"(?:  | \*)[\w./~-]")
_PASSWORD_OPTION = re.compile(r"-[pawuPWU]|--?(?:pass(?:in|out|word|wd|phrase)?|pwd|pw)")
_KEY_NAME = re.compile(r"(?i)(?:^|[^a-z])(?:key|login|auth|token|otp|pin|sas|dsn|webhook|hook|cred\w*|session|sid|psk|pat|bearer|pw)$")
# In small letters: an expression that ignores case is read ten times slower.
_KEY_PLACE = re.compile(
    r"(?:key|login|auth|token|otp|pin|sas|dsn|webhook|cred[a-z]{0,10}|session|sid|psk)\\{0,3}[\"']?\]?(?:\s{0,3}[=:]\s{0,3}|\s)"
    r"[rbfu]?\\{0,3}[\"']?(?P<value>[a-z0-9+/_=.~!@#$%^&*-]{10,200})"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_STRING = r"(?P<quote{0}>[\"'])(?P<value{0}>[A-Za-z0-9+/_=.-]{{4,400}})(?P=quote{0})"
_SPLIT_STRINGS = re.compile(_STRING.format(1) + r"(?:\s|\\n|\\|\+|[rbfu](?=[\"'])){0,40}" + _STRING.format(2))
_SPLIT_LINE = re.compile(
    r"(?<![A-Za-z0-9+/_.-])(?P<value1>[A-Za-z0-9+/_.-]{8,400})(?:\\\\|\\)(?:\n|\\n)[ \t]{0,20}(?P<value2>[A-Za-z0-9+/_=.-]{4,400})"
)


def place_of(name: str) -> Place:
    """What a value with this name is: a digest, a key, a password, or nothing that the name says."""
    if _PASSWORD_OPTION.fullmatch(name):
        return "password"
    return "digest" if _IS_DIGEST_NAME.search(name) else "key" if _KEY_NAME.search(name) else ""


def random_spans(text: str, place: Place = "") -> Iterator[tuple[int, int]]:
    """Begin and end of what looks drawn at random in a text, in no order; spans may overlap."""
    for match in _WORD.finditer(text):
        yield from ((match.start() + begin, match.start() + end) for begin, end in _spans_of(match[0]))
    if place != "digest":
        yield from (match.span() for match in _HEX.finditer(text) if is_random_hex(match[0]) and not is_digest(match))
        for match in _HEX_BYTES.finditer(text):
            if is_random_hex(match[0].replace(":", "").replace("-", "")) and not is_digest(match):
                yield match.span()
    if place == "key" and looks_like_key(text):
        yield 0, len(text)
    low = text.lower()
    for match in _KEY_PLACE.finditer(low) if len(low) == len(text) else ():
        begin, end = match.span("value")
        if _begins_name(low, match.start()) and looks_like_key(text[begin:end]):
            yield begin, end
    yield from _split_spans(text, _SPLIT_STRINGS)
    if "\\\n" in text or "\\\\n" in text:
        yield from _split_spans(text, _SPLIT_LINE)


def _begins_name(low: str, at: int) -> bool:
    """Whether a word is no end of another: `key`, `api_key`, `apikey`, not `monkey`."""
    return not (at and low[at - 1].isalpha()) or low.endswith(("api", "access", "x"), 0, at)


def _split_spans(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """The two parts of what is random when it is put together."""
    at = 0
    while (split := pattern.search(text, at)) is not None:  # a third part may follow, so the second is looked at again
        at = split.start("value2") - 1
        whole = split["value1"] + split["value2"]
        if _is_random(whole) or (_HEX.fullmatch(whole) and is_random_hex(whole)):
            yield split.span("value1")
            yield split.span("value2")


def is_digest(match: re.Match[str]) -> bool:
    """Whether the surroundings of hexadecimal digits say that they are a digest."""
    text, begin, end = match.string, match.start(), match.end()
    if begin and text[begin - 1] in "-+":  # of several in a row the first has the name
        chain = text[max(0, begin - 4000) : begin]
        begin -= len(chain) - len(chain.rstrip("0123456789abcdef.+-"))
    before = text[max(0, begin - _NAME_BEFORE) : begin].rstrip(_BETWEEN)
    if _is_digest_name(before[-20:]) or _FILE_BEHIND.match(text, end):
        return True
    word = text[text.rfind(" ", max(0, begin - 400), begin) + 1 : begin][-400:]
    if word.endswith("@") and "git" in word:
        return True
    if word.endswith("/") and text[end : end + 1] == "/":
        return "://" not in word
    return (begin == 0 or text[begin - 1] == "\n") and _LIST_OF_SUMS.match(text, end) is not None


@lru_cache(maxsize=4096)
def _is_digest_name(before: str) -> bool:
    name = _LAST_NAME.search(before)
    return name is not None and _IS_DIGEST_NAME.search(name[0]) is not None


@lru_cache(maxsize=65536)
def is_random_hex(word: str) -> bool:
    """Whether hexadecimal digits look drawn at random: no counting, no repeating, and some of them letters."""
    steps = [ord(letter) - ord(before) for before, letter in pairwise(word)]
    return not word.isdigit() and sum(step in (0, 1, -1) for step in steps) < len(steps) / 2 and hex_entropy()(word) > LEAST_HEX_ENTROPY


@lru_cache(maxsize=65536)
def _spans_of(word: str) -> tuple[tuple[int, int], ...]:
    """Begin and end of the random parts of a word."""
    if _is_model_name(word):
        return ()
    if "%" in word:
        plain = _ENCODED.sub(lambda match: {"%2b": "+", "%2f": "/", "%3d": "="}[match[0].lower()], word)
        return ((0, len(word)),) if _spans_of(plain) else ()
    found, at = [], 0
    for known in (*_KNOWN.finditer(word), None):
        end = known.start() if known else len(word)
        found += [(at + begin, at + stop) for begin, stop in _spans_of_part(word[at:end])]
        at = known.end() if known else end
    return tuple(found)


def _is_model_name(word: str) -> bool:
    parts = _BETWEEN_PARTS.split(word) if len(word) <= _LONGEST_NAME else []
    if len(parts) < 3 or not all(len(part) <= _LONGEST_NAME_PART and _NAME_PART.fullmatch(part) for part in parts):
        return False
    bits = pair_bits(word)
    return sum(bits) <= _MOST_BITS_OF_NAME * len(bits)


def _spans_of_part(part: str) -> list[tuple[int, int]]:
    if len(part) < 16:
        return []
    bits = pair_bits(part)
    sums = [0.0, *accumulate(bits)]
    hot = [at for at in range(len(bits) - _PART + 1) if sums[at + _PART] - sums[at] > _PART * _MOST_BITS_IN_PART]
    if _is_random(part) and (not hot or len(part) <= 2 * _LONG or len(hot) > 0.6 * (len(bits) - _PART + 1)):
        return [(0, len(part))]
    spans: list[tuple[int, int]] = []
    for at in hot:
        if spans and at + _PART < spans[-1][1]:
            continue
        begin, end = _grown(part, at, at + _PART + 1)
        if not _is_written(part[begin:end]) and not _is_mangled(part[begin:end]):
            if spans and begin <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((begin, end))
    # What is left beside them belongs to them where it is no more like program text: a slash in base64 is no path.
    edges = [0, *(edge for span in spans for edge in span), len(part)]
    rest = [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if begin < end]
    return spans + [span for span in rest if spans and _is_like_random(part[slice(*span)])]


def _is_like_random(rest: str) -> bool:
    """Whether what stands next to random letters is more of them: unlike words by its pairs, or changing at every second letter."""
    bits = pair_bits(rest)
    pieces = _PIECES.findall(rest)
    changes = len(rest) <= _MOST_LETTERS_OF_PIECE * len(pieces) and len({_kind(piece[-1]) for piece in pieces}) >= 3
    return not bits or changes or sum(bits) / len(bits) > _MOST_BITS_OF_REST


def _kind(letter: str) -> str:
    return "digit" if letter.isdigit() else "small" if letter.islower() else "large" if letter.isupper() else "sign"


def _grown(part: str, begin: int, end: int) -> tuple[int, int]:
    """A span that ends where a component of a path or an assignment does, if one does near it."""
    first, last = max(0, begin - _LONGEST_COMPONENT), min(len(part), end + _LONGEST_COMPONENT)
    begin = max(first, *(part.rfind(mark, first, begin) + 1 for mark in "/=."))
    ends = [found for mark in "/." if (found := part.find(mark, end, last)) >= 0]
    return begin, min(ends, default=last)


@lru_cache(maxsize=65536)
def _is_random(word: str) -> bool:
    if len(word) < 16 or len(set(word)) < 8 or _counts(word) or _KNOWN.fullmatch(word):
        return False
    bits = pair_bits(word)
    mean = sum(bits) / len(bits)
    if (mean <= _MOST_BITS_WRITTEN and _is_written(word)) or _is_mangled(word):
        return False
    begins = _NAMED_FIRST.match(word) is not None or len(word) < _LONG  # as `meta-llama/Llama-3.2-1B`
    return mean > (_MOST_BITS if begins else _MOST_BITS_SMALL)


def _is_mangled(word: str) -> bool:
    """Whether it is a name of C++ as compilers write it, in which names stand behind their lengths: `_ZN2at4_ops10add_Tensor4callE`."""
    if not _MANGLED.match(word):
        return False
    named = [match[2][: int(match[1])] for match in re.finditer(r"(\d{1,2})([A-Za-z_]\w*?)(?=\d|$|[A-Z]{2})", word)]
    bits = [bit for name in named if len(name) > 2 for bit in pair_bits(name)]
    return bool(bits) and sum(bits) / len(bits) <= _MOST_BITS_SMALL


def is_no_word(letters: str) -> bool:
    """Whether letters alone are too unlike a word to be one, though too few to say more."""
    bits = pair_bits(letters) if letters.isascii() else []
    return sum(bits) > len(bits) * _MOST_BITS_SMALL


def _is_written(word: str) -> bool:
    """Whether a word without digits is made of words, some of them abbreviations: `AmdSmiStatus`, `GRID-UNIT-WIDTH`."""
    if any(map(str.isdigit, word)):
        return False
    if word.islower() or word.isupper():
        return not word.isalpha()
    pieces = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", word)
    return sum(map(len, pieces)) >= 4 * len(pieces)


def _counts(word: str) -> bool:
    """Whether it counts its letters: an alphabet."""
    return sum(ord(letter) - ord(before) == 1 for before, letter in pairwise(word)) > len(word) / 2


@lru_cache(maxsize=65536)
def looks_like_key(value: str) -> bool:
    """Whether what stands where a key does is one, though it is short."""
    if _UUID.fullmatch(value) or (len(value) >= 16 and re.fullmatch("[0-9a-f]+", value) and not value.isdigit()):
        return True
    if len(value) < 10 or not any(map(str.isdigit, value)) or not any(map(str.isalpha, value)):
        return False
    letters = re.sub(r"[^A-Za-z0-9+/_=.-]", "", value)
    bits = pair_bits(letters)
    return len(bits) >= 8 and not _KNOWN.fullmatch(value) and sum(bits) / len(bits) > _MOST_BITS_OF_KEY
