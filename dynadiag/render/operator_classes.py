"""What kind of work an operator does, by its name: the classes that graph pictures colour."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from dynadiag.facts.graph_writes import names_write

MEANINGS: Mapping[str, str] = {
    "input": "input",
    "matrix": "matrix product, convolution",
    "attention": "attention",
    "normalisation": "normalisation",
    "pointwise": "pointwise and other",
    "reduction": "reduction",
    "view": "view",
    "write": "in-place write",
    "collective": "collective",
    "dependent": "data-dependent",
}
"""The classes in the order of the legend; each is also a class of the palette (`dd-matrix`)."""

# A row of several operators has the first of these that one of them has.
WEIGHT = ("write", "dependent", "collective", "attention", "matrix", "normalisation", "reduction", "pointwise", "view", "input")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VIEWS = _names(
    "view view_as reshape reshape_as select narrow t transpose permute squeeze unsqueeze expand expand_as detach alias flatten unflatten "
    "diagonal unfold swapaxes swapdims movedim moveaxis ravel as_strided getitem __getitem__ getattr chunk split split_with_sizes "
    "tensor_split unbind slice view_as_real view_as_complex real imag contiguous size stride dim numel T mT H mH data lift_fresh "
    "_unsafe_view _reshape_alias unsafe_chunk unsafe_split hsplit vsplit dsplit pixel_shuffle"
)
_MATRIX = _names(
    "mm bmm addmm baddbmm addbmm matmul linear bilinear einsum dot vdot mv addmv outer ger addr inner tensordot kron conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d convolution convolution_backward conv_depthwise2d _convolution "
    "multi_dot chain_matmul _scaled_mm _grouped_mm _int_mm _weight_int8pack_mm lstm gru rnn_tanh "
    "rnn_relu mkldnn_rnn_layer mkldnn_linear _addmm_activation scaled_mm linear_unary linear_binary"
)
_NORMALISATION = _names(
    "batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm normalize native_batch_norm native_layer_norm "
    "native_group_norm cudnn_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional native_layer_norm_backward "
    "native_batch_norm_backward native_group_norm_backward batch_norm_backward _batch_norm_with_update "
    "_batch_norm_with_update_functional _batch_norm_no_update _fused_rms_norm _fused_rms_norm_backward weight_norm "
    "_weight_norm_interface softmax log_softmax _safe_softmax _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data"
)
_REDUCTION = _names(
    "sum mean prod max min amax amin aminmax argmax argmin any all std var std_mean var_mean norm linalg_vector_norm logsumexp median "
    "nanmean nansum cross_entropy nll_loss nll_loss_forward nll_loss_backward nll_loss_nd mse_loss l1_loss smooth_l1_loss huber_loss "
    "kl_div binary_cross_entropy binary_cross_entropy_with_logits max_pool1d max_pool2d max_pool3d max_pool2d_with_indices "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d _adaptive_avg_pool2d "
    "count_nonzero cosine_similarity dist cdist trace"
)
_DEPENDENT = _names(
    "nonzero item _local_scalar_dense masked_select unique unique2 _unique2 unique_consecutive unique_dim tolist is_nonzero equal argwhere "
    "cond while_loop"
)
_COLLECTIVE = re.compile(r"\b(?:_?c10d(?:_functional)?|_dtensor|symm_mem)\b|\b(?:all_reduce|all_gather|reduce_scatter|all_to_all)")
_ATTENTION = re.compile(r"attention|flex_attn|sdpa")


def short_name(target: str) -> str:
    """`linear` for `torch._C._nn.linear`, `add` for `torch.ops.aten.add.Tensor` and `operator.add`; as the text of the log has it."""
    parts = target.split(".")
    if "ops" in parts[:-2] and len(parts) - parts.index("ops") > 3:
        return parts[-2]
    return parts[-1]


@lru_cache(maxsize=4096)
def operator_class(op: str, target: str) -> str:
    """The class of a node by its kind (`call_function`) and its target; "pointwise" stands for everything that is none of the others."""
    if op in ("placeholder", "get_attr"):
        return "input"
    if op == "call_module":
        return "pointwise"
    if names_write(target):
        return "write"
    name = short_name(target)
    for members, found in (
        (_DEPENDENT, "dependent"), (_VIEWS, "view"), (_MATRIX, "matrix"), (_NORMALISATION, "normalisation"), (_REDUCTION, "reduction"),
    ):  # fmt: skip
        if name in members:
            return found
    return "collective" if _COLLECTIVE.search(target) else "attention" if _ATTENTION.search(name) else "pointwise"
