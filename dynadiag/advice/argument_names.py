"""Names that torch gives to the arguments of a wrapped call (`args[0]`, `kwargs['ids']`), in the words of the person who made the call."""

from __future__ import annotations

import re

from dynadiag.advice.recompile_cause import Cause

_NAME = r"(?:args\[(?P<index>\d)\]|kwargs\[(?P<quote>['\"])(?P<key>\w+)(?P=quote)\])"
_ARGUMENT = re.compile(rf"\b{_NAME}")
_QUOTED = re.compile(rf"`{_NAME}(?P<rest>[^`]*)`")
_EXAMPLE = re.compile(rf"(?: \(|, as in )`(?:[\w.]+\()?{_NAME}[^`]*`\)?(?=[.,; ]|$)")
_ORDER = ("first", "second", "third", "fourth", "fifth")


def by_name(text: str, cause: Cause) -> str:
    """The text with each such argument as the user's own line writes it; where that is not known "the keyword argument `ids`".

    Examples of code in which it would stand are left out then: `kwargs['ids'].to(dtype)` is nothing that could be pasted.
    """
    for name in dict.fromkeys(match[0] for match in _ARGUMENT.finditer(text)):
        written = cause.as_written(name)
        text = text if written is None else text.replace(name, written)
    text = _QUOTED.sub(_in_words, _EXAMPLE.sub("", text))
    return f"T{text[1:]}" if text.startswith("the ") else text


def is_torchs_name(source: str) -> bool:
    """Whether the source begins with a name that torch made for an argument of a wrapped call."""
    return _ARGUMENT.match(source) is not None


def _in_words(match: re.Match[str]) -> str:
    if match["key"]:
        argument = f"the keyword argument `{match['key']}`"
    elif int(match["index"]) < len(_ORDER):
        argument = f"the {_ORDER[int(match['index'])]} argument"
    else:
        return match[0]
    rest = match["rest"].lstrip(".")
    return f"`{rest}` of {argument}" if rest else argument
