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
    "$uv" pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" ${LOCK_ARGS:-} "$@" -o "$out" >/dev/null
    if grep -n "://" "$out"; then
        echo "lock: $out names an address (above)" >&2
        exit 1
    fi
}

ours=(--python-version 3.11 --extra models --extra mcp --group dev pyproject.toml)
compile requirements/newest.txt "${ours[@]}" --extra sweep --extra ray
compile requirements/oldest.txt "${ours[@]}" requirements/oldest.in
# Interpreters of scripts, without dynadiag: an older torch, and the oldest Python that it is used on.
compile requirements/torch-2.6.txt --python-version 3.9 requirements/torch-2.6.in
compile requirements/torch-2.9.txt --python-version 3.10 requirements/torch-2.9.in
