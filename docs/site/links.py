"""The links of the documentation that lead to other sites. `make links` asks each of them whether it is still there."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path

from dynadiag.rules.rule import page_address
from dynadiag.rules.torch_breaks import torch_ids

ROOT = Path(__file__).parents[2]
_ADDRESS = re.compile(r"https?://[^\s)>\"'`|]+")
_SECONDS = 20


def outer_links() -> dict[str, set[str]]:
    """Each address with the pages that have it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "dynadiag/rules/pages").glob("*.md")]:
        for address in _ADDRESS.findall(page.read_text("utf-8")):
            found[address.rstrip(".,;:")].add(page.relative_to(ROOT).as_posix())
    return dict(found)


def failure(address: str) -> str | None:
    """Why the address cannot be read; None where it can."""
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (links of dynadiag's documentation)"})
        with urllib.request.urlopen(request, timeout=_SECONDS):
            return None
    except (OSError, ValueError) as error:
        return str(error)


def main() -> int:
    """Print the addresses that cannot be read, with their pages; 1 if there are any. Of torch's pages for its ids one is asked for."""
    links = outer_links() | {str(page_address(torch_ids()[0])): {"dynadiag rule"}}
    gone = [(address, why) for address in sorted(links) if (why := failure(address)) is not None]
    for address, why in gone:
        print(f"{address}: {why} ({', '.join(sorted(links[address]))})")
    print(f"{len(links) - len(gone)} of {len(links)} addresses can be read")
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
