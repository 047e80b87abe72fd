"""Secrets with fresh random values, of the kinds and in the places that programs have them. None is real."""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass

ALNUM, HEX, UPPER = string.ascii_letters + string.digits, "0123456789abcdef", string.ascii_uppercase + string.digits
BASE32 = string.ascii_uppercase + "234567"


@dataclass(frozen=True)
class Planted:
    """A secret in its place: the text to be shown, and the values that nobody may find."""

    kind: str
    text: str
    values: tuple[str, ...]


class Maker:
    """Draws secrets; the same seed gives the same."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def of(self, length: int, letters: str = ALNUM) -> str:
        return "".join(self.draw.choice(letters) for _ in range(length))

    def data(self, length: int) -> bytes:
        return self.draw.randbytes(length)

    def base64(self, letters: int) -> str:
        """Base64 of so many letters, with its padding."""
        return base64.b64encode(self.data(letters * 3 // 4)).decode()

    def url_safe(self, letters: int, *, padded: bool = False) -> str:
        made = base64.urlsafe_b64encode(self.data(letters * 3 // 4)).decode()
        return made if padded else made.rstrip("=")

    def password(self, length: int = 14) -> str:
        """As people have them made: a letter and a digit are among its letters."""
        return self.of(length - 2) + self.of(1, string.ascii_letters) + self.of(1, string.digits)

    def uuid(self) -> str:
        return str(uuid.UUID(bytes=self.data(16), version=4))

    def planted(self, count: int) -> list[Planted]:
        """So many, of every kind, one after the other."""
        return [_plant(self, kind) for kind in (list(KINDS) * (count // len(KINDS) + 1))[:count]]


def _plant(make: Maker, kind: str) -> Planted:
    found = KINDS[kind](make)
    text, *values = (found,) if isinstance(found, str) else found
    return Planted(kind, text, tuple(values) or (text,))


Kind = Callable[[Maker], "str | tuple[str, ...]"]


def _in(template: str, value: Callable[[Maker], str]) -> Kind:
    def made(make: Maker) -> tuple[str, ...]:
        secret = value(make)
        return (template.replace("@@", secret), secret)

    return made


def _pem(make: Maker) -> tuple[str, ...]:
    lines = [make.base64(64) for _ in range(3)]
    dashes, what = "-" * 5, "PRIVATE" + " KEY"
    return ("\n".join([f"{dashes}BEGIN {what}{dashes}", *lines, f"{dashes}END {what}{dashes}"]), *lines)


def _neptune(make: Maker) -> str:
    facts = {"api_address": "https://app.example.com", "api_key": make.uuid()}
    return base64.b64encode(json.dumps(facts).encode()).decode()


def _jwt(make: Maker) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in ({"alg": "HS256"}, {"sub": make.of(12)})]
    return ".".join([*parts, make.url_safe(43)])


def _halves(template: str, value: Callable[[Maker], str]) -> Kind:
    def made(make: Maker) -> tuple[str, ...]:
        secret = value(make)
        half = len(secret) // 2
        return (template.replace("@1", secret[:half]).replace("@2", secret[half:]), secret[:half], secret[half:])

    return made


def _basic(make: Maker) -> str:
    return base64.b64encode(f"svc:{make.password()}".encode()).decode()


KINDS: dict[str, Kind] = {
    # By their form.
    "AWS key id": lambda make: "AK" + "IA" + make.of(16, BASE32),
    "GitHub token": lambda make: "gh" + "p_" + make.of(36),
    "GitHub fine-grained token": lambda make: "github_" + "pat_" + make.of(22) + "_" + make.of(59),
    "GitLab token": lambda make: "glp" + "at-" + make.url_safe(20),
    "Hugging Face token": lambda make: "hf" + "_" + make.of(34, string.ascii_letters),
    "Slack token": lambda make: "xo" + "xb-" + make.of(12, string.digits) + "-" + make.of(24),
    "Slack webhook": _in(
        "https://hooks.sl" + "ack.com/services/@@", lambda make: f"T{make.of(8, UPPER)}/B{make.of(8, UPPER)}/{make.of(24)}"
    ),
    "JWT": _jwt,
    "PEM": _pem,
    "Google API key": lambda make: "AI" + "za" + make.url_safe(35),
    "Stripe key": lambda make: "rk_" + "live_" + make.of(24),
    "SendGrid key": lambda make: "SG" + "." + make.url_safe(22) + "." + make.url_safe(43),
    "npm token": lambda make: "np" + "m_" + make.of(36),
    "package index token": lambda make: "py" + "pi-AgEIcHlwaS5vcmc" + make.url_safe(60),
    "OpenAI key": lambda make: "s" + "k-proj-" + make.url_safe(48),
    "NVIDIA key": lambda make: "nv" + "api-" + make.url_safe(64),
    "Telegram token": lambda make: make.of(10, "123456789") + ":AA" + make.url_safe(33),
    "Discord token": lambda make: "M" + make.of(23) + "." + make.of(6) + "." + make.url_safe(38),
    "Mailchimp key": lambda make: make.of(32, HEX) + "-us12",
    "Twilio account": lambda make: "AC" + make.of(32, HEX),
    # Bare: nothing says what it is.
    "hex 32": lambda make: make.of(32, HEX),
    "hex 40": lambda make: make.of(40, HEX),
    "hex 64": lambda make: make.of(64, HEX),
    "HEX 32": lambda make: make.of(32, HEX).upper(),
    **{f"base64 {letters}": (lambda letters: lambda make: make.base64(letters))(letters) for letters in (20, 24, 32, 40, 44, 48, 64, 88)},
    **{f"url-safe {letters}": (lambda letters: lambda make: make.url_safe(letters))(letters) for letters in (20, 24, 32, 43, 64)},
    "Fernet key": lambda make: make.url_safe(44, padded=True),
    "random 24": lambda make: make.password(24),
    "base32 32": lambda make: make.of(32, BASE32),
    "Neptune token": _neptune,
    "ssh-ed25519": _in("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI@@ me", lambda make: make.base64(44).rstrip("=")),
    # In a telling place.
    "database URL": _in("postgresql://app:@@@db.example.net:5432/x", Maker.password),
    "database URL of letters": _in("mysql+pymysql://trainer:@@@db7.example.net/runs", lambda make: make.of(10, string.ascii_lowercase)),
    "URL with a password": _in("git clone https://me:@@@git.example.net/r.git", Maker.password),
    "key in a query": _in("https://api.example.net/v1?x=1&api_key=@@", lambda make: make.of(24)),
    "signature in a query": _in("https://b.example.net/o?X-Amz-Signature=@@", lambda make: make.of(64, HEX)),
    "basic auth": _in("Authorization: Basic @@", _basic),
    "basic auth in JSON": _in('{"Authorization": "Basic @@"}', _basic),
    "bearer": _in("-H 'Authorization: Bearer @@'", lambda make: make.url_safe(40)),
    "UUID in a key place": _in("api_key: @@", Maker.uuid),
    "UUID behind key": _in('{"key": "@@"}', Maker.uuid),
    "UUID in a header": _in("X-Api-Key: @@", Maker.uuid),
    "option with key": _in("run --comet-api-key @@ train.py", lambda make: make.of(25)),
    "option x-key": _in("run --x-key @@ train.py", lambda make: make.password(18)),
    "option login": _in("run --wandb-login @@ train.py", lambda make: make.of(40, HEX)),
    "option login, short": _in("run --login @@ train.py", lambda make: make.password(16)),
    "option with =": _in("run --password=@@ train.py", Maker.password),
    "variable": _in("export WANDB_API_KEY=@@", lambda make: make.of(40, HEX)),
    "variable with a name of its own": _in("CLUSTER=@@ python train.py", lambda make: make.base64(44)),
    "JSON": _in('{"db": {"password": "@@"}, "n": 1}', Maker.password),
    "JSON in JSON": _in('"{\\"client_secret\\": \\"@@\\"}"', lambda make: make.of(24)),
    "YAML": _in("db:\n  password: @@\n  port: 5432", Maker.password),
    "YAML, quoted": _in("secret_key: '@@'", lambda make: make.base64(40)),
    "Python literal": _in('TOKEN = "@@"', lambda make: make.password(18)),
    "Python keyword": _in('connect(host, password="@@", port=1)', Maker.password),
    "Python dict": _in('{"@@": 1.5, "scale": 2.0}', lambda make: make.base64(44)),
    "f-string": _in('url = f"https://api.example.net/{path}?key=@@"', lambda make: make.of(32)),
    "f-string with a key": _in('f"{user}:@@"', lambda make: make.base64(32)),
    "comment": _in("x = x + 1  # the vault says @@", lambda make: make.url_safe(32)),
    "comparison": _in('if who == "@@":', lambda make: make.base64(44)),
    "two strings": _halves('KEY = ("@1"\n       "@2")', lambda make: make.of(40, HEX)),
    "two strings in a row": _halves('KEY = "@1" "@2"', lambda make: make.base64(44)),
    "backslash": _halves('KEY = "@1" \\\n      "@2"', lambda make: make.of(64, HEX)),
    "shell, continued": _halves("export KEY=@1\\\n@2", lambda make: make.of(40, HEX)),
    "plus": _halves('KEY = "@1" + "@2"', lambda make: make.base64(40)),
    "cookie": _in("Cookie: theme=dark; sessionid=@@", lambda make: make.of(32)),
    "netrc": _in("machine git.example.net login me password @@", Maker.password),
    "connection string": _in("Server=db;User=app;Password=@@;", Maker.password),
    "Azure connection": _in("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=@@;", lambda make: make.base64(88)),
    "AWS secret": _in('aws_secret_access_key = "@@"', lambda make: make.base64(40)),
    "percent-encoded": _in("sig%3D@@", lambda make: make.base64(44).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")),
}
