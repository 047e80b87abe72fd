"""The pages of the site that are made from the program: each code, verb, JSON Schema and public name; and links that lead out of docs/."""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.testing import CliRunner

import dynadiag
from dynadiag.model.codes import TABLE
from dynadiag.model.report import Advice, Cost, Finding, Report, Summary
from dynadiag.render.markdown_text import code, prose, table
from dynadiag.rules.rule import Rule, find_rule, listing
from dynadiag_cli.app import app
from tests.advice_cases import Case, cases

ROOT = Path(__file__).parents[2]
PROJECT = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml"}
_RULE_PAGES = "dynadiag/rules/pages/"
_EXAMPLES = 2
_TESTS_LIBRARY = "advice_library."  # a package of the tests, which no reader has


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation is the index: `docs/README.md` has the pages under its headings."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs/README.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    nav: list[dict[str, Any]] = [{"Start": ["README.md", "overview.md"]}]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        pages = [page for page in re.findall(r"^\| \[[^\]]+\]\(([^)#]+\.md)(?:#[^)]*)?\)", body, re.MULTILINE) if not page.startswith("..")]
        nav.append({title: pages})
    verbs = [f"reference/{command.name}.md" for command in app.registered_commands]
    nav.append({"Made from the program": ["codes/index.md", "reference/python.md", "reference/json.md", {"Verbs": verbs}]})
    nav.append({"Project": ["contributing.md", "changelog.md", "security.md"]})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    for name, text in {**_codes(), **_verbs(), "reference/json.md": _schemas(), "reference/python.md": _python()}.items():
        files.append(File.generated(config, name, content=text))
    outside = {link for text in _sources() for link in _outside(text)}
    for source, name in PROJECT.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text("utf-8")))
    for path in sorted(outside - PROJECT.keys()):
        if (ROOT / path).is_file() and not path.startswith((_RULE_PAGES, "docs/")):
            language = _LANGUAGES.get(Path(path).suffix, "text")
            files.append(
                File.generated(
                    config, _source_page(path), content=f"# {path}\n\n````{language}\n{(ROOT / path).read_text('utf-8')}\n````\n"
                )
            )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links out of docs/ lead to the pages that stand for those files here; a list begins behind an empty line."""
    home = _home(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(home, match[1]))
        target = _page_of(path)
        return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".") + (match[2] or "")

    parts = re.split(r"(^ *(?:```+|````+).*?^ *```+ *$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else _spaced(_LINK.sub(moved, part)) for number, part in enumerate(parts))


def _spaced(text: str) -> str:
    return re.sub(r"^(?![-*|#>\s]|\d+\. )(.+)\n(?=[-*] |1\. )", r"\1\n\n", text, flags=re.MULTILINE)


def _home(page: str) -> str:
    """The folder in the project in which the links of a page begin."""
    if page in PROJECT.values():
        return "."
    if re.fullmatch(r"codes/D[A-Z]\d+\.md", page):
        return _RULE_PAGES.rstrip("/")
    return posixpath.join("docs", posixpath.dirname(page)).rstrip("/")


def _page_of(path: str) -> str:
    """The page of the site for a file of the project."""
    if path.startswith(_RULE_PAGES):
        return f"codes/{path.removeprefix(_RULE_PAGES)}"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PROJECT.get(path) or _source_page(path)


def _source_page(path: str) -> str:
    return f"project/{path.lstrip('.')}.md"


def _sources() -> Iterator[tuple[str, str]]:
    for path in [*(ROOT / name for name in PROJECT), *sorted((ROOT / "docs").rglob("*.md"))]:
        yield path.relative_to(ROOT).parent.as_posix(), path.read_text("utf-8")


def _outside(source: tuple[str, str]) -> Iterator[str]:
    home, text = source
    for match in _LINK.finditer(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        yield posixpath.normpath(posixpath.join(home, match[1]))


# -- codes


def _codes() -> dict[str, str]:
    """A page for each code of ours and for each of torch's that has advice; the others are a row with torch's page."""
    cases = _cases()
    pages, rows, others = {}, [], []
    for name, title in listing():
        rule = find_rule(name)
        if name in TABLE or name in cases or any(head == "dynadiag advises" and text for head, text in rule.sections):
            pages[f"codes/{name}.md"] = _code_page(rule, cases.get(name, []))
            rows.append((f"[{name}]({name}.md)", prose(title)))
        else:
            others.append((f"[{name}]({rule.address})" if rule.address else name, prose(title)))
    head = "# Codes\n\n`dynadiag rule CODE` prints the same. Codes that begin with GB are torch's own ids of graph breaks.\n\n"
    rest = f"\n\n## Without advice of dynadiag\n\nThese lead to torch's own pages.\n\n{table(('code', 'what'), others)}\n"
    return {**pages, "codes/index.md": head + table(("code", "what"), rows) + rest}


def _code_page(rule: Rule, cases: list[str]) -> str:
    if rule.code in TABLE:
        more = TABLE[rule.code].page
        severity = f"Severity: {rule.severity or 'it depends on what was seen'}. " if not rule.code.startswith("DM") else ""
        return f"{(ROOT / _RULE_PAGES / f'{rule.code}.md').read_text('utf-8')}\n{severity}More in [{more}](../../../docs/{more}).\n"
    parts = [f"# {rule.code}: {prose(rule.title)}"]
    for title, text in rule.sections:
        parts += [f"## {title}", *(_lines(text))]
    if rule.address:
        parts.append(f"[torch's page on {rule.code}]({rule.address})")
    if cases:
        parts += [
            "## Before and after",
            "Each of these is tested: it breaks the graph before and not after, and the results are equal.",
            *cases,
        ]
    return "\n\n".join(parts) + "\n"


def _lines(text: str) -> list[str]:
    """Paragraphs and lists of plain text, escaped."""
    return [
        "\n".join(f"- {prose(line[2:])}" if line.startswith("- ") else prose(line) for line in block.split("\n"))
        for block in text.split("\n\n")
    ]


def _cases() -> Mapping[str, list[str]]:
    """Before and after by code, one of each piece of advice, from the cases with which the advice is tested."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for case in cases():
        shown = _case(case) if len(case.ids) == 1 else None
        if shown is not None:
            found[case.ids[0]].setdefault(*shown)
    return {name: list(shown.values())[:_EXAMPLES] for name, shown in found.items()}


