#!/usr/bin/env bash
# Makes requirements/newest.txt and oldest.txt again from pyproject.toml: pinned, hashed, tied to no index address.
# LOCK_ARGS=--upgrade takes the newest versions; without it pins that still fit are kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
uv=uv
"$uv" --version >/dev/null 2>&1 || uv=.uv/bin/uv

compile() {
    local out=$1
    shift
    # shellcheck disable=SC2086  # LOCK_ARGS is a list
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
        --extra models --group dev --custom-compile-command "make lock" ${LOCK_ARGS:-} "$@" -o "$out" >/dev/null
    if grep -n "://" "$out"; then
        echo "lock: $out names an address (above)" >&2
        exit 1
    fi
}

compile requirements/newest.txt pyproject.toml
compile requirements/oldest.txt pyproject.toml requirements/oldest.in
