#!/usr/bin/env bash
# Makes .venv-torch-2.6 and .venv-torch-2.9, the interpreters of scripts on older torch (pinned and hashed, without dynadiag), with the oldest
# Python at hand that this torch runs on, and prints their paths joined by colons. Needs .venv to be set up.
set -euo pipefail
shopt -s inherit_errexit # a step that fails inside $(…) ends all
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
uv=uv
"$uv" --version >/dev/null 2>&1 || uv=.uv/bin/uv

# The first of these versions that is installed and runs, on PATH or under pyenv, whose shims run only the versions that are switched on.
oldest_python() {
    local version candidate pyenv
    pyenv=${PYENV_ROOT:-$(pyenv root 2>/dev/null || echo "$HOME/.pyenv")}
    for version in "$@"; do
        for candidate in $(type -aP "python$version") "$pyenv"/versions/"$version".*/bin/python; do
            if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1 </dev/null; then
                echo "$candidate"
                return
            fi
        done
    done
    echo "older: none of Python $* is installed" >&2
    return 1
}

make_environment() {
    local torch=$1 environment=.venv-torch-$1 python
    shift
    if ! cmp -s "requirements/torch-$torch.txt" "$environment/requirements.txt"; then
        echo "older: installing requirements/torch-$torch.txt into $environment" >&2
        rm -rf "$environment"
        python=$(oldest_python "$@")
        "$uv" venv --quiet --python "$python" "$environment"
        "$uv" pip sync --quiet --python "$environment/bin/python" "requirements/torch-$torch.txt"
        cp "requirements/torch-$torch.txt" "$environment/requirements.txt"
    fi
    echo "$PWD/$environment/bin/python"
}

first=$(make_environment 2.6 3.9 3.10 3.11 3.12)
second=$(make_environment 2.9 3.10 3.11 3.12 3.13)
echo "$first:$second"
