#!/usr/bin/env bash
# tlparse 0.4.3, torch 2.15.0.
# Guess: tlparse takes the folder that TORCH_TRACE named, and reads every log in it, one for each process.
# Seen:  every way to name the folder fails: alone ("is not a file"), with --latest, which finds the newest log and then says that this file
#        "is not a directory", and with --all-ranks-html ("No rank log files", without torch.distributed). Two files are a usage error. One
#        log file works. The refused call has already made the output folder, so the corrected call fails too until --overwrite.
# Met by: whoever follows "TORCH_TRACE=dir, then tlparse dir"; a program of several processes takes one call for each.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 tlparse==0.4.3
mkdir "$work/trace"
for size in 3 5; do
    TORCH_TRACE=$work/trace run_program <<PROGRAM
import torch

torch.compile(lambda x: x.sin(), backend="eager")(torch.ones($size))
PROGRAM
done
cd "$work"
logs=(trace/*.log)
[ "${#logs[@]}" = 2 ]
tlparse=$(dirname "$python")/tlparse
status() {
    local result=0
    "$tlparse" "$@" --no-browser >output.txt 2>&1 || result=$?
    echo "tlparse $*: status $result: $(head -1 output.txt)" >&2
    echo "$result"
}
[ "$(status trace -o report)" = 1 ]
grep -q "is not a file" output.txt
[ -d report ]
[ "$(status "${logs[0]}" -o report)" = 1 ]
grep -q "already exists" output.txt
[ "$(status "${logs[0]}" -o report --overwrite)" = 0 ]
[ "$(status "${logs[@]}" -o two)" = 2 ]
[ "$(status trace --latest -o newest)" = 1 ]
grep -q "is not a directory (required with --latest)" output.txt
[ "$(status trace --all-ranks-html -o ranks)" = 1 ]
grep -q "No rank log files" output.txt
