"""Who and where: user names, hosts, addresses of machines and of people in a text, each with a pseudonym that is always the same."""

from __future__ import annotations

import builtins
import ipaddress
import keyword
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_NAME = r"[^\\/\s\"'<>|:;,()\[\]{}*$?]{1,64}"
_HOMES = re.compile(r"(?:[\\/]|(?<![\w.-]))(?:h?ome|[Uu]?sers|scratch|netscratch)[\\/]{1,2}(?P<user>" + _NAME + r")(?=[\\/\s\"':;,)\]}]|$)")
_TORCH_CACHE = re.compile(r"(?<=[\\/])torchinductor_(?P<user>" + _NAME + r")(?=[\\/\s\"']|$)")
_USER_SAID = re.compile(r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER)[\"']?\s?[=:]\s?[\"']?(?P<user>[A-Za-z_][\w.-]{1,40})")
_USER_QUOTED = re.compile(r"[\"']user_?name\\?[\"']\s?:\s?\\?[\"'](?P<user>[A-Za-z_][\w.-]{2,40})\\?[\"']")
_REMOTE = re.compile(r"(?<![\w.@/-])(?P<user>(?!git@)[a-z_][\w-]{1,31})@(?P<host>[A-Za-z0-9][\w.-]{1,252}):(?=[/~.])")
_HOST_SAID = re.compile(
    r"\b(?:HOSTNAME|MASTER_ADDR|SLURMD_NODENAME|SLURM_SUBMIT_HOST|master[-_]addr|"
    r"rdzv[-_]endpoint|nodename|hostname)[\"']?\]?[ =:]{1,3}[\"']?"
    r"(?P<host>(?!localhost\b|none\b|None\b)[A-Za-z0-9][\w.-]{1,252})"
)
_URL = re.compile(
    r"\b(?!file:)[A-Za-z][A-Za-z0-9+]{1,12}://(?:[^\s/\"'<>@]{1,400}@)?(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)"
)
_INNER_HOST = re.compile(
    r"(?<![\w.@/-])(?P<host>[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,63}){0,6}\.(?:internal|corp|lan|intranet|localdomain|local|compute\.amazonaws\.com))"
    r"(?![\w(])"
)
_AWS_HOST = re.compile(r"\b(?P<host>ip-\d{1,3}(?:-\d{1,3}){3})\b")
_TOP = (
    "com|org|net|edu|gov|mil|io|ai|dev|app|co|info|de|fr|uk|ch|at|nl|be|se|no|fi|dk|pl|cz|it|es|pt|eu|jp|cn|kr|in|br|ru|ca|au|nz|us|il|sg|"
    "example|test|internal|corp|lan|local"
)
_MAIL = re.compile(r"(?<![\w.+/-])(?!git@)[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,6}(?:" + _TOP + r")(?![\w(-]|\.\w)")
_IPV4 = re.compile(r"(?<![\w.~+-])(?<![=<>~]=)(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:{1,2}){2,7}[0-9a-fA-F]{0,4}(?![\w:])")
_MAC = re.compile(r"(?<![\w:-])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:-])")
_VERSION_BEFORE = re.compile(r"(?i)(?:version|cudnn|cublas|nccl|driver|release|build)\W{0,3}$")
_PUBLIC = (
    *(
        "pytorch.org",
        "github.com",
        "githubusercontent.com",
        "github.io",
        "python.org",
        "huggingface.co",
        "hf.co",
        "nvidia.com",
        "arxiv.org",
    ),
    *("gnu.org", "apache.org", "w3.org", "wikipedia.org", "stackoverflow.com", "readthedocs.io", "opensource.org", "microsoft.com"),
    *("intel.com", "amd.com", "numpy.org", "scipy.org", "llvm.org", "kernel.org", "google.com", "example.com", "example.org", "goo.gl"),
)
_COMMON = frozenset(
    [
        "root",
        "user",
        "users",
        "admin",
        "test",
        "tests",
        "ubuntu",
        "debian",
        "runner",
        "docker",
        "jenkins",
        "dev",
        "home",
        "shared",
        "data",
        "torch",
        "python",
        "model",
        "models",
        "train",
        "nobody",
        "default",
        "local",
        "public",
        "guest",
        "code",
        "work",
        "src",
        "app",
        "main",
        "build",
        "tmp",
        "none",
        "true",
        "false",
        "self",
    ]
)
"""Names that say nothing of a person, or that are words of other texts, too: they have a pseudonym in a path only."""
_OF_PYTHON = frozenset(
    [*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "Optional", "Union", "Any", "Annotated", "Sequence", "Callable"]
)
"""What a name in source stands for: `hostname: str`, `HOSTNAME = None if ...`."""
_CODE_BEHIND = re.compile(r"\s?[(\[]|\s?\|\s|\s?=(?!=)")
_MOST_NAMES = 300
"""So many are looked for as bare words; further ones are replaced where their surroundings or their form give them away."""


