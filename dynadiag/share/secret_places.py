"""Passwords that only their place gives away: behind a word of prose (`the password is X`) or an option (`sshpass -p X`).

A password of twelve letters is too short to look drawn at random wherever it stands. Behind a word that says what it is, it is enough that
it mixes letters with digits or signs as no identifier, path, number or version does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from dynadiag.share.random_words import Place, looks_like_key

PASSWORD = "password by its place"
_SIGNS = ("pass", "pwd", "secret", "cred", "key", "token", "passwd", "-p", "-a", "-u", "-w", "%", "login")
_SPOKEN = re.compile(
    r"(?<![a-z])(?:pass(?:word|wd|phrase|code)s?|pwd|secrets?|credentials?|creds?"
    r"|(?:api|access|private|auth|account|bearer)[ _-]?(?:key|token))"
    r"(?![a-z0-9_(.])[^\n]"
)
_SPOKEN_WORD = re.compile(r"[^\s\"'`\\]{1,80}")
_MOST_WORDS, _FARTHEST = 5, 120
_OPENED, _CLOSED = "([{<=:,", ")]}>.,;:"
# An option and its value in one text, also as the words of a list: `'-p', 'X'`.
_OPTION = re.compile(
    r"(?<![\w-])(?:--?pass(?:in|out|word|wd|phrase)?|--?pwd|--?pw|-[pawuPWU])(?![a-z]{3})\\{0,3}[\"']?(?:,\s{0,3}|\s{1,3}|=)?\\{0,3}[\"']?"
    r"(?P<value>[^\s\"'`\\]{6,80})"
)
_PREFIXED = re.compile(r"(?:\bpass:|(?<![^\s\"'\\])[\w.-]{1,40}%)(?P<value>[^\s\"'`\\]{6,80})")
_SSHPASS = re.compile(r"\bsshpass\s{1,3}-p\s{0,3}(?:(?P<quote>[\"'])(?P<quoted>[^\n]{1,200}?)(?P=quote)|(?P<bare>[^\s\"'\\]{3,200}))")
_SWITCHED = re.compile(r"\$(?:[{(]|[A-Z_][A-Z0-9_]*$)|<[\w -]+>$")  # a variable, or a word for it
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^A-Za-z0-9]")
_STRONG = re.compile(r"[!#$%^&*+=?@~|;<>{}()\[\]]")
_WRITTEN = re.compile(
    r"v?\d+(?:\.\d+)+[\w.+-]*|[\w.+-]*(?:[=<>]=)[\w.*+-]*|[A-Z]?[a-z_]{2,}[\w.]*[\[(].*|[A-Za-z][\w.-]*://.*|(?:\.{0,2}/)?(?:[\w.+-]+/)+[\w.+-]*"
    r"|[\w./-]+\.(?:py|md|json|toml|yaml|yml|txt|html|pt|log|sh)(?:[:#].*)?|[A-Za-z]+\d*(?:[_.-][A-Za-z]*\d*)*|--?[A-Za-z][\w-]*(?:=.*)?"
)
_CODE = re.compile(r"v?\d+(?:\.\d+)+[\w.+-]*|[A-Z]?[a-z_]{2,}[\w.]*[\[(].*|[A-Za-z][\w.-]*://.*")
_FEW, _SOME, _MANY = 1.9, 2.2, 3.0
"""Characters a piece, where a piece is a word, a number or a sign: what is drawn has few."""


def secret_places(text: str, place: Place = "") -> Iterator[tuple[str, int, int]]:
    """Kind, begin and end of each password that stands where only a password does; spans may overlap."""
    whole = _password_span(text, 0, len(text)) if place == "password" and " " not in text else None
    if whole is not None:
        yield (PASSWORD, *whole)
    low = text.lower()
    if len(low) != len(text) or not any(sign in low for sign in _SIGNS):
        return
    for match in _SPOKEN.finditer(low):
        span = _spoken_span(text, match.end() - 1)
        if span is not None:
            yield (PASSWORD, *span)
    for pattern in (_OPTION, _PREFIXED):
        for match in pattern.finditer(text):
            span = _password_span(text, *match.span("value"))
            if span is not None:
                yield (PASSWORD, *span)
    if "sshpass" in low:
        for match in _SSHPASS.finditer(text):
            group = "quoted" if match["quote"] else "bare"
            if not _SWITCHED.match(match[group]):
                yield (PASSWORD, *match.span(group))


def _spoken_span(text: str, at: int) -> tuple[int, int] | None:
    """The first password among the next words of the line."""
    line = text.find("\n", at)
    stop = min(at + _FARTHEST, line if line >= 0 else len(text))
    for number, word in enumerate(_SPOKEN_WORD.finditer(text, at, stop)):
        end = word.end()
        if end == stop and end < len(text):  # the window ends within the word
            rest = _SPOKEN_WORD.match(text, word.start())
            end = rest.end() if rest else end
        span = _password_span(text, word.start(), end)
        if span is not None or number + 1 == _MOST_WORDS:
            return span
    return None


def _password_span(text: str, begin: int, end: int) -> tuple[int, int] | None:
    """A password without the name of its user and the marks around it."""
    while begin < end and text[begin] in _OPENED:
        begin += 1
    while begin < end and text[end - 1] in _CLOSED:
        end -= 1
    word = text[begin:end]
    user = re.match(r"[A-Za-z][\w.-]{0,39}[:%](?=.{6})", word)
    if user is not None and is_password(word[user.end() :]):
        return begin + user.end(), end
    return (begin, end) if is_password(word) else None


@lru_cache(maxsize=65536)
def is_password(word: str) -> bool:
    """Whether a word mixes letters with digits or signs as what is drawn does, and what is written does not."""
    if len(word) < 8 or not any(map(str.isalpha, word)) or not word.isascii() or "***" in word:
        return False
    if looks_like_key(word) and re.fullmatch(r"[A-Za-z0-9]+", word):
        return True
    plain = sum((any(map(str.islower, word)), any(map(str.isupper, word)), any(map(str.isdigit, word))))
    strong, mean = _STRONG.search(word) is not None, len(word) / len(_PIECES.findall(word))
    if plain + strong < 3 or mean > (_MANY if strong else _SOME) or _SWITCHED.match(word):
        return False
    return (_CODE if plain == 3 and mean <= _FEW else _WRITTEN).fullmatch(word) is None
