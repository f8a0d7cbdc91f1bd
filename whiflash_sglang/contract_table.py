"""Every SGLang name that WHIFLASH relies on, with the parameters and members it uses."""

from __future__ import annotations

from typing import NamedTuple

SGLANG_VERSION = "0.5.23"


class Requirement(NamedTuple):
    """One object of SGLang: a function or class, parameters it must take, members it must have."""

    module: str
    name: str
    parameters: tuple[str, ...] = ()
    members: tuple[str, ...] = ()


def _needs(module: str, name: str, parameters: str = "", members: str = "") -> Requirement:
    return Requirement(f"sglang.{module}", name, tuple(parameters.split()), tuple(members.split()))


_PLUGIN = (
    _needs(
        "srt.speculative.spec_registry",
        "CustomSpecAlgo",
        "name factory supports_overlap validate_server_args",
        "is_eagle is_eagle3 supports_grammar_overlap handle_server_args "
        "resolve_max_speculative_num_draft_tokens create_worker",
    ),
    _needs(
        "srt.speculative.spec_info",
        "SpeculativeAlgorithm.register",
        "name supports_overlap validate_server_args spec_class",
    ),
    _needs(
        "srt.speculative.spec_info",
        "SpeculativeAlgorithm",
        members="DFLASH carries_draft_hidden_states create_future_map need_topk",
    ),
    _needs("srt.plugins", "load_plugins"),
    _needs("srt.plugins.hook_registry", "HookRegistry.register", "target hook hook_type"),
    _needs("srt.plugins.hook_registry", "HookType", members="AFTER AROUND REPLACE"),
    _needs("srt.arg_groups.overrides", "resolving_view"),
    _needs(
        "srt.managers.overlap_utils",
        "FutureMap",
        "device spec_algo req_to_token_pool needs_cpu_seq_lens needs_confidence_relay",
    ),
)

