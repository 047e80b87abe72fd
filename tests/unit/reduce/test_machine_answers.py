"""What is taken from the cache of the user's own processes: the probes of instruction sets, and nothing else."""

from __future__ import annotations

from dynadiag.reduce.session import copy_compiler_probes, users_cache


def probe(folder, stem, endings=(".cpp", ".so", ".so.load_ok")):
    folder.mkdir(parents=True, exist_ok=True)
    for ending in endings:
        (folder / f"{stem}{ending}").write_text(stem)


def test_probes_are_copied_and_graphs_are_not(tmp_path):
    cache, to = tmp_path / "cache", tmp_path / "to"
    probe(cache / "ab", "cab")
    probe(cache / "cd", "ccd", (".cpp", ".so"))
    probe(cache / "ef", "cef", (".so", ".so.load_ok"))
    (cache / "fxgraph").mkdir()
    (cache / "fxgraph" / "graph").write_text("")
    (cache / "ab" / "cother.py").write_text("")
    assert copy_compiler_probes(cache, to) == 1
    assert sorted(path.name for path in to.rglob("*")) == ["ab", "cab.cpp", "cab.so", "cab.so.load_ok"]
    assert copy_compiler_probes(cache, to) == 1 and copy_compiler_probes(to, to) == 0


def test_links_and_missing_folders_are_left_alone(tmp_path):
    probe(tmp_path / "cache" / "ab", "cab", (".cpp", ".so.load_ok"))
    (tmp_path / "elsewhere.so").write_text("")
    (tmp_path / "cache" / "ab" / "cab.so").symlink_to(tmp_path / "elsewhere.so")
    assert copy_compiler_probes(tmp_path / "cache", tmp_path / "to") == 0
    assert copy_compiler_probes(tmp_path / "none", tmp_path / "to") == copy_compiler_probes(None, tmp_path / "to") == 0


def test_a_folder_that_cannot_be_written_costs_only_the_probes(tmp_path):
    probe(tmp_path / "cache" / "ab", "cab")
    (tmp_path / "to").write_text("a file")
    assert copy_compiler_probes(tmp_path / "cache", tmp_path / "to") == 0


def test_the_cache_is_the_one_that_torch_takes(tmp_path):
    assert users_cache({"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}) == tmp_path
    assert users_cache({}).name.startswith("torchinductor_")
