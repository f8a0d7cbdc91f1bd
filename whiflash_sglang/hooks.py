"""The changes WHIFLASH makes to SGLang's own functions. Each applies to WHIFLASH runs only."""

from __future__ import annotations

from typing import Any

from whiflash_sglang.algorithm import CONFIG_ATTRIBUTE, NAME, config_of
from whiflash_sglang.config import WhiflashConfig
from whiflash_sglang.drafters.configs import read_drafts
from whiflash_sglang.flags import add_flags, flags_given, given_options

_SPEC_AUX = "sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state"


def install() -> None:
    """Register what start-up needs; SGLang applies hooks once all plugins have run.

    Applying a hook imports its module, in every process that loads plugins: these are light.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    server_args = "sglang.srt.server_args.ServerArgs"
    sizing = "sglang.srt.mem_cache.allocation_sizing"
    HookRegistry.register(f"{server_args}.add_cli_args", add_whiflash_flags, HookType.AFTER)
    HookRegistry.register(f"{server_args}.from_cli_args", attach_config, HookType.AFTER)
    HookRegistry.register(f"{_SPEC_AUX}.resolve_spec_aux_hidden_state_config", capture_union, HookType.AFTER)
    HookRegistry.register(f"{sizing}.get_req_to_token_extra_context_len", widen_token_rows, HookType.AFTER)
    HookRegistry.register(
        "sglang.srt.configs.model_config.ModelConfig._derive_context_length",
        extend_draft_context,
        HookType.AROUND,
    )
    HookRegistry.register(
        "sglang.srt.arg_groups.speculative_hook._resolve_speculative_algorithm_alias",
        keep_algorithm,
        HookType.AROUND,
    )


def install_for_decoding() -> None:
    """Register and apply what only a process that decodes with WHIFLASH needs."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from whiflash_sglang.catch_up.memory import pay_for_pending_rows
    from whiflash_sglang.cpu import hooks as cpu_hooks
    from whiflash_sglang.cpu.environment import is_cpu_engine
    from whiflash_sglang.sampling import sample_verify

    HookRegistry.register("sglang.srt.speculative.eagle_utils.eagle_sample", sample_verify, HookType.AROUND)
    HookRegistry.register(
        "sglang.srt.mem_cache.kv_cache_configurator.KVCacheConfigurator._profile_available_bytes",
        pay_for_pending_rows,
        HookType.AFTER,
    )
    if is_cpu_engine():
        cpu_hooks.install_for_decoding()
    HookRegistry.apply_hooks()


def add_whiflash_flags(result: None, parser: Any) -> None:
    """After ``ServerArgs.add_cli_args``: our flags stand beside SGLang's."""
    add_flags(parser)


def attach_config(server_args: Any, cls: type, args: Any) -> None:
    """After ``ServerArgs.from_cli_args``: build our config from the parsed flags.

    Raises:
        ValueError: a bad option, or one given without ``--speculative-algorithm WHIFLASH``.
    """
    options = given_options(args)
    if (args.speculative_algorithm or "").upper() != NAME:
        if options:
            raise ValueError(
                f"{', '.join(flags_given(options))} given, but --speculative-algorithm is "
                f"{args.speculative_algorithm!r}, not {NAME}"
            )
        return
    attach(server_args, options)


def attach(server_args: Any, options: dict[str, Any]) -> None:
    """Validate options and put the config on unresolved SGLang arguments.

    Raises:
        ValueError: see :meth:`WhiflashConfig.validate`.
    """
    config = WhiflashConfig.from_mapping(
        {
            **options,
            "dflash_draft": server_args.speculative_draft_model_path,
            "dflash_draft_revision": server_args.speculative_draft_model_revision,
        }
    )
    setattr(server_args, CONFIG_ATTRIBUTE, config)


def capture_union(
    aux_config: Any, *, server_args: Any, model_config: Any, spec_algorithm: Any, is_draft_worker: bool
) -> None:
    """The target captures both drafters' layers, and its KV budget pays for both draft pools."""
    if spec_algorithm.name != NAME or is_draft_worker:
        return
    from sglang.srt.arg_groups.overrides import resolving_view

    drafts = read_drafts(resolving_view(server_args), config_of(server_args))
    aux_config.eagle_aux_hidden_state_layer_ids = drafts.captured_layers
    # SGLang scales the target's bytes per token by this number of layers.
    target_row = model_config.get_total_num_kv_heads() * model_config.head_dim
    dflash_layers = -(-drafts.dflash.num_layers * drafts.dflash.kv_row // target_row)
    aux_config.eagle_draft_num_layers += dflash_layers


def widen_token_rows(extra: int) -> int | None:
    """A request's row of slots holds all that a round near the context's end reserves."""
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_page_size, get_alloc_reserve_per_decode
    from sglang.srt.runtime_context import get_spec

    if get_spec().speculative_algorithm != NAME:
        return None
    return max(extra, get_alloc_reserve_per_decode() + get_alloc_page_size() - 1)


def keep_algorithm(original: Any, speculative_algorithm: str | None, *args: Any, **kwargs: Any) -> str | None:
    """WHIFLASH is nobody's alias: SGLang need not read the draft's config to tell.

    It would do so before an algorithm may check its arguments, and name no flag where that fails.
    """
    if speculative_algorithm == NAME:
        return speculative_algorithm
    return original(speculative_algorithm, *args, **kwargs)


def extend_draft_context(original: Any, model_config: Any, context_length: int | None) -> None:
    """A draft trained on fewer positions than the target serves runs on past them.

    Its drafts may get worse there, never the output; SGLang would refuse to start.
    """
    from sglang.srt.environ import envs
    from sglang.srt.runtime_context import get_spec

    if not model_config.is_draft_model or get_spec().speculative_algorithm != NAME:
        return original(model_config, context_length)
    with envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.override(True):
        return original(model_config, context_length)
