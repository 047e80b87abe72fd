"""Command lines, settings and error texts without what looks like a secret: by the name it has, and by how it looks. Standard library only.

Reports go into bug reports as they are. What is plainly harmless stays readable: `--num-tokens 128`, `TOKENIZERS_PARALLELISM=false`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Optional

MASK = "***"
NAMED = "value whose name says that it is secret"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Words that a secret is called by alone, and words before "key" and "token" that make them one.
_SECRET = _words(
    "secret secrets password passwords passwd passphrase pwd pass pw apikey authkey credential credentials creds authorization "
    "bearer jwt pat cookie apitoken authtoken accesstoken signature bindpw rootpw psk"
)
_KEYS = _words(
    "api access secret private auth ssh gpg encryption signing service account master license subscription wandb hf openai "
    "anthropic neptune comet aws azure gcp google sas storage client shared"
)
_ISSUERS = _words("wandb hf huggingface openai anthropic neptune comet aws azure gcp google github gitlab docker slack")
# What has a pass as a password has: other passes go forward, backward or over a graph.
_ACCOUNTS = frozenset({"", *_words("db user admin root login smtp mail ssh ftp proxy http sudo mysql postgres redis my account")})
# A token of a tokenizer, which has a name in a vocabulary, or a count.
_VOCABULARY = _words(
    "pad eos bos unk mask sep cls start end special stop per image audio video text max min num n new next first last prefix "
    "suffix every target source decoder encoder class register"
)
_HARMLESS = re.compile(r"[-+]?\d{1,7}(?:\.\d*)?|true|false|yes|no|on|off|none|null|auto|<[^<>]*>|\[[A-Z_]+\]|", re.IGNORECASE)
_NAME = re.compile(r"[-+~\w.:]{1,200}")
# Tokens that their form gives away, by kind (the formats are the issuers' own, as secret scanners list them).
_TOKENS = (
    ("Hugging Face token", r"\b(?:hf|api_org)_[A-Za-z0-9]{20,400}"),
    ("GitHub token", r"\bgh[pousr]_[A-Za-z0-9]{20,400}|\bgithub_pat_\w{10,400}"),
    ("GitLab token", r"\bgl(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-[\w-]{10,400}"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{20,400}"),
    ("DigitalOcean token", r"\bdo[opr]_v1_[A-Za-z0-9]{20,400}"),
    ("Replicate token", r"\br8_[A-Za-z0-9]{20,400}"),
    ("Linear key", r"\blin_api_[A-Za-z0-9]{20,400}"),
    ("NVIDIA key", r"\bnvapi-[A-Za-z0-9_-]{16,400}"),
    ("W&B key", r"\bwandb_v1_[A-Za-z0-9_-]{16,400}"),
    ("Slack token", r"\bxox[abeoprs]-[\w-]{8,400}"),
    ("Slack webhook", r"\bhooks\.slack\.com/(?:services|workflows)/[\w/-]{16,400}|\bhooks\.zapier\.com/hooks/catch/[\w/-]{8,400}"),
    ("Discord webhook", r"\bdiscord(?:app)?\.com/api/webhooks/\d{5,30}/[\w-]{16,400}"),
    ("package index token", r"\bpypi-[\w-]{16,400}"),
    ("key beginning with sk-", r"\bsk-[\w-]{16,400}"),
    ("Stripe key", r"\b(?:[rs]k_(?:live|test)|whsec)_\w{8,400}"),
    ("Google API key", r"\bAIza[\w-]{30,60}"),
    ("Google OAuth secret", r"\bya29\.[\w-]{10,400}|\bGOCSPX-[\w-]{16,400}"),
    ("AWS key id", r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b"),
    ("Azure account key", r"\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=[A-Za-z0-9+/=%&_-]{16,400}"),
    ("SendGrid key", r"\bSG\.[\w-]{16,64}\.[\w-]{16,64}"),
    ("Twilio key", r"\bSK[0-9a-f]{32}\b"),
    ("Telegram bot token", r"(?<!\d)\d{8,10}:AA[\w-]{30,40}"),
    ("Mailgun key", r"\bkey-[0-9a-f]{32}\b"),
    ("Databricks token", r"\bdapi[0-9a-f]{32}(?:-\d)?\b"),
    ("Grafana token", r"\bgl(?:sa|c)_[\w=+/-]{20,400}"),
    ("Vault token", r"\bhv[sbr]\.[\w-]{20,400}"),
    ("Shopify token", r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,64}"),
    ("Docker token", r"\bdckr_(?:pat|oat)_[\w-]{16,400}"),
    ("Postman key", r"\bPMAK-[0-9a-f]{16,40}-[0-9a-f]{16,64}"),
    ("Groq key", r"\bgsk_[A-Za-z0-9]{20,400}"),
    (
        "key with its issuer's prefix",
        r"\b(?:xai-|pplx-|tvly-|csk-|pcsk_|lsv2_(?:pt|sk)_|tgp_v1_|jina_(?=[0-9a-f]{24})|sntr(?:ys|[ysu])_|rubygems_|NRAK-|ATATT3x|xapp-|figd_|ntn_|sq0(?:csp|atp)-|HRKU-|nf[puoc]_|fo1_|ATBB|LTAI|CCIPAT_|tskey-|pscale_(?:pw|tkn|oauth)_|fm[12]_|AQVN)(?=[\w=-]{0,400}\d)[\w=-]{20,400}"
        r"|\bdt0[a-z]\d\d\.[A-Z0-9]{16,40}(?:\.[A-Z0-9]{32,100})?|\boauth:(?=[a-z]{0,30}\d)[a-z0-9]{30}\b|\bpul-[0-9a-f]{40}\b"
        r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:fx\b"
        r"|\bdp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,400}|\bpat[A-Za-z0-9]{14}\.[0-9a-f]{64}\b|\bsbp_[0-9a-f]{40}\b"
        r"|\b[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,400}|\b[sp]k\.eyJ[\w-]{10,400}\.[\w-]{10,400}",
    ),
    ("Office webhook", r"\bwebhook\.office\.com/webhookb2/[\w@/-]{36,400}"),
    ("JSON web token", r"\beyJ[\w-]{8,4000}\.[\w-]{8,4000}\.[\w-]{0,4000}"),
    (
        "private key",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]{0,10000}(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        r"|\bAGE-SECRET-KEY-1[A-Z0-9]{20,100}|\b0x[0-9a-fA-F]{64}\b"
        r"|\bPrivate-Lines: \d{1,3}(?:[A-Za-z0-9+/=\s]|\\{1,3}n){20,10000}|(?<=Private-MAC: )[0-9a-f]{40,64}",
    ),
)
_LOOKS = re.compile(
    # A password may have the marks that end a host, where no port stands before them.
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://)(?!git@)(?:[^\s:/?#@\"'<>\[\]]{0,100}:(?!/|\d{1,5}[/?#])[^\s/\"'<>]{1,400}(?=@[\w.\[-])"
    r"|[^/\s?#\"'<>]{1,1000}|[^\s:/?#@\"'<>\[\]]{1,100}:(?!/|\d{1,5}[/?#])[^\s\"'<>@]{1,100}(?=@[\w.\[-]))@"
    r"|(?P<query>[?&](?i:[\w-]{0,40}(?:token|signature|secret|password|passwd|credential|apikey|api_key|api-key|access_key)|sig|key|code(?==[\w%/+-]{40}))=)[^&\s\"'#]{1,2000}"
    r"|(?P<bearer>\b(?i:Authorization\\{0,3}[\"']?\s{0,4}[:=]\s{0,4}\\{0,3}[\"']?Bearer)\s{1,4})"
    r"(?=[^\s\"'\\]{0,4000}[\d=/+_-])(?!\$[{(]|\$[A-Z][A-Z0-9_]*(?![A-Za-z0-9!#%^&*?@|:-])|[{<]\w)[^\s\"'\\]{8,4000}"
    r"|(?P<kind>\bBearer\s{1,4}|\bbearer\s{1,4}|\b(?i:Authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:Basic|Token))\s{1,4})"
    r"(?=[^\s\"']*[\d=/+._-])(?!\$[{(]|\$[A-Z][A-Z0-9_]*(?![A-Za-z0-9!#%^&*?@|:-]))[A-Za-z0-9+/=._~!#$%^&*?@|:-]{8,4000}"
    r"|(?P<cookie>\b(?i:Cookie)\\{0,3}[\"']?\s{0,4}:\s{0,4}\\{0,3}[\"']?)(?=[\w.-]{1,100}=)[^\"'\n\\]{4,4000}"
    r"|(?P<header>\b(?i:Authorization|X-Api-Key)\s{0,4}:\s{0,4})(?!Bearer|Basic|Token)(?:[A-Z][\w-]{2,20}\s{1,4}(?=[^\s\"']*\d))?[^\s\"']{4,2000}"
    r"|(?P<element><(?i:password|passwd|secret)>)[^<\s]{4,400}(?=</)"
    # ~/.netrc, Docker's config.json, kaggle.json, curl -u
    r"|(?P<login>\blogin\s{1,4}\S{1,100}\s{1,4}password\s{1,4}|\bauth\\{0,3}[\"']\s{0,4}:\s{0,4}\\{0,3}[\"']"
    r"|\busername\\{0,3}[\"']\s{0,4}:\s{0,4}\\{0,3}[\"'][\w.-]{1,100}\\{0,3}[\"'],\s{0,4}\\{0,3}[\"']key\\{0,3}[\"']\s{0,4}:\s{0,4}\\{0,3}[\"'](?=[0-9a-f]{32})"
    r"|\bldap\w{0,10}\s[^\n]{0,200}?(?<=\s)-w\s{0,4}"
    r"|(?<![:\w.-])(?!(?:[0-9A-Fa-f]{2}:){4})[\w.-]{1,80}:\d{2,5}:[\w*-]{1,60}:[\w.-]{1,60}:"  # and ~/.pgpass
    r"|\b(?i:api[_-]?key|token|secret|password)\s{1,4}(?=[A-Za-z0-9-]{24})(?=[A-Za-z]{0,200}\d)"
    r"|\bsshpass\s{1,4}-p\s{0,4}|\bmysql\w{0,10}\s[^\n]{0,200}?(?<=\s)-p(?=[^\s\"']{0,400}\d)"
    r"|\bcurl\s[^\n]{0,200}?(?<=\s)(?:-u|--user)[ =][^\s:\"'/]{1,64}:)(?=[^\s\"'\\]{0,2000}[\d=])[^\s\"'\\]{6,2000}"
    r"|" + "|".join(form for _, form in _TOKENS)
)
_SAID = re.compile(
    r"(?i)(?P<head>[\"']?\b[\w-]{0,40}(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"client-key-data|(?:auth|access|api|hf|bearer|session|refresh|private)[_-]?token)[\"']?\]?\s{0,4}[:=]=?\s{0,4}[\"']?)"
    r"(?P<value>(?<=[\"'])[^\"'\n]{3,2000}|[^\s\"',;&}{)(]{3,2000})"
)
_CODE = re.compile(
    r"(?:self|cls|args|kwargs|cfg|config|conf|opts?|options|settings|params|os|env|environ|getpass)[.\[]"
    r"|(?:str|bytes|int|bool|object|Any|Optional|Union|SecretStr|None|True|False|string|Tensor|torch\.\w+)(?:[\[|\]=]|$)"
)
_IDENTIFIER = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+){0,5}\[?")
"""`password: Annotated[`, `api_key = raw_api_key`; a password has other letters, too."""

# One of these is in every text that either of the two expressions above matches; most texts have none, and this is far cheaper to see.
# Words that are common in harmless texts, too, come with what else must be there. None of it has a character that JSON escapes.
_SHORTEST = 6
_LEAST_KNOWN = 8
_SIGNS = (
    *("passw", "passp", "secret", "bearer", "authorization", "cookie", "sig=", "signature=", "credential"),
    *("hf_", "api_", "npm_", "_v1_", "r8_", "nvapi", "wandb_", "github_pat", "dckr_", "gsk_", "pmak-"),
    *("xox", "hooks.slack", "hooks.zapier", "/webhooks/", "pypi-", "sk-", "k_live_", "k_test_", "aiza", "ya29", "gocspx-"),
    *("akia", "asia", "aroa", "aida", "eyj", "accountkey=", "sharedaccess", ":aa", "whsec_", "xapp-", "atatt3x", "nrak-"),
    *("figd_", "ntn_", "sq0", "hrku-", "nfp_", "nfu_", "nfo_", "nfc_", "fo1_", "sbp_", ".atlasv1.", "k.eyj", "atbb", "ltai", "ccipat_"),
    *("tskey-", "pscale_", "fm1_", "fm2_", "aqvn", "oauth:", ":fx"),
    *("webhookb2/", "private-lines", "private-mac", "sshpass", "xai-", "pplx-", "tvly-", "csk-", "pcsk_", "lsv2_", "jina_", "rubygems_"),
)
_COMMON_SIGNS = (
    ("://", re.compile("@")),
    ("key", re.compile(r"(?:api|access|private)[_-]?key|[?&]key=|private key|key-[0-9a-f]{32}|key-data")),
    ("token", re.compile(r"(?:auth|access|api|hf|bearer|session|refresh|private)[_-]?token|token=")),
    ("code=", re.compile(r"[?&]code=[\w%/+-]{40}")),
    ("dp.", re.compile(r"dp\.(?:pt|st|ct|sa|scim|audit)\.")),
    ("pat", re.compile(r"pat[a-z0-9]{14}\.[0-9a-f]{64}")),
    *((word, re.compile(rf"{word}\s[a-z0-9-]{{24}}")) for word in ("key", "token")),
    ("mysql", re.compile(r" -p\S")),
    ("ldap", re.compile(r" -w\s?\S")),
    ("dt0", re.compile(r"dt0[a-z]\d\d\.")),
    ("pul-", re.compile("pul-[0-9a-f]{40}")),
    ("0x", re.compile("0x[0-9a-f]{64}")),
    (":", re.compile(r":\d{2,5}:[\w*-]{1,60}:[\w.-]{1,60}:")),
    ("gh", re.compile("gh[pousr]_")),
    ("gl", re.compile("gl(?:(?:pat|dt|rt|cbt|ptt|ft|soat|agent)-|(?:sa|c)_)")),
    ("auth", re.compile(r"auth\W")),
    ("username", re.compile(r"\bkey\W")),
    ("curl", re.compile(" (?:-u|--user)[ =]")),
    ("sntr", re.compile("sntr(?:ys|[ysu])_")),
    ("sg.", re.compile(r"sg\.[\w-]{16}")),
    ("sk", re.compile("sk[0-9a-f]{32}")),
    ("dapi", re.compile("dapi[0-9a-f]{32}")),
    ("hv", re.compile(r"hv[sbr]\.")),
    ("shp", re.compile("shp(?:at|ca|pa|ss)_")),
)
Note = Callable[[str, str], Optional[str]]  # noqa: UP045 - evaluated, also on Python 3.9
"""Told of each secret that is masked: its kind, and what it was. May give the mask to show for it, by which two secrets stay two."""
IS_MASK = re.compile(r"\*{3}\d{0,6}")


def masked_text(text: str, note: Note | None = None) -> str:
    """The text with URLs' user info, tokens of known forms and `password=...` masked."""
    if len(text) < _SHORTEST or not may_hold_secret(text):
        return text
    return _SAID.sub(partial(_masked_match, note=note), _LOOKS.sub(partial(_looks, note=note), text))


