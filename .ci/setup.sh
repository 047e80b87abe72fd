#!/usr/bin/env bash
# Makes an environment with exactly the pinned packages: .ci/setup.sh ENVIRONMENT REQUIREMENTS
# A second run with the same requirements only compares one hash. The registry in use is the one that uv is configured for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=${1:-.venv}
requirements=${2:-requirements/newest.txt}
stamp=$environment/.dynadiag-stamp
export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1

fail() {
    echo "setup: $*" >&2
    exit 1
}

# What a Python lacks for us, in one word each; fails when it does not run at all or is too old (a pyenv shim without its Python does not run).
lacks() {
    "$1" -c '
import importlib.util, pathlib, sys, sysconfig
if sys.version_info < (3, 11):
    sys.exit(1)
missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
if not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file():
    missing.append("Python.h")
print(" ".join(missing))' 2>/dev/null </dev/null
}

# The first Python on PATH that runs, is 3.11 or newer, and has venv and headers; what the best of the others lacks is said.
find_python() {
    local name candidate missing incomplete=""
    for name in ${PYTHON:-} python3.13 python3.12 python3.11 python3.14 python3 python; do
        while IFS= read -r candidate; do
            missing=$(lacks "$candidate") || continue
            if [ -z "$missing" ]; then
                echo "$candidate"
                return
            fi
            incomplete=${incomplete:-"$candidate lacks $missing"}
        done < <(type -aP "$name")
    done
    echo "${incomplete:-none on PATH}" >&2
    return 1
}

# Everything that CPU inductor and the environment need, in one line when something is missing.
check_tools() {
    local missing=() why compiler=${CXX:-g++}
    if ! why=$( { python=$(find_python) && printf '%s' "$python" >&3; } 2>&1 3>"$found"); then
        missing+=("Python 3.11 or newer with venv and headers ($why)")
    fi
    command -v "${compiler%% *}" >/dev/null || missing+=("a C++ compiler ($compiler; CXX names another)")
    command -v openssl >/dev/null || missing+=("the openssl program")
    [ ${#missing[@]} -eq 0 ] || fail "missing: $(printf '%s; ' "${missing[@]}" | sed 's/; $//')"
}

find_uv() {
    local candidate
    for candidate in uv .uv/bin/uv; do
        if "$candidate" --version >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: uv is missing, installing it into .uv" >&2
    rm -rf .uv
    { "$1" -m venv .uv && .uv/bin/pip install --quiet --disable-pip-version-check uv; } >&2 || return 1
    echo .uv/bin/uv
}

found=$(mktemp)
trap 'rm -f "$found"' EXIT
check_tools
python=$(cat "$found")
version=$("$python" -c 'import sys; print(sys.version.split()[0], sys.base_prefix)')
wanted=$(cat "$requirements" pyproject.toml .ci/setup.sh .ci/short_processes.py | "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
wanted="$wanted $version $PWD"

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$environment/bin/python" -c '' 2>/dev/null; then
    exit 0
fi

uv=$(find_uv "$python") || fail "uv could not be installed into .uv (see above)"
rm -f "$stamp"
if [ "$("$environment/bin/python" -c 'import sys; print(sys.version.split()[0], sys.base_prefix)' 2>/dev/null)" != "$version" ]; then
    rm -rf "$environment"
    "$uv" venv --quiet --python "$python" "$environment"
fi
echo "setup: installing $requirements into $environment" >&2
"$uv" pip sync --quiet --python "$environment/bin/python" "$requirements"
# setuptools comes with the pinned packages, so nothing unpinned is fetched to build us.
"$uv" pip install --quiet --python "$environment/bin/python" --no-deps --no-build-isolation -e .
# For the tests' many short processes (tests/conftest.py sets the variable).
packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cat .ci/short_processes.py >"$packages/dynadiag_tests.py"
echo 'import os; os.environ.get("DYNADIAG_TESTS_SHORT_PROCESSES") and __import__("dynadiag_tests")' >"$packages/dynadiag_tests.pth"
echo "$wanted" >"$stamp"
