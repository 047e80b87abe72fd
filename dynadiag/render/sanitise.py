"""Makes text from logs safe to show: one door for every renderer.

Whatever comes out of a log, a source file or a torch message was written by strangers. It may carry terminal escapes, bidirectional
controls that reorder what a reader sees (CVE-2021-42574), lone surrogates that cannot be encoded, or a megabyte of one letter.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from dynadiag.masking import masked_text

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CUT_MARK = "..."
LINE_LIMIT = 300
BLOCK_LIMIT = 1600
BLOCK_LINES = 40
SLUG_LIMIT = 40
_REMEMBERED = 200

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # operating system command: title, hyperlink
    r"|\x1b[PX^_][^\x1b]{0,4096}\x1b\\"  # device control and friends
    r"|(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\x1b[ -/]{0,8}[0-~]"  # two-character escapes
)
# Control, format (bidirectional ones among them), surrogate and separator characters but for the line feed: Unicode's categories Cc, Cf,
# Cs, Zl and Zp.
_UNSEEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)
_PLAIN = re.compile(r"[ -~\n]*\Z")
# All but what XML 1.0 allows; written as what it forbids, which `re` compiles a hundred times faster.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@lru_cache(maxsize=4096)
def _shown(character: str) -> str:
    """What one character becomes: itself, nothing, a blank or the replacement character."""
    if character in "\n ":
        return character
    if character == "\t":
        return "    "
    category = unicodedata.category(character)
    if category in ("Zl", "Zp") or character in "\r\v\f\x85":
        return "\n"
    if category == "Cs" or ord(character) & 0xFFFE == 0xFFFE:
        return REPLACEMENT
    return "" if category in ("Cc", "Cf") else character


def clean_block(text: str, *, limit: int = BLOCK_LIMIT, lines: int = BLOCK_LINES) -> str:
    """The text with line breaks kept and everything dangerous removed, at most `limit` characters and `lines` lines.

    Secrets are masked. Escape sequences, control and format characters (bidirectional ones among them) vanish, a tab becomes four blanks,
    lone surrogates and non-characters become U+FFFD. Text that was cut ends in "...".
    """
    cut = len(text) > limit
    text = masked_text(text[: limit * 2] if len(text) > limit * 2 else text)
    if not _PLAIN.match(text):
        text = _ESCAPE_SEQUENCE.sub("", text.replace("\r\n", "\n"))
        text = "".join(map(_shown, text))
    rows = text.split("\n")
    if len(rows) > lines:
        rows, cut = rows[:lines], True
    text = "\n".join(row.rstrip() for row in rows)
    if len(text) > limit:
        return text[: max(0, limit - len(CUT_MARK))] + CUT_MARK
    return text + CUT_MARK if cut and not text.endswith(CUT_MARK) else text


def clean(text: str, *, limit: int = LINE_LIMIT) -> str:
    """The text on one line: `clean_block` with line breaks and runs of blanks made one blank, at most `limit` characters."""
    return _clean_again(text, limit) if len(text) <= _REMEMBERED else _clean(text, limit)


def _clean(text: str, limit: int) -> str:
    joined = " ".join(clean_block(text, limit=limit, lines=limit + 1).split())
    return joined if len(joined) <= limit else joined[: max(0, limit - len(CUT_MARK))] + CUT_MARK


_clean_again = lru_cache(maxsize=8192)(_clean)
"""A page names the same functions, files and values thousands of times."""


def clean_code(text: str, *, limit: int = LINE_LIMIT) -> str:
    """One line of source: like `clean`, but blanks inside the line stay as they are."""
    return clean_block(text.strip().replace("\n", " "), limit=limit, lines=1)


def encodable(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be written as UTF-8; nothing else changes."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_unseen(text: str, replacement: str = "") -> str:
    """The last door of a renderer, for whole texts: without the characters that change how others are shown, or cannot be encoded."""
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub(replacement, text)


def json_escaped(text: str) -> str:
    """JSON text with those characters, which can stand in its strings only, escaped: it means the same."""
    return text if text.isascii() and "\x7f" not in text else _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def slug(text: str, *, default: str = "x", limit: int = SLUG_LIMIT) -> str:
    """A harmless part of a file name: lower-case ASCII letters, digits and single dashes, at most `limit` characters, never empty."""
    words = re.findall(r"[a-z0-9]+", clean(text, limit=400).lower())
    return "-".join(words)[:limit].strip("-") or default


def xml_text(text: str) -> str:
    """The text with characters that XML 1.0 forbids replaced by U+FFFD (it still has to be escaped)."""
    return _NOT_IN_XML.sub(REPLACEMENT, text)
