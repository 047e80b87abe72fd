"""Takes private details out of texts and of JSON: secrets, people, machines. The same name always gets the same pseudonym."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dynadiag.masking import IS_MASK, MASK, NAMED, Note, is_secret_name, masked_arguments, masked_setting, masked_text
from dynadiag.share.identities import Identities
from dynadiag.share.known_tokens import known_tokens
from dynadiag.share.named_strings import named_strings
from dynadiag.share.random_words import Place, is_digest, is_no_word, place_of, random_spans
from dynadiag.share.secret_places import secret_places

_QUOTED = re.compile(
    r"(?P<head>(?P<name>[\w.-]{2,80})\\?[\"']?\]?\s{0,3}(?:==|!=|[=:])\s{0,3}\\?(?P<quote>[\"']))(?P<value>[^\"'\n\\]{3,2000})"
)
_ASSIGNED = re.compile(
    r"(?P<head>(?<![\w.])(?P<name>[A-Z][A-Z0-9_]{2,80}|[a-z][a-z0-9_-]{2,80}(?==(?=[^\s\"'`;&|()]{0,60}\d)[^\s\"'`;&|()]{16}))=)"
    r"(?P<value>[^\s\"'`;&|)]{3,2000})"
)
_OPTION = re.compile(r"(?P<head>(?<!\S)(?P<name>--?[A-Za-z][\w-]{2,60})[ =])(?P<value>[^\s\"'-][^\s\"']{2,2000})")
_HINT = re.compile(
    r"(?i)secret|passw|passphrase|pass\b|pwd|\b(?:bind|root)?pw\b|token|key|cred|authorization|bearer|jwt|pat\b|cookie|signature"
)
_HINT_SIGNS = ("secret", "pass", "pw", "token", "key", "cred", "authorization", "bearer", "jwt", "pat", "cookie", "signature")
_SWITCH = re.compile(
    r"[),\]}]|[\w.-]{1,60}(?:\.[\w-]{1,60})*\(|(?:self|cls|args|cfg|config|os|env)\.|/|\d{1,7}$|(?:true|false|none|null|yes|no|auto)$",
    re.IGNORECASE,
)
_CUT = re.compile(r"(?:^|(?<=[\s\"'`]))[^\s\"'`]{8,}?(?=\.\.\.|…|\s|$)")
_ARGUMENTS = frozenset({"argv", "command", "args", "cmd", "cmdline", "orig_argv"})
_USERS = frozenset({"user", "username", "user_name", "login", "logname"})
_HOSTS = frozenset({"host", "hostname", "nodename", "node_name", "server"})
_KEY_OF_DIGITS = re.compile(
    r"(?<=[A-Za-z][_-])(?=[a-f_-]{0,100}\d)(?:[0-9a-f]{8,40}[_-])?[0-9a-f]{32,128}(?![A-Za-z0-9])"
)  # behind a prefix
_DIGITS = re.compile("[0-9a-f]{32}")
_REST = re.compile(r"\*\*\*\d{0,6}(?:[-_.](?=[A-Za-z]{0,80}\d)[A-Za-z0-9]{8,80})+(?![A-Za-z0-9])")  # a token of several parts
_RANDOM = "random letters and digits"
_SHORTEST_PREFIX = 8
_MOST_SECRETS = 300
"""So many are looked for where nothing says what they are: a stranger's log may name any number, and each costs time in every text."""


