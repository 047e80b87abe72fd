#!/usr/bin/env bash
# torch 2.11.0 and 2.15.0.
# Guess: the defaults of a function that compiled code calls are guarded on, so a new default is used from the next call on.
# Seen:  torch 2.15 does that. torch 2.11 keeps the value of the first call for positional defaults (f.__defaults__) without a word, and sees
#        a new keyword-only default (f.__kwdefaults__) at once.
# Met by: who sets defaults from a configuration after a warm-up, and who upgrades: results change, or one compilation more appears.
. "$(dirname "$0")/common.sh"
program='
import torch


def scale(x, factor=2.0):
    return x * factor


def scale_by_name(x, *, factor=2.0):
    return x * factor


x = torch.ones(1)
positional = torch.compile(lambda x: scale(x), backend="eager")
named = torch.compile(lambda x: scale_by_name(x), backend="eager")
positional(x), named(x)
scale.__defaults__ = (7.0,)
scale_by_name.__kwdefaults__ = {"factor": 7.0}
assert scale(x).item() == scale_by_name(x).item() == 7
print(torch.__version__.partition("+")[0], "positional", positional(x).item(), "keyword-only", named(x).item())
'
install torch==2.11.0
old=$(run_program <<<"$program")
install torch==2.15.0
new=$(run_program <<<"$program")
echo "$old, $new"
[ "$old" = "2.11.0 positional 2.0 keyword-only 7.0" ]
[ "$new" = "2.15.0 positional 7.0 keyword-only 7.0" ]