def _case(case: Case) -> tuple[str, str] | None:
    """The advice, with the function that breaks and the first cure: a changed function, or a statement that is executed before it."""
    cures = {name: text for name, text in case.functions.items() if "_" in name and not name.startswith("_")}
    cures |= {name: text for name, text in case.options.items() if text}
    if "before" not in case.functions or not cures or _TESTS_LIBRARY in case.functions["before"]:
        return None
    name, after = next(iter(cures.items()))
    return name, (
        f"Advice {code(name.replace('_', '-'))}. Before:\n\n```python\n{case.functions['before']}\n```\n\nAfter:\n\n```python\n{after}\n```"
    )


# -- verbs, JSON, Python


def _verbs() -> dict[str, str]:
    """A page for each verb: what `--help` says."""
    names = [str(command.name) for command in app.registered_commands]
    return {f"reference/{name}.md": f"# dynadiag {name}\n\n```text\n{_help(name)}\n```\n" for name in names}


def _help(name: str) -> str:
    said = CliRunner().invoke(app, [name, "--help"], terminal_width=100, env={"COLUMNS": "100"})
    return said.stdout.strip()


def _schemas() -> str:
    """All keys of the JSON files, from their schemas."""
    parts = [
        "# JSON",
        "`schema_version` is 1; keys are only ever added, and readers tolerate unknown values. What is null has its reason beside it.",
    ]
    for path in sorted((ROOT / "docs").glob("*.schema.json")):
        schema = json.loads(path.read_text("utf-8"))
        name = path.name.removesuffix(".schema.json")
        parts += [f"## {name}.json", f"[JSON Schema](../{path.name}). {prose(schema.get('description', ''))}", _keys(schema)]
        for part, inner in schema.get("$defs", {}).items():
            if inner.get("properties"):
                parts += [f"### {name}.json: {part}", prose(inner.get("description", "")), _keys(inner)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _keys(schema: Mapping[str, Any]) -> str:
    return table(
        ("key", "type", "content"),
        [
            (code(key), prose(_type(one)), prose(one.get("description", ""), limit=2000))
            for key, one in schema.get("properties", {}).items()
        ],
    )


def _type(one: Mapping[str, Any]) -> str:
    if "$ref" in one:
        return str(one["$ref"]).rpartition("/")[2]
    if "enum" in one:
        return ", ".join(map(str, one["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in one:
            return " or ".join(map(_type, one[key]))
    kind = one.get("type", "any")
    kinds = kind if isinstance(kind, list) else [kind]
    inner = one.get("items")
    return " or ".join(f"list of {_type(inner)}" if name == "array" and isinstance(inner, dict) else str(name) for name in kinds)


def _python() -> str:
    """The public names, and the plain data that they give."""
    parts = ["# Python"]
    for name in (one for one in dynadiag.__all__ if one != "__version__"):
        parts += _documented(f"dynadiag.{name}", getattr(dynadiag, name))
    parts.append("## What a report is made of")
    for kind in (Report, Finding, Advice, Cost, Summary):
        parts += _documented(kind.__name__, kind)
    return "\n\n".join(parts) + "\n"


def _documented(name: str, value: Any) -> list[str]:
    if is_dataclass(value):
        shown = "\n".join(f"{one.name}: {one.type}" for one in fields(value))
    else:
        shown = f"{name}{inspect.signature(value)}" if callable(value) and not inspect.isclass(value) else name
    docstring = inspect.getdoc(value) or ""
    return [f"### {name}", f"```python\n{shown}\n```", *(prose(" ".join(block.split()), limit=4000) for block in docstring.split("\n\n"))]
