#!/usr/bin/env bash
# The check of action.yml: runs the program once, then writes the job's summary and SARIF from its recording.
set -uo pipefail

words() { # the lines of a text that are not empty, into the array `found`
    found=()
    local line
    while IFS= read -r line || [ -n "$line" ]; do
        line="${line#"${line%%[![:space:]]*}"}"
        line="${line%"${line##*[![:space:]]}"}"
        [ -n "$line" ] && found+=("$line")
    done <<<"$1"
}

words "${DYNADIAG_OPTIONS-}"
options=(${found[@]+"${found[@]}"})
words "$DYNADIAG_TARGET"
target=(${found[@]+"${found[@]}"})
run=$(mktemp -d "$RUNNER_TEMP/dynadiag-XXXXXX")/run

dynadiag check ${options[@]+"${options[@]}"} --format github --output - --out "$run" "${target[@]}"
status=$?
echo "exit-status=$status" >>"$GITHUB_OUTPUT"
if [ -f "$run/report.html" ]; then
    echo "report=$run/report.html" >>"$GITHUB_OUTPUT"
    dynadiag check --quiet ${options[@]+"${options[@]}"} --format md --output - "$run" >>"$GITHUB_STEP_SUMMARY"
    dynadiag check --quiet ${options[@]+"${options[@]}"} --format sarif --output "$run/check.sarif" "$run"
    [ -f "$run/check.sarif" ] && echo "sarif=$run/check.sarif" >>"$GITHUB_OUTPUT"
fi
exit "$status"
