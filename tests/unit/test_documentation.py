"""What the documents say exists: links, make targets, options of the command line, public Python names."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer
import yaml
from typer.main import get_command

import dynadiag
from dynadiag.gate.result import GateOptions, configured
from dynadiag.rules.rule import page_address
from dynadiag.rules.torch_breaks import torch_ids
from dynadiag_cli.main import app
from tests.documented import blocks as shown
from tests.documented import commands

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/mutations").glob("*.md")),
    *sorted((ROOT / "dynadiag/rules/pages").glob("*.md")),
]
PROGRAMS = ("dynadiag", "make", "bash", "pip", "python", "git", ".venv/bin/python", ".venv-oldest/bin/python")
by_name = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@by_name
def test_links_inside_the_project_lead_somewhere(document):
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    inside = [link.split("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert [link for link in inside if not (document.parent / link).exists()] == []


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@by_name
def test_anchors_in_links_exist(document):
    links = re.findall(r"\]\(([^)\s:]*)#([^)\s]+)\)", document.read_text())
    targets = [((document.parent / page) if page else document, anchor) for page, anchor in links]
    assert [(page.name, anchor) for page, anchor in targets if anchor not in anchors(page)] == []


def test_the_index_lists_every_page():
    index = (ROOT / "docs/README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert [page for page in sorted(pages) if f"({page})" not in index] == []


@by_name
def test_options_in_examples_exist(document):
    """Each command is taken apart as the program does it: its options exist, and their values and arguments are accepted."""
    verbs = get_command(app).commands
    written = "".join(re.split(r"^```.*?^```", document.read_text(), flags=re.MULTILINE | re.DOTALL))
    found = [words for page, words in commands() if ROOT / page == document]
    if document.name != "CHANGELOG.md":  # in prose a command may be without its target
        found += [["dynadiag", *words.split()] for words in re.findall(r"`dynadiag ([a-z]+ [^`\n]*)`", written)]
    refused = []
    for words in found:
        if words[0] not in PROGRAMS:
            refused.append((words, "no program of ours or of the set-up"))
        elif words[0] == "dynadiag" and words[1] not in ("--install-completion", "--show-completion"):
            try:
                verbs[words[1]].make_context(words[1], words[2:])
            except typer.Exit:  # --help
                continue
            except Exception as error:
                if "Missing argument" not in str(getattr(error, "message", "")) and "MissingParameter" not in repr(error):
                    refused.append((words, repr(error)))
    assert refused == []


@by_name
def test_make_targets_exist(document):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|\$ |; )(?:LOCK_ARGS=\S+ )?make ([a-z-]+)", document.read_text()))
    assert named - targets == set()


def test_the_picture_shows_a_real_run_and_no_path_of_a_machine():
    picture = (ROOT / "docs/images/demo.svg").read_text().replace("&#160;", " ")
    assert "dynadiag explain samples/bert_train_step.py" in picture
    assert "3 graph breaks (4 events)" in picture
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|usr|opt|work)/\S*", picture) == []


def test_public_names_in_the_readme_exist():
    tree = ast.parse("\n".join(shown("README.md", "python")))
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dynadiag"}
    assert named == set(dynadiag.__all__) - {"__version__"}


def test_addresses_of_other_sites_are_whole():
    """Whether they can be read is asked online by `make links`."""
    spec = importlib.util.spec_from_file_location("links", ROOT / "docs/site/links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    links = module.outer_links()
    assert len(links) >= 5
    for address, pages in links.items():
        parts = urlsplit(address)
        assert parts.scheme == "https" and re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc) and not ADDRESSES.search(address), pages


def test_the_pages_of_torchs_ids_are_those_that_torch_names():
    """The address in torch's own messages, from its source: nothing is imported or asked."""
    torch = importlib.util.find_spec("torch")
    source = Path(torch.origin).with_name("_dynamo") if torch else pytest.skip("without torch")
    (base,) = re.findall(r'"(https://\S+/gb/)"', (source / "exc.py").read_text())
    known = json.loads((source / "graph_break_registry.json").read_text())
    for name in set(torch_ids()) & set(known):
        assert page_address(name) == f"{base}gb{name.removeprefix('GB')}.html"
    assert len(set(torch_ids()) & set(known)) > 500


def test_settings_and_steps_in_examples_are_read(tmp_path):
    (table,) = shown("docs/check.md", "toml")
    (tmp_path / "pyproject.toml").write_text(table)
    assert configured(tmp_path) == GateOptions(
        max_breaks=0, max_recompiles=2, no_mutation_copy=True, fail_on="error", baseline=tmp_path / "ci/dynadiag-baseline.json"
    )
    ((step, _), (hook,)) = map(yaml.safe_load, shown("docs/check.md", "yaml"))
    assert step["with"].keys() <= yaml.safe_load((ROOT / "action/action.yml").read_text())["inputs"].keys()
    assert [one["id"] for one in hook["hooks"]] == [one["id"] for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())]
    (server,) = json.loads(shown("docs/mcp.md", "json")[0])["mcpServers"].values()
    get_command(app).commands[server["args"][0]].make_context("mcp", server["args"][1:])


def test_every_example_in_python_is_python():
    for page in DOCUMENTS:
        for block in shown(str(page.relative_to(ROOT)), "python"):
            ast.parse(re.sub(r"^%.*$", "", block, flags=re.MULTILINE))


def test_the_changelog_knows_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[(Unreleased|{re.escape(dynadiag.__version__)})\]", text, re.MULTILINE)


# The hosts of package registries, in pieces so that this file does not name them either.
ADDRESSES = re.compile("|".join([r"py" r"pi\.org", r"files\.python" r"hosted", r"download\.py" r"torch\.org"]))


def test_nothing_is_tied_to_a_package_registry():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert [str(path.relative_to(ROOT)) for path in files if path.is_file() and ADDRESSES.search(path.read_text(errors="replace"))] == []
