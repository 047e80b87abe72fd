# Sourced by every finding. `install PACKAGE==VERSION...` makes an environment with these packages, `run_program` runs the Python program on
# its standard input there. Everything lies in a temporary folder that is deleted at the end. FINDINGS_ENVIRONMENTS=FOLDER keeps the
# environments there and reuses them, so that several findings on the same packages install them once. Where nothing can be installed,
# FINDINGS_PYTHON=PROGRAM is an interpreter that has the packages in these versions. `needs_gpu` ends a finding where there is no GPU.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A setting of the caller must not decide the outcome.
for name in $(compgen -e | grep -E '^(TORCH|PYTORCH|TRITON|PYTHONPATH$|PYTHONHASHSEED$|CI$|OMP_NUM_THREADS$)' || true); do
    unset "$name"
done
export TORCHINDUCTOR_CACHE_DIR=$work/inductor

needs_gpu() {
    if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
        echo "no GPU"
        exit 0
    fi
}

install() {
    if [ -n "${FINDINGS_PYTHON:-}" ]; then
        python=$FINDINGS_PYTHON
        "$python" -c 'import sys; from importlib.metadata import version
for pin in sys.argv[1:]:
    name, _, wanted = pin.partition("==")
    assert version(name).partition("+")[0] == wanted, f"{name} is {version(name)}, not {wanted}"' "$@"
        return
    fi
    local environment
    environment=${FINDINGS_ENVIRONMENTS:-$work}/$(printf '%s\n' "$@" | sort | sha256sum | cut -c1-16)
    python=$environment/bin/python
    if [ -e "$environment/installed" ]; then
        return
    fi
    if command -v uv >/dev/null; then
        uv venv --quiet --clear --python "${PYTHON:-3.11}" "$environment"
        uv pip install --quiet --python "$python" "$@"
    else
        "${PYTHON:-python3.11}" -m venv --clear "$environment"
        "$python" -m pip install --quiet --disable-pip-version-check "$@"
    fi
    touch "$environment/installed"
}

run_program() {
    cat >"$work/program.py"
    (cd "$work" && "$python" -W ignore program.py)
}
