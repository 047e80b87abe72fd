#!/usr/bin/env bash
# Makes the environment for benchmarks/fix_hugging_face.py: the newest torch and transformers 4.52.4. Usage: hugging_face_setup.sh [ENVIRONMENT]
# The registry in use is the one that uv is configured for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=${1:-.venv-hugging-face}
bash .ci/setup.sh "$environment" requirements/newest.txt
uv=$(command -v uv || echo .uv/bin/uv)
"$uv" pip install -q --python "$environment/bin/python" --constraint <(sed -nE 's/^((torch|triton)==[^ ;]*).*/\1/p' requirements/newest.txt) transformers==4.52.4