@dataclass
class Redactor:
    """First `learn` from everything, then `text` and `value`: what is a secret in one place is then masked in all, however it is written.

    `removed` counts by kind and place, and never has a value. Two secrets stay two, as findings tell values apart: `***`, `***2`.
    """

    identities: Identities = field(default_factory=Identities)
    secrets: dict[str, str] = field(default_factory=dict)
    removed: Counter[tuple[str, str]] = field(default_factory=Counter)
    _kept: Counter[bool] = field(default_factory=Counter)
    _known: re.Pattern[str] | None = None
    _bare: dict[str, tuple[str, str]] = field(default_factory=dict)
    _masks: dict[str, str] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)
    _plain: set[str | bytes] = field(default_factory=set)

    def know(self, kind: str, value: str) -> None:
        """Look for a secret that is known from elsewhere."""
        self._remember(kind, value)
        self._known = None

    def learn(self, text: str, name: str = "") -> None:
        """Remember the secrets and names of a text; `name` is what the text is called, where it is a value with a name."""
        place = place_of(name)
        key = _key(text, place)
        if key in self._plain:
            return
        if self._masked(text, self._remember, place) == text and not self.identities.learn(text):
            self._plain.add(key)
        else:
            self._known = None

    def learn_value(self, value: Any) -> None:
        """The same for JSON."""
        _mapped(value, self._learnt, self._named_secret(self._remember), self._named_identity(None))
        self._known = None

    def _learnt(self, text: str, name: str) -> str:
        self.learn(text, name)
        return text

    def text(self, text: str, where: str, name: str = "") -> str:
        """The text without them; `where` is a place for the list of what was removed."""
        note = self._counted(where)
        pattern, place = self._pattern(), place_of(name)
        shown = text if _key(text, place) in self._plain else self.identities.replaced(self._masked(text, note, place), _by_kind(note))
        return self._without_beginnings(pattern.sub(lambda match: self._replaced(match, note, place), shown), note)

    def value(self, value: Any, where: str) -> Any:
        """JSON without them: the names of its members stay, and tell what is a secret."""
        note = self._counted(where)
        return _mapped(
            value,
            lambda text, name: self.text(text, where, name),
            self._named_secret(note),
            self._named_identity(_by_kind(note)),
        )

    def json(self, text: str, where: str, *, indent: int | None = None) -> str:
        """JSON text, taken apart, redacted and written again; what is no JSON is redacted as text."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text, where)
        changed = self.value(value, where)
        return text if changed == value else json.dumps(changed, indent=indent)

    def _masked(self, text: str, note: Note, place: Place) -> str:
        text = _without_spans(masked_text(text, note), known_tokens, note)
        text = _without_rest(_without_spans(text, lambda text: _found_spans(text, place), note), note)
        return "\n".join(_without_named(line, note) for line in text.split("\n")) if _may_have_hint(text) else text

    def _counted(self, where: str) -> Note:
        def note(kind: str, value: str) -> str:
            self.removed[kind, where] += 1
            return self._mask(value)

        return note

    def _mask(self, secret: str) -> str:
        """What stands for a secret: the same in all places, and another for another."""
        if not secret or IS_MASK.fullmatch(secret):
            return secret or MASK
        return self._masks.setdefault(secret, f"{MASK}{len(self._masks) + 1}" if self._masks else MASK)

    def _remember(self, kind: str, value: str) -> None:
        """Secrets long or odd enough that the same letters are no accident elsewhere."""
        for part in dict.fromkeys((value, value.rpartition(":")[2])):
            odd = len(part) >= 8 or (len(part) >= 6 and any(map(str.isdigit, part)))
            if not odd or MASK in part or part.isdigit() or (part.isalpha() and not is_no_word(part)) or part in self.secrets:
                continue
            random = kind == _RANDOM  # found by its looks wherever it is whole; what only its place gives away has room of its own
            if self._kept[random] < _MOST_SECRETS:
                self._kept[random] += 1
                self.secrets[part] = kind

    def _named_secret(self, note: Note) -> Callable[[str, str], str | None]:
        def masked(name: str, value: str) -> str | None:
            if masked_setting(name, value) != MASK or IS_MASK.fullmatch(value) or _SWITCH.match(value):
                return None
            return note(NAMED, value) or MASK

        return masked

    def _named_identity(self, note: Callable[[str], object] | None) -> Callable[[str, str], str | None]:
        def shown(name: str, value: str) -> str | None:
            kind = "user name" if name.lower() in _USERS else "host name" if name.lower() in _HOSTS else None
            if kind is None or not re.fullmatch(r"[\w.-]{2,100}", value):
                return None
            if note is not None:
                note(kind)
            return self.identities.pseudonym(kind, value)

        return shown

    def _pattern(self) -> re.Pattern[str]:
        if self._known is None:
            self._bare = {name: (kind, shown) for kind, name, shown in self.identities.bare()}
            words = [rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])" for name in self._bare]
            secrets = [re.escape(secret) for secret in sorted(self.secrets, key=len, reverse=True)]
            self._known = re.compile("|".join([*secrets, *words]) or "(?!)")
            self._begun = {secret[:_SHORTEST_PREFIX] for secret in self.secrets}
        return self._known

    def _replaced(self, match: re.Match[str], note: Note, place: Place) -> str:
        kind, shown = self._bare.get(match[0]) or (self.secrets[match[0]], self._mask(match[0]))
        if kind == _RANDOM and _DIGITS.match(match[0]) and (place == "digest" or is_digest(match)):
            return match[0]
        note(kind, "")
        return shown

    def _without_beginnings(self, text: str, note: Note) -> str:
        """What is left of a secret where a text was cut: at its end, or before an ellipsis."""

        def shown(match: re.Match[str]) -> str:
            for begun in self._begun:
                at = match[0].find(begun)
                rest = match[0][at:]  # all of a secret that is still there is a digest
                whole = next((secret for secret in self.secrets if secret.startswith(rest)), None) if at >= 0 else None
                if whole is not None and rest not in self.secrets:
                    return match[0][:at] + (note("beginning of a secret", whole) or MASK)
            return match[0]

        return _CUT.sub(shown, text) if any(begun in text for begun in self._begun) else text

    def rows(self) -> list[tuple[str, str, int]]:
        """Kind, place and count of what was removed, in the order of kinds."""
        return [(kind, where, times) for (kind, where), times in sorted(self.removed.items())]


def _by_kind(note: Note) -> Callable[[str], object]:
    return lambda kind: note(kind, "")


def _key(text: str, place: Place) -> str | bytes:
    if len(text) < 200:
        return f"{place} {text}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=place.encode()).digest()


def _found_spans(text: str, place: Place) -> Iterator[tuple[str, int, int]]:
    """What its place, its name or its looks give away, together: letters of a key may by chance be a word behind which a secret stands."""
    placed = [*secret_places(text, place), *named_strings(text)]
    yield from placed
    values = {begin for _, begin, _ in placed if text[begin - 1 : begin] == "="}
    for begin, end in random_spans(text, place):  # what stands before a value and its sign is a name
        yield _RANDOM, max((value for value in values if begin < value < end), default=begin), end
    if place != "digest" and _DIGITS.search(text) is not None:
        yield from ((_RANDOM, *match.span()) for match in _KEY_OF_DIGITS.finditer(text) if not is_digest(match))


def _without_rest(text: str, note: Note) -> str:
    """The text without the other parts of a token of which one has gone."""
    return _REST.sub(lambda match: note(_RANDOM, match[0]) or MASK, text) if MASK in text else text


def _without_spans(text: str, spans: Callable[[str], Iterable[tuple[str, int, int]]], note: Note) -> str:
    """The text without the spans that a function finds in it, of which some may overlap."""
    pieces, at = [], 0
    for kind, begin, end in sorted(spans(text), key=lambda pair: (pair[1], -pair[2])):
        if end <= at:
            continue
        shown = note(kind, text[max(at, begin) : end]) or MASK
        if begin >= at:
            pieces += [text[at:begin], shown]
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


def _without_named(line: str, note: Note) -> str:
    """A line without the values that their names call secret."""
    if _may_have_hint(line) and _HINT.search(line):
        for pattern in (_QUOTED, _ASSIGNED, _OPTION):
            line = pattern.sub(lambda match: _named(match, note), line)
    return line


def _may_have_hint(text: str) -> bool:
    """False where `_HINT` finds nothing: far cheaper than an expression that ignores case."""
    low = text.lower()
    return any(sign in low for sign in _HINT_SIGNS)


def _named(match: re.Match[str], note: Note) -> str:
    value = match["value"]
    if not is_secret_name(match["name"]) or MASK in value or _SWITCH.match(value) or masked_setting(match["name"], value) != MASK:
        return match[0]
    return f"{match['head']}{note(NAMED, value) or MASK}"


def _mapped(
    value: Any,
    text: Callable[[str, str], str],
    secret: Callable[[str, str], str | None],
    identity: Callable[[str, str], str | None],
    name: str = "",
) -> Any:
    """JSON with every text replaced; `secret` and `identity` decide by the name of the member first."""
    if isinstance(value, str):
        for decides in (secret, identity):
            if name and (shown := decides(name, value)) is not None:
                return shown
        return text(value, name)
    if isinstance(value, dict):
        members: dict[str, Any] = {}
        times: Counter[str] = Counter()
        for key, item in value.items():
            bare = told = text(key, name)
            while told in members:  # two secrets are two members
                times[bare] += 1
                told = f"{bare} ({times[bare] + 1})"
            members[told] = _mapped(item, text, secret, identity, key)
        return members
    if isinstance(value, list):
        if name in _ARGUMENTS and all(isinstance(element, str) for element in value):
            return _arguments(value, text, secret)
        return [_mapped(entry, text, secret, identity, name) for entry in value]
    return value


def _arguments(words: list[str], text: Callable[[str, str], str], secret: Callable[[str, str], str | None]) -> list[str]:
    """A command line: also the value after an option whose name says that it is a secret."""
    shown = []
    for before, word, masked in zip(["", *words], words, masked_arguments(words), strict=False):
        name, mark, value = word.partition("=")
        hidden = secret(name if mark else before, value if mark else word) if masked != word else None
        shown.append(text(word if hidden is None else f"{name}={hidden}" if mark else hidden, before if before.startswith("-") else ""))
    return shown
