"""The tokens that detect-secrets knows by their form, beside those of `dynadiag.masking`.

Only its expressions are used. What else it does (to ask the issuer whether a token is valid) would send the token over the network, and is
never called. It takes half a second to import, so only `dynadiag bug` does.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

# One of these is in every text that an expression matches, in any case where it has small letters. Without them an expression reads every
# text, some at 5 MB/s.
_SIGNS = {
    "ArtifactoryDetector": ("AKC", "AP"),
    "AWSKeyDetector": ("aws", "a3t", "abia", "acca", "akia", "asia"),
    "BasicAuthDetector": ("://",),
    "CloudantDetector": ("cloudant",),
    "IbmCloudIamDetector": ("ibm", "iam", "bluemix"),
    "IbmCosHmacDetector": ("hmac", "secret"),
    "MailchimpDetector": ("-us",),
    "SlackDetector": ("xox", "hooks.slack"),
    "SoftlayerDetector": ("softlayer",),
    "StripeDetector": ("k_live_",),
}
_REST = re.compile(r"[\w-]*")
# A header without its key (`masking` takes both), and addresses, which have pseudonyms.
_NOT_TAKEN = ("PrivateKeyDetector", "IPPublicDetector")


def known_tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind, begin and end of each token in a text."""
    low = text.lower()
    for kind, signs, pattern in _expressions():
        if signs and not any(sign in (low if sign.islower() else text) for sign in signs):
            continue
        for match in pattern.finditer(text):
            groups = [number for number in range(1, pattern.groups + 1) if match[number]]
            longest = max(groups, key=lambda number: len(match[number]), default=0)
            begin, end = match.span(longest)
            rest = _REST.match(text, end)  # an expression takes the letters that a token has had so far; issuers add some
            yield kind, begin, rest.end() if rest else end


@lru_cache(maxsize=1)
def _expressions() -> list[tuple[str, tuple[str, ...], re.Pattern[str]]]:
    """Kind, signs and expression of each detector that has expressions."""
    from detect_secrets import plugins
    from detect_secrets.plugins.base import RegexBasedDetector

    for module in pkgutil.iter_modules(plugins.__path__):
        importlib.import_module(f"{plugins.__name__}.{module.name}")
    found = []
    for detector in sorted(RegexBasedDetector.__subclasses__(), key=lambda item: item.__name__):
        if detector.__name__ not in _NOT_TAKEN:
            kind = f"{detector.secret_type} (detect-secrets)"
            found += [(kind, _SIGNS.get(detector.__name__, ()), pattern) for pattern in detector.denylist]  # type: ignore[attr-defined]
    return found


@lru_cache(maxsize=1)
def hex_entropy() -> Callable[[str], float]:
    """The entropy of hexadecimal digits in bits a digit, which is lower where all are decimal; and what a key has at least."""
    from detect_secrets.plugins.high_entropy_strings import HexHighEntropyString

    return HexHighEntropyString().calculate_shannon_entropy


LEAST_HEX_ENTROPY = 2.7
"""A little less than detect-secrets asks for (3): of random words of 32 digits one in 10,000 has no more than that."""
