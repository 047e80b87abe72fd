"""Strings that a name opens: in the brackets behind it (`auth=("anna", "X")`, `login("bot", "X")`), on the line after it, or in escapes.

`redaction` takes the value that stands right behind a secret's name. Here the name says less of the value, so the value must look like a
password, or be written as a key is.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from itertools import pairwise

from dynadiag.masking import NAMED, is_secret_name
from dynadiag.share.random_words import looks_like_key
from dynadiag.share.secret_places import is_made_up, is_password

_SIGNS = ("pass", "pwd", "pw", "secret", "cred", "auth", "login", "bind", "token", "key")
# A name with one of these in it; its beginning is looked for once something stands behind it, which is far cheaper.
_NAME = rf"(?:{'|'.join(_SIGNS)})[\w.-]{{0,40}}"
_IN_NAMES = string.ascii_lowercase + string.digits + "_.-"
_REST_OF_NAME = re.compile(r"[\w.-]+")
_BEGINNING = re.compile(r"[\w.-]{0,60}$")
_OPENING = re.compile(
    _NAME + r"\\{0,3}[\"']?\]?(?:\s{0,3}(?:==|!=|=|:)\s{0,3}(?:\\?\n\s{0,80})?(?=[(\[\"'])|(?=\())"
)  # the text in small letters, as the others
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CREDENTIALS = frozenset({"auth", "login", "bind", "cred", "creds", "credential", "credentials"})
_TOKEN = re.compile(r"(?P<mark>[\"'])(?P<value>(?:(?!(?P=mark))[^\\\n])*)(?P=mark)|[(\[{]|[)\]}]|[\s,]+|[^\"'(\[{)\]}\s,]+|[\"']")
_FARTHEST = 400
_SHORTEST = 8
_LINE = re.compile(_NAME + r"\s{0,3}[:=]\s{0,3}(?P<value>[^\s\"'`;&|(),]{8,200})(?=[ \t]*(?:$|\n)|[ \t,;])")
_LINE_BEFORE = re.compile(r"(?:^|\n)[ \t#]{0,80}(?:(?:export|arg|env|set) )?$")
_ESCAPED = re.compile(
    _NAME + r"[\"']?\]?\s{0,3}[:=]\s{0,3}(?:[a-z]{1,20}\()?b?(?P<mark>[\"'])"
    r"(?P<value>(?:[^\\\"'\n]|\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|[0-7]{1,3}|[abfnrtv'\"\\])){6,800})(?P=mark)"
)
_ESCAPE = re.compile(r"\\[xu][0-9a-f]{2}")
_FEWEST_ESCAPES = 6
_NUMBERS = re.compile(_NAME + r"\s{0,3}[:=]\s{0,3}(?:bytes|bytearray)\(\s{0,3}[\[(](?P<value>\s*\d{1,3}(?:\s*,\s*\d{1,3}){14,300})")
_PHRASE = re.compile(
    r"\b(?:(?:seed|recovery|backup|wallet)[ _-]?(?:phrase|words)|mnemonic)[\"']?\s{0,3}(?:[:=]|is)\s{0,3}[\"']?"
    r"(?P<value>[a-z]{3,8}(?: [a-z]{3,8}){11,23})"
)
_CHANNEL = re.compile(r"://[^\s/]{1,200}/t/(?P<value>[\w-]{12,100})(?=/)")  # conda's
_NO_PASSWORD = re.compile(r".*[\s<>{}()`=]|[~./]|-----")
_BRACKET = re.compile(r"[\[\]{}<>]")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def named_strings(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind, begin and end of each secret that a name opens; spans may overlap."""
    low = text.lower()
    if len(low) != len(text):
        return
    if any(sign in low for sign in _SIGNS):
        yield from ((NAMED, *span) for span in _named_spans(text, low))
    if "phrase" in low or "words" in low or "mnemonic" in low:
        yield from ((NAMED, *match.span("value")) for match in _PHRASE.finditer(low))
    if "/t/" in low:
        for match in _CHANNEL.finditer(text):
            if _UUID.search(match["value"]) or looks_like_key(match["value"]):
                yield ("key in a URL", *match.span("value"))


def _named_spans(text: str, low: str) -> Iterator[tuple[int, int]]:
    for match in _OPENING.finditer(low):
        if _opens_credentials(_name_of(text, match)):
            yield from _strings_behind(text, match.end())
    for match in _LINE.finditer(low):
        name, value = _name_of(text, match), text[slice(*match.span("value"))]
        if _is_value(value, alone=_is_alone(low, match)) if is_secret_name(name) else _ends_in_pass(name) and is_made_up(value):
            yield match.span("value")
    if "\\x" in low or "\\u" in low:
        for match in _ESCAPED.finditer(low):
            if _names_key(_name_of(text, match)) and len(_ESCAPE.findall(match["value"])) >= _FEWEST_ESCAPES:
                yield match.span("value")
    if "bytes(" in low or "bytearray(" in low:
        for match in _NUMBERS.finditer(low):
            if _names_key(_name_of(text, match)) and not _counts(match["value"]):
                yield match.span("value")


def _name_of(text: str, match: re.Match[str]) -> str:
    """All of the name of which the match begins with a part."""
    beginning = _BEGINNING.search(text, max(0, match.start() - 60), match.start())
    rest = _REST_OF_NAME.match(text, match.start())
    return (beginning[0] if beginning else "") + (rest[0] if rest else "")


def _is_alone(low: str, match: re.Match[str]) -> bool:
    """Whether nothing but a comment's mark stands before a name on its line: no argument of a call."""
    before = low[max(0, match.start() - 150) : match.start()].rstrip(_IN_NAMES)
    return _LINE_BEFORE.search(before) is not None


def _opens_credentials(name: str) -> bool:
    return is_secret_name(name) or any(word.lower() in _CREDENTIALS for word in _WORD.findall(name))


def _ends_in_pass(name: str) -> bool:
    return name.lower().endswith(("_pass", "-pass", ".pass")) or name.lower() == "pass"


def _names_key(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    return is_secret_name(name) or (len(words) > 0 and words[-1] in ("key", "secret", "token"))


def _strings_behind(text: str, at: int) -> Iterator[tuple[int, int]]:
    """The strings in the brackets that begin here, or in a row with commas, that look like a password."""
    depth, stop = 0, at + _FARTHEST
    for token in _TOKEN.finditer(text, at, stop):
        first = token[0][0]
        if token["mark"] is not None:
            begin, end = token.span("value")
            if _is_string_secret(text[begin:end]):
                yield begin, end
        elif first in "([{":
            depth += 1
        elif first in ")]}":
            depth -= 1
        elif depth == 0 and ("\n" in token[0] or not (token[0].isspace() or first == ",")):
            return
        if depth < 0 or (depth == 0 and first in ")]}"):
            return


def _is_string_secret(value: str) -> bool:
    return (
        len(value) >= _SHORTEST and _NO_PASSWORD.match(value) is None and (is_made_up(value) or is_password(value) or looks_like_key(value))
    )


def _is_value(value: str, *, alone: bool) -> bool:
    """Whether what stands behind a secret's name without quotes is one; in a line of code it may be a name, too."""
    if _UUID.fullmatch(value):
        return True
    if _BRACKET.search(value):
        return False
    return is_password(value) or (is_made_up(value) and (alone or any(map(str.isupper, value))))


def _counts(numbers: str) -> bool:
    """Whether numbers are a table and no key: most of them small, or the next of the one before."""
    values = [int(number) for number in numbers.split(",")]
    steps = sum(abs(after - before) <= 2 for before, after in pairwise(values))
    return max(values) > 255 or steps > len(values) / 3