_HOOKED = (
    _needs("srt.server_args", "ServerArgs", members="add_cli_args from_cli_args"),
    _needs(
        "srt.model_executor.model_runner_components.spec_aux_hidden_state",
        "resolve_spec_aux_hidden_state_config",
        "server_args model_config spec_algorithm is_draft_worker",
    ),
    _needs(
        "srt.model_executor.model_runner_components.spec_aux_hidden_state",
        "SpecAuxHiddenStateConfig",
        members="eagle_aux_hidden_state_layer_ids eagle_draft_num_layers",
    ),
    _needs("srt.mem_cache.allocation_sizing", "get_req_to_token_extra_context_len"),
    _needs(
        "srt.configs.model_config",
        "ModelConfig._derive_context_length",
        "context_length",
    ),
    _needs(
        "srt.arg_groups.speculative_hook",
        "_resolve_speculative_algorithm_alias",
        "speculative_algorithm",
    ),
    _needs("srt.environ", "Envs", members="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
    _needs("srt.mem_cache.allocation_sizing", "get_alloc_reserve_per_decode"),
    _needs("srt.mem_cache.allocation_sizing", "get_alloc_page_size"),
    _needs(
        "srt.speculative.eagle_utils",
        "eagle_sample",
        "verify_input batch logits_output grammar_mask",
    ),
)

_WORKER = (
    _needs(
        "srt.speculative.base_spec_worker",
        "BaseSpecWorker",
        members="draft_worker target_worker alloc_memory_pool init_attention_backends "
        "init_cuda_graphs spec_v2_attn_backends last_shared_read_runner weight_update_runners "
        "_draft_model_runners",
    ),
    _needs(
        "srt.speculative.eagle_worker_v2",
        "EAGLEWorkerV2.forward_batch_generation",
        "batch on_publish grammar_barrier pp_proxy_tensors",
    ),
    _needs(
        "srt.speculative.eagle_worker_common",
        "run_eagle_verify",
        "batch target_worker req_to_token_pool token_to_kv_pool_allocator plan_stream "
        "plan_stream_ctx topk num_draft_tokens device metadata_ready_pre_pad finalize_tree_path "
        "grammar_barrier",
    ),
    _needs(
        "srt.speculative.eagle_worker_common",
        "build_eagle_verify_input",
        "batch draft_input parent_list top_scores_index draft_tokens draft_probs target_worker "
        "topk num_steps num_draft_tokens tree_mask_mode device",
    ),
    _needs(
        "srt.speculative.eagle_worker_common",
        "prepare_for_draft_extend",
        "draft_extend_input batch predict num_draft_tokens draft_model_runner cuda_graph_runner "
        "return_hidden_states_before_norm kv_loc_plan",
    ),
    _needs(
        "srt.speculative.eagle_info",
        "EagleDraftInput",
        "topk_p topk_index hidden_states bonus_tokens",
    ),
    _needs(
        "srt.speculative.eagle_info",
        "EagleDraftExtendInput",
        "hidden_states num_correct_drafts num_accept_tokens num_tokens_per_req "
        "num_tokens_for_logprob_per_req select_index",
    ),
    _needs(
        "srt.speculative.eagle_info",
        "EagleVerifyInput",
        "draft_token custom_mask retrieve_index retrieve_next_token retrieve_next_sibling "
        "spec_steps topk draft_token_num",
        "max_tree_depth tree_topk",
    ),
    _needs(
        "srt.managers.utils",
        "GenerationBatchResult",
        members="logits_output next_token_ids accept_lens accept_index new_seq_lens "
        "next_draft_input kv_loc_plan can_run_cuda_graph",
    ),
    _needs("srt.layers.logits_processor", "LogitsProcessorOutput", "customized_info"),
    _needs("srt.layers.logits_processor", "LogitsProcessor.forward", "input_ids hidden_states"),
    _needs(
        "srt.managers.tp_worker",
        "TpModelWorker.forward_batch_generation",
        "batch capture_hidden_mode return_kv_loc_plan",
    ),
    _needs("srt.speculative.spec_utils", "get_plan_stream", "device"),
    _needs("srt.runtime_context", "get_spec"),
    _needs("srt.runtime_context", "get_schedule"),
    _needs("srt.runtime_context", "get_parallel"),
)

_DRAFTERS = (
    _needs(
        "srt.speculative.eagle_worker_v2",
        "EagleDraftWorker",
        "server_args gpu_id nccl_port target_worker",
        "draft draft_runner parallel_layout topk speculative_num_steps "
        "speculative_num_draft_tokens cuda_graph_runner_for_draft_extend draft_attn_backend "
        "draft_extend_attn_backend alloc_memory_pool init_attention_backends init_cuda_graphs",
    ),
    _needs("srt.speculative.eagle_utils", "_eagle_prefill_tail_tokens", "batch next_token_ids"),
    _needs("srt.speculative.eagle_utils", "get_draft_recurrent_hidden_state_spec", "model_runner"),
    _needs("srt.speculative.eagle_utils", "default_tree_mask_mode"),
    _needs(
        "srt.speculative.draft_worker_common",
        "build_draft_tp_worker",
        "server_args gpu_id nccl_port target_model_config algo_label random_seed",
    ),
    _needs(
        "srt.speculative.draft_worker_common",
        "make_draft_block_spec_info",
        "draft_token_num device",
    ),
    _needs("srt.speculative.spec_utils", "draft_pp_context"),
    _needs("srt.speculative.spec_utils", "draft_tp_context", "layout"),
    _needs("srt.speculative.spec_utils", "renorm_draft_probs"),
    _needs("srt.utils.common", "fast_topk", "values topk dim"),
    _needs(
        "srt.models.dflash",
        "DFlashDraftModel",
        members="layers project_target_hidden prepare_context_hidden_for_kv",
    ),
    _needs(
        "srt.models.dflash",
        "DFlashAttention",
        members="kv_proj_only k_norm rotary_emb num_kv_heads head_dim attn use_table_qk_norm_rope",
    ),
    _needs("srt.models.dflash", "candidate_topk", "hidden lm_head k with_partition"),
    _needs("srt.models.dflash", "_radix_topk", "scores k"),
    _needs("srt.models.llama_eagle3", "LlamaForCausalLMEagle3", members="hot_token_id model"),
    _needs(
        "srt.models.llama_eagle3",
        "LlamaModel",
        members="layers embed_tokens fc input_norm fc_norm num_aux_hidden_states",
    ),
    _needs("srt.models.llama_eagle3", "LlamaDecoderLayer", members="hidden_norm"),
    _needs("srt.models.llama", "LlamaDecoderLayer", members="input_layernorm self_attn"),
    _needs(
        "srt.models.llama",
        "LlamaAttention",
        members="qkv_proj q_size kv_size rotary_emb attn num_kv_heads head_dim",
    ),
    _needs("srt.speculative.dflash_utils", "can_dflash_slice_qkv_weight", "qkv_proj"),
    _needs("srt.mem_cache.memory_pool", "KVWriteLoc", "loc physical"),
    _needs(
        "srt.managers.scheduler_components.batch_result_processor",
        "SchedulerBatchResultProcessor",
        members="_prepare_kv_cache_release",
    ),
    _needs(
        "srt.mem_cache.kv_index_translator",
        "KVIndexTranslator.plan",
        "req_pool_indices seq_lens seq_lens_cpu write_virtual read_extent",
    ),
    _needs("srt.mem_cache.kv_loc_plan", "KVLocPlan", members="bind write_ids write_virtual"),
    _needs(
        "kernels.ops.speculative.cache_locs",
        "assign_extend_cache_locs_uniform_func",
        "req_pool_indices req_to_token start_offset batch_size draft_token_num device",
    ),
    _needs(
        "srt.model_executor.forward_batch_info",
        "ForwardBatch",
        members="forward_mode batch_size input_ids req_pool_indices seq_lens out_cache_loc "
        "seq_lens_sum seq_lens_cpu positions spec_algorithm spec_info capture_hidden_mode "
        "global_num_token_non_padded_cpu",
    ),
    _needs("srt.utils.hf_transformers.config", "get_config", "model trust_remote_code revision"),
)

_CATCH_UP = (
    _needs("srt.managers.schedule_batch", "Req.owned_kv_len"),
    _needs("srt.managers.schedule_batch", "ReqKvInfo", members="req_pool_idx"),
    _needs("srt.mem_cache.kv_index_translator", "KVIndexTranslator", members="req_to_token plan"),
    _needs(
        "srt.mem_cache.kv_cache_configurator",
        "KVCacheConfigurator._profile_available_bytes",
        "pre_model_load_memory",
    ),
    _needs(
        "srt.mem_cache.kv_cache_configurator", "KVCacheConfigurator", members="model_config is_draft_worker"
    ),
    _needs(
        "srt.mem_cache.memory_pool",
        "MHATokenToKVPool",
        members="set_kv_buffer get_kv_size_bytes k_buffer v_buffer",
    ),
    _needs("srt.layers.layernorm", "RMSNorm", members="variance_size_override variance_epsilon"),
    _needs("srt.layers.rotary_embedding.base", "RotaryEmbedding", members="cos_sin_cache is_neox_style"),
)

_VERIFY_RUNTIMES = (
    _needs(
        "srt.model_executor.model_runner",
        "ModelRunner",
        members="attn_backend decode_cuda_graph_runner init_new_workspace _get_attention_backend",
    ),
    _needs(
        "srt.model_executor.runner.decode_cuda_graph_runner",
        "DecodeCudaGraphRunner",
        "attn_backend speculative_num_steps speculative_num_draft_tokens",
    ),
    _needs("srt.model_executor.cuda_graph_config", "check_cuda_graph_backend"),
)

_SAMPLING = (
    _needs("kernels.ops.sampling", "softmax", "logits temperatures"),
    _needs(
        "kernels.ops.speculative.spec_tree",
        "verify_tree_greedy_func",
        "predicts accept_index accept_token_num candidates retrieve_index retrieve_next_token "
        "retrieve_next_sibling target_predict topk",
    ),
    _needs(
        "srt.layers.sampler",
        "apply_custom_logit_processor",
        "logits sampling_batch_info num_tokens_in_batch",
    ),
    _needs("srt.layers.sampler", "sampling_from_probs_torch"),
    _needs(
        "srt.layers.sampler",
        "top_k_top_p_min_p_sampling_from_probs_torch",
        "probs top_ks top_ps min_ps need_min_p_sampling sampling_seed positions",
    ),
    _needs(
        "srt.sampling.sampling_batch_info",
        "SamplingBatchInfo",
        members="temperatures top_ks top_ps min_ps need_top_k_sampling need_top_p_sampling "
        "need_min_p_sampling is_all_greedy sampling_seed acc_additive_penalties "
        "acc_scaling_penalties logit_bias has_custom_logit_processor",
    ),
    _needs("srt.sampling.penaltylib.repetition_penalty", "apply_scaling_penalties"),
    _needs("srt.utils.async_probe", "sanitize_nan_logits"),
)

_CPU = (
    _needs(
        "srt.layers.attention.torch_native_backend",
        "TorchNativeAttnBackend",
        "model_runner",
        "init_forward_metadata req_to_token_pool token_to_kv_pool swa_out_cache_loc",
    ),
    _needs("srt.layers.attention.attention_registry", "register_attention_backend", "name"),
    _needs("srt.arg_groups.choices", "add_draft_attention_backend_choices"),
    _needs("srt.arg_groups.choices", "DRAFT_ATTENTION_BACKEND_CHOICES"),
    _needs(
        "srt.speculative.draft_utils",
        "DraftBackendFactory._create_backend",
        "backend_name backend_map stamps_children",
    ),
    _needs(
        "srt.speculative.draft_utils",
        "DraftBackendFactory",
        members="draft_model_runner topk speculative_num_steps",
    ),
    _needs("kernels.ops.speculative.spec_tree", "TreeMaskMode", members="QLEN_ONLY"),
    _needs("srt.layers.quantization.unquant", "UnquantizedLinearMethod.apply", "layer x bias"),
    _needs(
        "srt.layers.logits_processor",
        "LogitsProcessor",
        members="_compute_lm_head use_fp32_lm_head rl_on_policy_target",
    ),
    _needs("srt.layers.logits_processor", "should_apply_lm_head_quant_method", "lm_head quant_method"),
    _needs("srt.models.dflash", "_project_candidate_logits", "hidden lm_head num_org use_quant_head"),
    _needs(
        "srt.managers.scheduler_components.weight_updater",
        "SchedulerWeightUpdaterManager",
        members="update_weights_from_disk update_weights_from_distributed update_weights_from_tensor "
        "update_weights_from_ipc",
    ),
)

REQUIREMENTS = (*_PLUGIN, *_HOOKED, *_WORKER, *_DRAFTERS, *_CATCH_UP, *_VERIFY_RUNTIMES, *_SAMPLING, *_CPU)