def may_hold_secret(text: str) -> bool:
    """False where `masked_text` leaves the text, and every part of it, as it is; far cheaper than to look for secrets."""
    if len(text) <= _LONGEST_SHAPE and text.isascii() and not _shape_may_hold_secret(text.encode("ascii").translate(_ALIKE)):
        return False
    return _has_sign(text.lower(), _SIGNS)


# Entries of a report are often alike but for their numbers, so the answer for a text with all digits made 0 is remembered. What no sign
# is in then, none is in: the expressions of `_COMMON_SIGNS` name no digit but 0, and take 0 wherever they take another.
_ALIKE = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ123456789", b"abcdefghijklmnopqrstuvwxyz000000000")
_SIGNS_IN_SHAPES = tuple(sign.encode("ascii").translate(_ALIKE).decode("ascii") for sign in _SIGNS)
_LONGEST_SHAPE = 4096


@lru_cache(maxsize=1024)
def _shape_may_hold_secret(shape: bytes) -> bool:
    return _has_sign(shape.decode("ascii"), _SIGNS_IN_SHAPES)


def _has_sign(low: str, signs: Iterable[str]) -> bool:
    for sign in signs:
        if sign in low:
            return True
    return any(word in low and more.search(low) is not None for word, more in _COMMON_SIGNS)


