"""The options of torch.compile that a recording or a stranger's script may set here: by name, and by the kind of their value.

What names a program, a path, a module, a function, flags of a compiler or a server never comes from there, and neither does what writes
files or starts processes: `inductor.cpp.cxx` alone would start a program of the log's choice. The names are those of torch 2.11 to 2.15
(torch/_dynamo/config.py, torch/_functorch/config.py, torch/_inductor/config.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

Plain = bool | int | float | str | None
HARNESS = ("compile_threads", "suppress_errors", "debug_dir", "trace", "cache", "log", "verbose", "repro_", "worker")
"""Parts of names of options that whoever replays a graph sets itself, or that only say where to put files and logs."""
_LARGEST = 1e12


def usable_options(options: Iterable[tuple[str, object]]) -> tuple[list[tuple[str, Plain]], list[str]]:
    """The options ("inductor.max_autotune", True) that may be set, and the names of those that are left out although they would matter."""
    kept: list[tuple[str, Plain]] = []
    left: list[str] = []
    for name, value in options:
        if is_usable(name, value):
            kept.append((name, value))  # type: ignore[arg-type]
        elif not any(part in name for part in HARNESS):
            left.append(name)
    return kept, left


def is_usable(name: str, value: object) -> bool:
    """Whether a recording may set the option to this value."""
    area, _, option = name.partition(".")
    if value is None:
        return any(option in table.get(area, ()) for table in (_FLAGS, _NUMBERS))
    if isinstance(value, bool):
        return option in _FLAGS.get(area, ())
    if isinstance(value, int | float):
        return option in _NUMBERS.get(area, ()) and math.isfinite(value) and abs(value) <= _LARGEST
    return isinstance(value, str) and name in _CHOICES and _CHOICES[name].fullmatch(value) is not None


def left_out(names: Iterable[str]) -> str:
    """One line about the options that are left out."""
    shown = ["".join(char if char.isprintable() else "?" for char in name[:80]) for name in dict.fromkeys(names)]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return f"options of the recording that are not set here, because they may name programs, files or code: {', '.join(shown[:5])}{more}"


def _words(*texts: str) -> frozenset[str]:
    return frozenset(name for text in texts for name in text.split())


_BACKENDS = re.compile(
    r"(?:ATEN|TRITON|CPP|CUTLASS|CUTEDSL|CK|CKTILE|NVGEMM)(?:,(?:ATEN|TRITON|CPP|CUTLASS|CUTEDSL|CK|CKTILE|NVGEMM)){0,7}"
)
_CHOICES: Mapping[str, re.Pattern[str]] = {
    "dynamo.automatic_dynamic_shapes_mark_as": re.compile("dynamic|unbacked|oblivious"),
    "dynamo.side_effect_replay_policy": re.compile("silent|info|warn|error"),
    "functorch.activation_memory_budget_solver": re.compile("dp|greedy|ilp"),
    "functorch.activation_memory_budget_runtime_estimator": re.compile("flops|profile|testing"),
    "inductor.max_autotune_gemm_backends": _BACKENDS,
    "inductor.max_autotune_conv_backends": _BACKENDS,
    "inductor.max_autotune_gemm_search_space": re.compile("DEFAULT|EXHAUSTIVE"),
    "inductor.max_autotune_flex_search_space": re.compile("DEFAULT|EXHAUSTIVE"),
    "inductor.layout_opt_default": re.compile("[01]"),
    "inductor.memory_pool": re.compile("none|intermediates|outputs|combined"),
    "inductor.cpu_backend": re.compile("cpp|triton"),
    "inductor.cuda_backend": re.compile("triton"),
    "inductor.mixed_mm_choice": re.compile("default|triton|aten|heuristic"),
    "inductor.cpp.enable_floating_point_contract_flag": re.compile("off|on|fast"),
    "inductor.cpp.descriptive_names": re.compile("torch|original_aten|inductor_node"),
    "inductor.triton.descriptive_names": re.compile("torch|original_aten|inductor_node"),
    "inductor.triton_kernel_default_layout_constraint": re.compile("needs_fixed_stride_order|flexible_layout"),
    # Faults that torch plants for tests of its own minifier.
    "inductor.cpp.inject_relu_bug_TESTING_ONLY": re.compile("compile_error|runtime_error|accuracy"),
    "inductor.cpp.inject_log1p_bug_TESTING_ONLY": re.compile("accuracy"),
    "inductor.triton.inject_relu_bug_TESTING_ONLY": re.compile("compile_error|runtime_error|accuracy"),
}

_FLAGS: Mapping[str, frozenset[str]] = {
    "dynamo": _words(
        "_unsafe_skip_fsdp_module_guards allow_empty_graphs allow_ignore_mark_dynamic allow_rnn allow_unspec_int_on_nn_module "
        "assume_dunder_attributes_remain_unchanged assume_static_by_default automatic_dynamic_exclusion_guard "
        "automatic_dynamic_shapes canonicalize_output_graph_node_order capture_autograd_function capture_dynamic_output_shape_ops "
        "capture_func_transforms capture_scalar_outputs capture_sparse_compute compiled_autograd "
        "cudagraph_backend_keep_input_mutation cudagraph_backend_support_input_mutation dead_code_elimination "
        "debug_force_graph_break_on_leaf_return debug_force_nested_calls disable do_not_emit_runtime_asserts dont_skip_tracing "
        "dynamic_shapes enable_cpp_framelocals_guard_eval enable_cpp_guard_manager enable_cpp_symbolic_shape_guards "
        "enable_dynamo_decompositions enable_faithful_generator_behavior enable_invoke_subgraph_regional_compile "
        "enable_trace_contextlib enable_trace_load_build_class enable_trace_unittest "
        "error_on_dynamo_callback_in_fullgraph_compiled_code error_on_nested_fx_trace error_on_nested_jit_trace "
        "error_on_recompile fail_on_recompile_limit_hit fake_tensor_cache_crosscheck_enabled fake_tensor_cache_enabled "
        "fake_tensor_disable_inference_mode force_compile_during_fx_trace force_nn_module_property_static_shapes "
        "force_parameter_static_shapes force_unspec_int_unbacked_size_like_on_torchrec_kjt graph_break_on_nn_param_ctor "
        "graph_deduplication_lint guard_nn_modules guard_nn_modules_using_dict_tags inline_inbuilt_nn_modules "
        "inline_invoke_subgraph inline_single_use_invoke_subgraph inline_torch_dispatch_torch_compile install_free_tensors "
        "install_free_tensors_for_export issue_3_13_0_warning leaf_function_check_escaped_gradients "
        "leaf_function_validate_outputs nested_graph_breaks only_allow_pt2_compliant_ops optimize_ddp optimize_ddp_lazy_compile "
        "prefer_deferred_runtime_asserts_over_guards prepare_freezing raise_on_ctx_manager_usage raise_on_unsafe_aot_autograd "
        "replay_side_effects report_guard_failures rewrite_assert_with_torch_assert run_gc_after_compile same_two_models_use_fp64 "
        "skip_code_recursive_on_recompile_limit_hit skip_fsdp_guards skip_fsdp_hooks "
        "skip_fwd_side_effects_in_bwd_under_checkpoint skip_guards_on_constant_func_defaults skip_nnmodule_hook_guards "
        "skip_no_tensor_aliasing_guards_on_parameters skip_tensor_guards_with_matching_dict_tags skip_torchrec specialize_float "
        "specialize_int trace_autograd_ops trace_numpy track_nodes_for_deduplication use_graph_deduplication "
        "use_lamba_guard_for_object_aliasing use_lazy_graph_module use_numpy_random_stream use_recursive_dict_tags_for_guards "
        "verify_correctness wrap_top_frame"
    ),
    "functorch": _words(
        "_sync_cache_decision_cross_ranks _sync_decision_cross_ranks _test_disable_functionalization "
        "activation_memory_budget_require_full_coverage activation_offload_separate_stream activation_offload_sink_wait "
        "activation_reload_prefetch aggressive_recomputation autograd_cache_allow_custom_autograd_functions "
        "autograd_cache_normalize_inputs ban_recompute_long_fusible_chains ban_recompute_materialized_backward "
        "ban_recompute_not_in_allowlist ban_recompute_reductions ban_recompute_used_far_apart bundled_autograd_cache "
        "bypass_autograd_cache_key check_custom_op_aliasing cse debug_assert decompose_custom_triton_ops "
        "disable_guess_zero_tangent_for_mutated_input_subclass donated_buffer enable_activation_offloading enable_autograd_cache "
        "enable_complex_wrapper error_on_custom_op_aliasing fake_tensor_allow_meta fake_tensor_allow_unsafe_data_ptr_access "
        "fake_tensor_crossref fake_tensor_propagate_real_tensors force_autograd_cache force_non_lazy_backward_lowering "
        "functionalize_rng_ops graphsafe_rng_functionalization guess_tangent_strides_as_outputs is_non_builtin_to_include "
        "recompute_views remat_using_tags_for_fwd_loss_bwd_graph selective_decompose static_weight_shapes strict_autograd_cache "
        "unlift_effect_tokens unsafe_allow_optimization_of_collectives unsafe_treat_script_objects_as_zero_size "
        "view_replay_for_aliased_outputs"
    ),
    "inductor": _words(
        "_collective.auto_select _fuse_ddp_communication _micro_pipeline_tp _use_fp64_for_unbacked_floats aggressive_fusion "
        "align_random_eager alignment_asserts alignment_asserts_inputs allow_buffer_reuse always_keep_tensor_constants "
        "annotate_training apply_gumbel_max_trick assert_indirect_indexing assume_32bit_indexing assume_aligned_inputs "
        "assume_unaligned_fallback_output aten_distributed_optimizations.allow_comms_decompositions "
        "aten_distributed_optimizations.bucket_exposed_first aten_distributed_optimizations.bucket_only_internode_comms "
        "aten_distributed_optimizations.collective_bucketing aten_distributed_optimizations.enable_fusion_regions "
        "aten_distributed_optimizations.enable_low_contention_collectives "
        "aten_distributed_optimizations.enable_overlap_scheduling aten_distributed_optimizations.enable_simple_overlap "
        "aten_distributed_optimizations.insert_overlap_deps aten_distributed_optimizations.low_contention_all_gather_ce_multicast "
        "aten_distributed_optimizations.low_contention_skip_overlap_check "
        "aten_distributed_optimizations.overlap_scheduling_autofix_cycles "
        "aten_distributed_optimizations.pre_bucketing_fsdp_collectives "
        "aten_distributed_optimizations.prioritize_bucketing_during_scheduling aten_distributed_optimizations.spmd_check "
        "auto_chunker.enable autotune_cudagraph_benchmarking autotune_fallback_to_aten autotune_local_cache autotune_multi_device "
        "b2b_gemm_pass batch_fusion batch_invariant benchmark_combo_kernel benchmark_epilogue_fusion benchmark_fusion "
        "benchmark_kernel benchmark_template_fusion bmm_shared_a bundle_triton_into_fx_graph_cache bw_outputs_user_visible "
        "cache_sdpa_constraint can_inplace_pad_graph_input combo_kernel_autotune_grouping combo_kernel_compile_time_autotune "
        "combo_kernel_foreach_dynamic_shapes combo_kernel_per_subkernel_blocks combo_kernels combo_kernels_pointwise_only "
        "comprehensive_padding compute_all_bounds constant_and_index_propagation conv_1x1_as_mm "
        "coordinate_descent_check_all_directions coordinate_descent_tuning cpp.dynamic_threads cpp.enable_concat_linear "
        "cpp.enable_grouped_gemm_template cpp.enable_kernel_context_guard cpp.enable_loop_tail_vec cpp.enable_tiling_heuristics "
        "cpp.enable_unsafe_math_opt_flag cpp.fallback_scatter_reduce_sum cpp.force_inline_kernel cpp.no_redundant_loops "
        "cpp.use_constexpr_for_int_array cpp.use_decompose_tanh cpp.use_small_dequant_buffer cpp.vec_isa_ok cpp.weight_prepack "
        "cpp_cache_precompile_headers cpp_wrapper cpp_wrapper_build_separate cutedsl_enable_autotuning dce decompose_mem_bound_mm "
        "decompose_shard_dim_alltoall dedup_reduce_scatters delay_realize_cheap_outputs deterministic disable_cpp_codegen "
        "disable_padding_cpu distributed_max_autotune_gemm do_not_emit_runtime_assertions dynamic_scale_rblock "
        "eager_numerics.disable_ftz eager_numerics.division_rounding eager_numerics.use_pytorch_libdevice "
        "efficient_conv_bn_eval_fx_passes emulate_precision_casts enable_auto_functionalized_v2 enable_autograd_for_aot "
        "epilogue_fusion epilogue_fusion_first epilogue_fusion_user_defined_triton_kernel epilogue_fusion_with_atomic_add "
        "expand_dimension_for_pointwise_nodes fallback_by_default fallback_embedding_bag_byte_unpack fallback_random "
        "flydsl_enable_autotuning force_fuse_int_mm_with_mul force_layout_optimization force_pointwise_cat force_same_precision "
        "force_shape_pad freezing freezing_discard_parameters fx_graph_cache fx_wrapper graph_partition group_fusion "
        "implicit_fallbacks incremental_autotune inplace_buffers inplace_padding joint_graph_constant_folding "
        "keep_addmm_fused_for_half_dtypes keep_output_stride layout_optimization loop_index_inversion_in_fusion "
        "loop_ordering_after_fusion loop_reindexing_after_fusion max_autotune max_autotune_allow_flexible_layouts "
        "max_autotune_gemm max_autotune_pointwise max_autotune_prune_choices_based_on_shared_mem "
        "max_autotune_report_choices_stats memory_planning nan_asserts nvgemm_supplement_configs nvgemm_swap_ab online_softmax "
        "optimize_scatter_upon_const_tensor pad_channels_last pad_dynamic_shapes pad_outputs partitioned_scatter_enabled "
        "partitioned_scatter_force pattern_matcher permute_fusion pick_loop_orders pipeline_max_autotune_gemm prologue_fusion "
        "reorder_for_compute_comm_overlap reorder_for_locality reorder_for_locality_in_training reorder_for_peak_memory "
        "runtime_estimations_mms_benchmark runtime_triton_nan_asserts scalar_asserts search_autotune_cache selective_decompose "
        "shape_padding size_asserts split_cat_fx_passes split_reductions static_launch_user_defined_triton_kernels "
        "static_weight_shapes strict_output_strides strict_signed_zero strict_static_cuda_launcher "
        "triton.autotune_at_compile_time triton.autotune_cublasLt triton.autotune_pointwise triton.autotune_with_sample_inputs "
        "triton.coalesce_tiling_analysis triton.codegen_upcast_to_fp32 triton.cooperative_reductions triton.cudagraph_or_error "
        "triton.cudagraph_skip_dynamic_graphs triton.cudagraph_support_input_mutation triton.cudagraph_trees "
        "triton.cudagraph_trees_generation_cloning triton.cudagraphs triton.decompose_sort_ops triton.dense_indexing "
        "triton.divisible_by_16 triton.dynamic_disable_pipelining triton.emit_pointer_range_32 triton.enable_flex_tdm "
        "triton.enable_host_side_tma triton.enable_pdl triton.enable_persistent_tma_matmul triton.enable_template_autows "
        "triton.enable_template_tma_store triton.enable_tlx_templates triton.enable_tma_load_for_template_epilogue "
        "triton.force_cooperative_reductions triton.force_cudagraph_sync triton.force_cudagraphs_warmup "
        "triton.mix_order_reduction triton.mix_order_reduction_allow_multi_stages triton.mix_order_reduction_autotune_split_size "
        "triton.mix_order_reduction_non_strict_mode triton.native_matmul triton.nested_reduction triton.persistent_reductions "
        "triton.prefer_nd_tiling triton.reorder_for_reducing_graph_partitions triton.scalar_accumulators "
        "triton.skip_cudagraph_warmup triton.skip_l1_cache triton.tile_reductions triton.tiling_prevents_pointwise_fusion "
        "triton.tiling_prevents_reduction_fusion triton.transpose_discontiguous_tensor_descriptor triton.unique_kernel_names "
        "triton.unique_user_kernel_names triton.use_block_ptr triton.use_tensor_descriptor triton_disable_device_detection "
        "unsafe_ignore_unsupported_triton_autotune_args unsafe_skip_cache_dynamic_shape_guards unsafe_skip_scalar_range_asserts "
        "use_dce use_experimental_benchmarker use_fast_math use_fast_triton_launcher use_joint_graph_passes "
        "use_launch_metadata_schema use_mixed_mm use_post_grad_passes use_pre_grad_passes use_rand4x use_static_cuda_launcher "
        "var_std_reduction_dedup warn_mix_layout wrap_inductor_compiled_regions"
    ),
}
_NUMBERS: Mapping[str, frozenset[str]] = {
    "dynamo": _words(
        "accumulated_cache_size_limit accumulated_recompile_limit cache_size_limit computed_lazy_constant_max_nodes "
        "gc_gen2_threshold_during_compile minimum_call_count recompile_limit"
    ),
    "functorch": _words("activation_memory_budget activation_offload_cpu_gpu_bw max_dist_from_bw"),
    "inductor": _words(
        "_collective.one_shot_all_reduce_threshold_bytes _fuse_ddp_bucket_size _realize_acc_reads_threshold_default "
        "_realize_opcount_threshold_default aten_distributed_optimizations.low_contention_min_bytes_per_rank "
        "aten_distributed_optimizations.pre_bucketing_fsdp_collectives_max_bucket_cap_mb "
        "aten_distributed_optimizations.pre_bucketing_fsdp_collectives_min_bucket_cap_mb "
        "aten_distributed_optimizations.pre_bucketing_fsdp_collectives_saturation_calibration_multiplier "
        "auto_chunker.amplify_ratio_threshold auto_chunker.num_chunk auto_chunker.output_size_threshold "
        "autotune_cudagraph_benchmarking_iters autotune_num_choices_displayed collective_benchmark_nruns "
        "combo_kernel_allow_mixed_sizes combo_kernel_max_distance combo_kernel_max_num_args combo_kernel_max_num_nodes "
        "combo_kernel_peak_memory_increase_gb combo_kernel_peak_memory_pct_threshold combo_kernels_autotune "
        "coordinate_descent_search_radius cpp.gemm_max_k_slices cpp.max_horizontal_fusion_size cpp.min_chunk_size cpp.simdlen "
        "cpp.threads cpp.use_two_step_variance_threshold cpu_gpu_bw inductor_default_autotune_rep "
        "inductor_default_autotune_warmup inter_node_bw intra_node_bw kernel_name_max_ops max_complex_pointwise_cat_inputs "
        "max_epilogue_benchmarked_choices max_fusion_buffer_group_pairwise_attempts max_fusion_size max_fusion_unique_io_buffers "
        "max_pointwise_cat_inputs max_template_fusion_benchmarked_choices min_num_split min_overlap_ratio "
        "nvgemm_max_profiling_configs padding_alignment_bytes padding_stride_threshold partitioned_scatter_max_partitions "
        "partitioned_scatter_memory_budget partitioned_scatter_min_contention_ratio partitioned_scatter_min_index_size "
        "partitioned_scatter_min_partitions partitioned_scatter_non_model_floor_bytes realize_acc_reads_size_threshold "
        "realize_acc_reads_threshold realize_cpu_acc_reads_threshold realize_cpu_opcount_threshold realize_opcount_threshold "
        "realize_opusers_threshold realize_reads_threshold reorder_prefetch_limit score_fusion_memory_threshold "
        "size_threshold_for_succ_based_strategy small_memory_access_threshold triton.cudagraph_dynamic_shape_warn_limit "
        "triton.cudagraph_min_partition_size triton.cudagraph_partition_memory_budget triton.decompose_k_threshold "
        "triton.max_tiles triton.min_split_scan_rblock triton.mix_order_reduction_initial_xblock "
        "triton.mix_order_reduction_max_reads triton.mix_order_reduction_split_size triton.multi_kernel "
        "triton.num_decompose_k_splits triton.spill_threshold triton.use_two_step_variance_min_numel "
        "triton.use_two_step_variance_threshold unbacked_symint_fallback unroll_reductions_threshold"
    ),
}
