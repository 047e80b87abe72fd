#!/usr/bin/env bash
# torch 2.15.0, onnx 1.23.2, onnxscript 0.7.2.
# Guess: torch.onnx.export exports for inference: a model in training mode loses its dropout, and a model of nine numbers is one file.
# Seen:  the mode of the model is kept: the file holds Dropout with training_mode=True and drops values wherever it runs. The weights are in a
#        second file, model.onnx.data, however small they are (external_data=True is the default); the .onnx alone does not load.
# Met by: export at the end of a training script without model.eval(), and uploading only the .onnx file.
. "$(dirname "$0")/common.sh"
install torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 numpy==2.4.6
run_program <<'PROGRAM'
import os
import pathlib
import warnings

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator

warnings.simplefilter("ignore")
model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Dropout(0.5))
torch.onnx.export(model, (torch.ones(1, 2),), "model.onnx", verbose=False)
files = sorted(path for path in os.listdir(".") if path.startswith("model"))
exported = onnx.load("model.onnx")
operators = [node.op_type for node in exported.graph.node]
evaluator = ReferenceEvaluator(exported)
(output,) = evaluator.run(None, {exported.graph.input[0].name: np.ones((1, 2), dtype=np.float32)})
print("files:", files, "operators:", operators, "zeros of 64:", int((output == 0).sum()))
assert files == ["model.onnx", "model.onnx.data"]
assert "Dropout" in operators and (output == 0).sum() > 10
pathlib.Path("model.onnx.data").unlink()
try:
    onnx.load("model.onnx")
    raise SystemExit("loaded without its data")
except Exception as error:
    print("without its data:", type(error).__name__)
model.eval()
torch.onnx.export(model, (torch.ones(1, 2),), "eval.onnx", verbose=False)
assert "Dropout" not in [node.op_type for node in onnx.load("eval.onnx").graph.node]
PROGRAM