def masked_arguments(arguments: Iterable[str], known: Iterable[str] = ()) -> tuple[str, ...]:
    """A command line: also the value after an option with the name of a secret, that of `name=value`, and the `known` secrets."""
    shown: list[str] = []
    awaited = None
    for argument in arguments:
        if awaited is not None and not argument.startswith("--"):
            shown.append(masked_setting(awaited, argument))
            awaited = None
            continue
        name, mark, value = argument.partition("=")
        named = mark and _NAME.fullmatch(name) is not None
        shown.append(f"{name}={masked_setting(name, value)}" if named else masked_text(argument))
        awaited = argument if not mark and _NAME.fullmatch(name) and argument.startswith("-") and is_secret_name(argument) else None
    return _without_known(shown, known)


def _without_known(texts: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    shown = tuple(texts)
    for secret in known:
        shown = tuple(text.replace(secret, MASK) for text in shown)
    return shown


def masked_setting(name: str, value: str) -> str:
    """The value of an option or a variable: all of it is masked when the name is that of a secret."""
    return MASK if is_secret_name(name) and not _is_harmless(name, value) else masked_text(value)


def masked_settings(settings: Mapping[str, str], known: Iterable[str] = ()) -> dict[str, str]:
    """Variables or options by name, without the `known` secrets."""
    return dict(zip(settings, _without_known((masked_setting(name, value) for name, value in settings.items()), known)))


def secret_values(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the variables whose names say that they are secret, the longest first; a short one may be a word of other texts."""
    values = {value for name, value in settings.items() if len(value) >= _LEAST_KNOWN and masked_setting(name, value) == MASK}
    return tuple(sorted((value for value in values if not _is_common(value)), key=len, reverse=True))


def _is_common(value: str) -> bool:
    """A word or a path: `SSH_AUTH_SOCK=/tmp/agent`, `GOOGLE_APPLICATION_CREDENTIALS=/home/me/key.json`."""
    return value.isdigit() or "/" in value[:2] or (value.isalpha() and value.islower() and len(value) < 16)


def is_secret_name(name: str) -> bool:
    """Whether what has this name ("--api-key", "HF_TOKEN", "db.password") is a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    for before, word, after in zip(["", *words], words, [*words[1:], ""]):
        if word == "pass" and (after or before not in _ACCOUNTS):
            continue
        if word in _SECRET or (word in ("key", "keys") and before in _KEYS) or (word == "login" and before in _ISSUERS):
            return True
    # Of a token the name comes last: `--token-dim` and `--tokens` are none.
    return len(words) > 0 and words[-1] == "token" and not (len(words) > 1 and words[-2] in _VOCABULARY)


def _is_harmless(name: str, value: str) -> bool:
    """A switch or a count under a name that may be a secret's; a password may be a number."""
    words = [word.lower() for word in _WORD.findall(name)]
    return _HARMLESS.fullmatch(value) is not None and not (any(word.startswith("pass") for word in words) and any(map(str.isdigit, value)))


def _looks(match: re.Match[str], note: Note | None = None) -> str:
    whole = match[0]
    head = next((name for name in _HEADS if match[name]), None)
    if head is None and whole.startswith("sk-") and not any(map(str.isdecimal, whole)):
        return whole
    value, shown = whole[len(match[head]) :].rstrip("@") if head else whole, MASK
    if IS_MASK.fullmatch(value):
        return whole
    if note is not None and MASK not in whole:
        kind = _HEADS[head] if head else next((kind for kind, form in _TOKENS if re.fullmatch(form, whole)), "private key")
        shown = note(kind, value) or MASK
    return f"{match['scheme']}{shown}@" if head == "scheme" else f"{match[head] if head else ''}{shown}"


_HEADS = {
    "scheme": "password in a URL",
    "query": "key in a URL",
    "bearer": "authorization header",
    "kind": "authorization header",
    "cookie": "cookies",
    "header": "authorization header",
    "login": "password of a login",
    "element": "password of a login",
}


def _masked_match(match: re.Match[str], note: Note | None = None) -> str:
    value, head = match["value"], match["head"]
    if _HARMLESS.fullmatch(value) or MASK in value:
        return match[0]
    # Source code names where the secret comes from (`password=args.password`, `api_key: str`, `secret = read()`); that is none itself.
    in_quotes = head[-1] in "\"'"
    if in_quotes and value[0] in "),]}":  # the quote ends a text: `getpass("Password: ")`
        return match[0]
    name = head.strip(" \t\"'[]:=").lower()
    if not in_quotes and (_CODE.match(value) or value.lower().endswith(name) or match.string.startswith("(", match.end())):
        return match[0]
    if not in_quotes and _IDENTIFIER.fullmatch(value) and (value.endswith("[") or is_secret_name(value)):
        return match[0]
    return f"{head}{(note and note(NAMED, value)) or MASK}"