@dataclass
class Identities:
    """Names seen so far by kind, each with its pseudonym, which is the same wherever the name stands."""

    names: dict[str, dict[str, str]] = field(default_factory=dict)

    def learn(self, text: str) -> bool:
        """Give a pseudonym to whoever the text names: a name is then found where nothing says what it is, too. True if there is one."""
        found = [self.pseudonym(kind, name) for kind, name, _, _ in _found(text)]
        return bool(found)

    def know(self, kind: str, name: str) -> None:
        """Look for a name that is known from elsewhere, unless it says nothing of anybody."""
        if len(name) >= 3 and name.lower() not in _COMMON and name != "localhost":
            self.pseudonym(kind, name)

    def pseudonym(self, kind: str, name: str) -> str:
        """What stands for the name."""
        known = self.names.setdefault(kind, {})
        if name not in known:
            known[name] = _FORMS[kind](len(known) + 1)
        return known[name]

    def bare(self) -> Iterator[tuple[str, str, str]]:
        """Kind, name and pseudonym of what is to be found as a word, the longest first."""
        pairs = [(kind, name, shown) for kind in ("user name", "host name") for name, shown in self.names.get(kind, {}).items()]
        for kind, name, shown in sorted(pairs[:_MOST_NAMES], key=lambda pair: -len(pair[1])):
            if len(name) >= 3 and name.lower() not in _COMMON and not name.isdigit():
                yield kind, name, shown

    def replaced(self, text: str, note: Callable[[str], object]) -> str:
        """The text with the pseudonyms; `note` is told the kind of each name that was replaced."""
        pieces, at = [], 0
        for kind, name, begin, end in sorted(_found(text), key=lambda pair: (pair[2], -pair[3])):
            if begin < at:
                continue
            note(kind)
            pieces += [text[at:begin], self.pseudonym(kind, name)]
            at = end
        return "".join([*pieces, text[at:]]) if pieces else text


_FORMS: dict[str, Callable[[int], str]] = {
    "user name": lambda number: f"user{number}",
    "host name": lambda number: f"host{number}",
    "e-mail address": lambda number: f"person{number}@example.com",
    "IP address": lambda number: f"192.0.2.{number}" if number < 255 else f"198.51.{number // 250 % 250}.{number % 250}",  # RFC 5737
    "IPv6 address": lambda number: f"2001:db8::{number:x}",  # RFC 3849
    "hardware address": lambda number: f"00:00:5e:00:{number // 256 % 256:02x}:{number % 256:02x}",
}
_PSEUDONYM = re.compile(r"(?:user|host)\d+|person\d+@example\.com|192\.0\.2\.\d+|2001:db8::.*|00:00:5e:00:.*")


def _found(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Kind, name, begin and end of every name that its surroundings or its form give away."""
    for pattern, sign in _NAMED:
        for match in pattern.finditer(text) if sign.search(text) else ():
            for group, kind in (("user", "user name"), ("host", "host name")):
                name = match[group] if group in pattern.groupindex else None
                if name and pattern in _IN_SOURCE and (name in _OF_PYTHON or _is_expression(name, match)):
                    continue
                if name and not _PSEUDONYM.fullmatch(name) and (group == "user" or _is_host(name, pattern)):
                    yield kind, name, match.start(group), match.end(group)
    for pattern, kind, letter in _FORMED:
        for match in pattern.finditer(text) if letter in text else ():
            if not _PSEUDONYM.fullmatch(match[0]) and (kind in ("e-mail address", "hardware address") or _is_machine(match)):
                yield kind, match[0], match.start(), match.end()


_NAMED = tuple(
    (pattern, re.compile(sign))
    for pattern, sign in (
        (_HOMES, r"ome[\\/]|sers[\\/]|scratch[\\/]"),
        (_TORCH_CACHE, "torchinductor_"),
        (_USER_SAID, "USER|LOGNAME"),
        (_USER_QUOTED, "user_?name"),
        (_REMOTE, "@[^:]{2,250}:"),
        (_HOST_SAID, "HOST|MASTER_ADDR|NODENAME|master.addr|endpoint|nodename|hostname"),
        (_URL, "://"),
        (_INNER_HOST, r"\.(?:internal|corp|lan|intranet|local|compute)"),
        (_AWS_HOST, r"ip-\d"),
    )
)
_IN_SOURCE = frozenset({_USER_SAID, _HOST_SAID})
_FORMED = ((_MAIL, "e-mail address", "@"), (_IPV4, "IP address", "."), (_IPV6, "IPv6 address", ":"), (_MAC, "hardware address", ":"))


def _is_host(name: str, pattern: re.Pattern[str]) -> bool:
    """Whether it is the name of somebody's machine: no public site, no address, no localhost, no attribute (`self.local`)."""
    if pattern is _INNER_HOST and not re.search(r"[\d-]", name):
        return False
    low = name.lower().rstrip(".")
    if low in ("localhost", "none") or low.startswith("127.") or any(low == text or low.endswith(f".{text}") for text in _PUBLIC):
        return False
    return re.fullmatch(r"(?:\d{1,3}\.){3}\d{1,3}", low) is None


def _is_expression(name: str, match: re.Match[str]) -> bool:
    """Whether a name without quotes is that of a variable or an attribute: `hostname = parsed.hostname`, `USER: list[str]`."""
    text, end = match.string, match.end()
    if text[end - len(name) - 1 : end - len(name)] in "\"'":
        return False
    return (
        _CODE_BEHIND.match(text, end) is not None
        or re.search(r"(?i)(?:^|[._])(?:host(?:name)?|user(?:name)?|addr|node)$", name) is not None
    )


def _is_machine(match: re.Match[str]) -> bool:
    """Whether it is the address of one machine: no version, no loopback, no bit pattern that only looks like one."""
    try:
        address = ipaddress.ip_address(match[0])
    except ValueError:
        return False
    if address.version == 6 and (match[0].count(":") < 3 or not any(map(str.isdigit, match[0]))):
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast or match[0] == "255.255.255.255" or match[0].startswith("0."):
        return False
    return _VERSION_BEFORE.search(match.string, max(0, match.start() - 20), match.start()) is None
