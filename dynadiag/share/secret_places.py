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
# The word for it in the languages that comments are written in most; that of Chinese and Japanese is not set apart by a blank.
_ELSEWHERE = (
    "kennwort|mot de passe|contraseña|contrasena|senha|wachtwoord|lösenord|adgangskode|salasana|hasło|haslo|heslo|jelszó|пароль|пароля"
)
_UNSPACED = "密码|密碼|口令|パスワード|비밀번호"
_SIGNS = (
    *("pass", "pwd", "pw", "secret", "cred", "key", "token", "-p", "-a", "-u", "-w", "%", "login", "echo ", "<<<"),
    *(_ELSEWHERE + "|" + _UNSPACED).split("|"),
)
_SPOKEN = re.compile(
    r"(?<![a-z])(?:(?P<pass>(?<!_)pass(?=[\s:=]))|pass(?:wor[dt]|wd|phrase|code)s?|pwd|pw|secrets?|credentials?|creds?"
    rf"|(?:api|access|private|auth|account|bearer)[ _-]?(?:key|token)|{_ELSEWHERE})"
    rf"(?![a-z0-9_(.])[^\n]|(?:{_UNSPACED})[^\n]"
)
_SPOKEN_WORD = re.compile(r"[^\s\"'`\\]{1,80}")
_BEHIND_PASS = re.compile(r"[ \t:=]{1,4}")
_MOST_WORDS, _FARTHEST, _NEXT_WORDS = 5, 120, 2
_OPENED, _CLOSED = "([{<=:,:（「『«„“”’‘", ")]}>.,;:）」』»“”’‘。、"
# An option and its value in one text, also as the words of a list: `'-p', 'X'`.
_OPTION = re.compile(
    r"(?<![\w-])(?:--?pass(?:in|out|word|wd|phrase)?|--?pwd|--?pw|-[pawuPWU])(?![a-z]{3})\\{0,3}[\"']?(?:,\s{0,3}|\s{1,3}|=)?\\{0,3}[\"']?"
    r"(?P<value>[^\s\"'`\\]{6,80})"
)
# What a command reads as the password of somebody.
_GIVEN = re.compile(
    r"\becho\s{1,3}(?P<quote>[\"'])?(?P<value>[^\s\"'`\\]{6,80})(?(quote)(?P=quote))"
    r"\s{0,3}\|\s{0,3}[^\n|]{0,200}?(?:\bsudo\s[^\n|]{0,40}?-S\b|-stdin\b|--stdin\b|\b(?:ch)?passwd\b|\bcryptsetup\b|\bkinit\b|\blogin\b|-fd\s0)"
)
_HERE = re.compile(r"\b(?:login|kinit|passwd|auth|sudo|su|ssh|gpg|openssl)\b[^\n<]{0,80}<<<\s{0,3}[\"']?(?P<value>[^\s\"'`\\]{6,80})")
_HTPASSWD = re.compile(r"\bhtpasswd\s[^\n]{0,40}?-\w{0,5}b\w{0,5}\s{1,3}\S{1,200}\s{1,3}\S{1,80}\s{1,3}(?P<value>[^\s\"'`\\]{4,80})")
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
_NUMBERED = re.compile(r"[A-Za-z]+\d*(?:[_.-][A-Za-z]*\d*)*|[A-Za-z]+\d[A-Za-z]{1,2}")
_MADE_UP = re.compile(r"[A-Za-z0-9!#%&*+?@^~$-]{8,64}")
_FEW, _SOME, _MANY, _MOST = 1.9, 2.2, 3.0, 4.0
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
        span = _pass_span(text, match.end() - 1) if match["pass"] is not None else _spoken_span(text, match.end() - 1)
        if span is not None:
            yield (PASSWORD, *span)
    for pattern in (_OPTION, _PREFIXED):
        for match in pattern.finditer(text):
            span = _password_span(text, *match.span("value"))
            if span is not None:
                yield (PASSWORD, *span)
    for sign, pattern in (("echo ", _GIVEN), ("<<<", _HERE), ("htpasswd", _HTPASSWD)):
        for match in pattern.finditer(text) if sign in low else ():
            if any(map(str.isdigit, match["value"])) and not _SWITCHED.match(match["value"]):
                yield (PASSWORD, *match.span("value"))
    if "sshpass" in low:
        for match in _SSHPASS.finditer(text):
            group = "quoted" if match["quote"] else "bare"
            if not _SWITCHED.match(match[group]):
                yield (PASSWORD, *match.span(group))


def _pass_span(text: str, at: int) -> tuple[int, int] | None:
    """The password right behind `pass`, which other words follow more often: of modules, and of arguments that are passed."""
    behind = _BEHIND_PASS.match(text, at)
    word = _SPOKEN_WORD.match(text, behind.end()) if behind else None
    if word is None or re.match(r"[A-Z][a-z]+\d?[A-Za-z]|.*=", word[0]):
        return None
    begin, end = _bare_span(text, *word.span())
    return (begin, end) if is_made_up(text[begin:end]) else None


def _spoken_span(text: str, at: int) -> tuple[int, int] | None:
    """The first password among the next words of the line; the very next ones may be made up."""
    line = text.find("\n", at)
    stop = min(at + _FARTHEST, line if line >= 0 else len(text))
    for number, word in enumerate(_SPOKEN_WORD.finditer(text, at, stop)):
        end = word.end()
        if end == stop and end < len(text):  # the window ends within the word
            rest = _SPOKEN_WORD.match(text, word.start())
            end = rest.end() if rest else end
        span = _password_span(text, word.start(), end, may_be_made_up=number < _NEXT_WORDS)
        if span is not None or number + 1 == _MOST_WORDS:
            return span
    return None


def _password_span(text: str, begin: int, end: int, *, may_be_made_up: bool = False) -> tuple[int, int] | None:
    """A password without the name of its user and the marks around it."""
    begin, end = _bare_span(text, begin, end)
    word = text[begin:end]
    user = re.match(r"[A-Za-z][\w.-]{0,39}[:%](?=.{6})", word)
    if user is not None and (is_password(word[user.end() :]) or is_made_up(word[user.end() :])):
        return begin + user.end(), end
    return (begin, end) if is_password(word) or (may_be_made_up and is_made_up(word)) else None


def _bare_span(text: str, begin: int, end: int) -> tuple[int, int]:
    while begin < end and text[begin] in _OPENED:
        begin += 1
    while begin < end and text[end - 1] in _CLOSED:
        end -= 1
    return begin, end


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


@lru_cache(maxsize=65536)
def is_made_up(word: str) -> bool:
    """Whether a word has digits among its letters, as people change a word into a password; a name with a number behind it is none."""
    if not _MADE_UP.fullmatch(word) or not any(map(str.isdigit, word)) or not any(map(str.isalpha, word)) or "***" in word:
        return False
    pieces = len(_PIECES.findall(word))
    return pieces >= 3 and len(word) / pieces <= _MOST and not _SWITCHED.match(word) and _NUMBERED.fullmatch(word) is None
