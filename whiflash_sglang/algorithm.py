"""What SGLang asks of a speculative algorithm: predicates, argument handling, the widest round."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from whiflash_sglang.config import DEFAULT_EAGLE_TREE, WhiflashConfig
from whiflash_sglang.drafters.configs import Drafts, read_drafts, read_hf_config
from whiflash_sglang.drafters.weights import check_dflash, check_eagle3
from whiflash_sglang.refusals import refuse_arguments, refuse_target
from whiflash_sglang.routing.checkpoint import load_router
from whiflash_sglang.row_costs import RowCosts

logger = logging.getLogger(__name__)

NAME = "WHIFLASH"
CONFIG_ATTRIBUTE = "_whiflash"  # on ServerArgs; survives pickling into the scheduler
WORKER_ATTRIBUTE = "_whiflash_worker"  # likewise; a function that returns another worker class
DEFAULT_MAX_RUNNING_REQUESTS = 48  # what SGLang sets for its own speculative algorithms


def config_of(server_args: Any) -> WhiflashConfig:
    """The WhiflashConfig that travels with SGLang's arguments.

    Raises:
        ValueError: the arguments were not built by a command line or by
            ``whiflash_sglang.engine.server_args``.
    """
    config = getattr(server_args, CONFIG_ATTRIBUTE, None)
    if config is None:
        raise ValueError(
            "--speculative-algorithm WHIFLASH needs its own options: on the command line the "
            "--whiflash-* flags, in Python whiflash_sglang.engine.make_engine(...) in place of sglang.Engine(...)"
        )
    return config


class WhiflashAlgorithm(CustomSpecAlgo):
    """WHIFLASH for SGLang's scheduler: an EAGLE-3 algorithm whose rounds may be DFlash's.

    ``is_eagle`` keeps what EAGLE needs of the scheduler: the bigram radix key
    (its K/V depend on the next token), draft states that follow a request
    through the batch, and KV reserved for tree drafting.
    """

    def is_eagle(self) -> bool:
        """Scheduler branches of the EAGLE family apply."""
        return True

    def is_eagle3(self) -> bool:
        """The target captures aux hidden states; the draft has its own vocabulary."""
        return True

    def supports_grammar_overlap(self) -> bool:
        """The verify advances the grammar through the scheduler's barrier, as EAGLE's does."""
        return True

    def carries_draft_hidden_states(self) -> bool:
        """As EAGLE; asked at start-up whether or not disaggregation is on."""
        return True

    def need_topk(self) -> bool:
        """The state between rounds holds EAGLE's first top-k."""
        return True

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        """The relay of draft states under overlap scheduling: SGLang's own."""
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def resolve_max_speculative_num_draft_tokens(self, server_args: Any) -> int:
        """The most slots one round of any drafter writes past a request's length."""
        from sglang.srt.arg_groups.overrides import resolving_view

        args = resolving_view(server_args)
        tree = args.speculative_num_steps * args.speculative_eagle_topk
        config = config_of(server_args)
        block = read_drafts(args, config).dflash.block_size
        return max(tree, args.speculative_num_draft_tokens, block, 1 + max(config.tree_budgets, default=0))

    def handle_server_args(self, server_args: Any) -> None:
        """Set what SGLang sets for its own algorithms, and check both drafts' configs.

        Args:
            server_args: SGLang's stand-in for its arguments; assignments on it are kept.

        Raises:
            ValueError: names the flag and the values.
        """
        config = config_of(server_args)
        self._set_scheduling(server_args)
        self._set_tree(server_args)
        drafts = read_drafts(server_args, config)
        check_checkpoints(config, drafts)
        self._set_dtype(server_args, drafts)
        # SGLang reads this field as the EAGLE draft of an is_eagle3() algorithm.
        server_args.speculative_draft_model_path = config.eagle_draft
        server_args.speculative_draft_model_revision = config.eagle_draft_revision or "main"

    def _set_scheduling(self, server_args: Any) -> None:
        if server_args.max_running_requests is None:
            server_args.max_running_requests = DEFAULT_MAX_RUNNING_REQUESTS
            logger.warning(
                "--max-running-requests is set to %d for WHIFLASH; set it to override.",
                DEFAULT_MAX_RUNNING_REQUESTS,
            )
        if server_args.device == "cpu" and not server_args.disable_overlap_schedule:
            server_args.disable_overlap_schedule = True

    def _set_dtype(self, server_args: Any, drafts: Drafts) -> None:
        """The drafts run in the target's dtype and unquantised, whatever they are stored in."""
        stored = {str(c.dtype).removeprefix("torch.") for c in (drafts.dflash_config, drafts.eagle3_config)}
        target = drafts.target.dtype
        if server_args.dtype == "auto" and stored != {target} and target in ("bfloat16", "float16"):
            server_args.dtype = target
        if not server_args._speculative_draft_quantization_explicitly_set:
            server_args.speculative_draft_model_quantization = None

    def _set_tree(self, server_args: Any) -> None:
        fields = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
        given = [getattr(server_args, name) for name in fields]
        if given == [None, None, None]:
            given = list(DEFAULT_EAGLE_TREE)
        if None in given:
            flags = ["--" + name.replace("_", "-") for name in fields]
            raise ValueError(f"{', '.join(flags)} go together; given are {given}")
        steps, topk, tokens = given
        _check_tree(steps, topk, tokens)
        if topk == 1:
            tokens = steps + 1
        if topk > 1 and (server_args.page_size or 1) > 1:
            _check_paged_tree(server_args)
        for name, value in zip(fields, (steps, topk, tokens), strict=True):
            setattr(server_args, name, value)


def validate_arguments(server_args: Any) -> None:
    """Refuse what WHIFLASH cannot serve, before SGLang changes any argument.

    Raises:
        ValueError: names the flag, its value and the reason.
    """
    refuse_arguments(server_args)
    _refuse_kernels_without_a_device(config_of(server_args), server_args.device)
    refuse_target(
        read_hf_config(
            server_args.model_path, server_args.revision, "--model-path", server_args.trust_remote_code
        )
    )


def _refuse_kernels_without_a_device(config: WhiflashConfig, device: str) -> None:
    import triton

    if config.verify_kernels == "triton" and device == "cpu" and not triton.knobs.runtime.interpret:
        raise ValueError(
            "--whiflash-verify-kernels is 'triton' and --device is 'cpu', where Triton runs under its "
            "interpreter alone (TRITON_INTERPRET=1)"
        )


def check_checkpoints(config: WhiflashConfig, drafts: Drafts) -> None:
    """Check tensor names and shapes of both drafts and of a neural router, and a calibration, in the launcher.

    Raises:
        ValueError: a checkpoint that does not fit or a file that is none, by flag.
    """
    check_eagle3(config, drafts)
    check_dflash(config, drafts)
    if config.neural_router_path is not None and config.router == "neural":
        load_router(
            config.neural_router_path,
            pair=config.drafters,
            tree_budget=config.ddtree_tree_budget,
            any_budget=config.takes_any_budget,
            hidden_size=drafts.target.hidden_size,
        )
    if config.calibration is not None and Path(config.calibration).exists():
        RowCosts.load(Path(config.calibration))


def _check_tree(steps: int, topk: int, tokens: int) -> None:
    if min(steps, topk) < 1 or tokens < 2:
        raise ValueError(
            f"--speculative-num-steps {steps}, --speculative-eagle-topk {topk} and "
            f"--speculative-num-draft-tokens {tokens}: at least 1, 1 and 2 are needed"
        )
    nodes = 1 + topk + (steps - 1) * topk * topk
    if topk > 1 and not steps < tokens <= nodes:
        raise ValueError(
            f"--speculative-num-draft-tokens is {tokens}; a tree of {steps} steps and top-k {topk} "
            f"has {steps + 1} to {nodes} tokens, the root included"
        )


def _check_paged_tree(server_args: Any) -> None:
    """SGLang's own refusal: only these backends draft a tree over whole pages."""
    backends = ("flashinfer", "fa3", "triton")
    if server_args.attention_backend not in backends:
        raise ValueError(
            f"--page-size {server_args.page_size} with --speculative-eagle-topk above 1 needs "
            f"--attention-backend {' or '.join(backends)}; got {server_args.attention_backend!r}. "
            "Use page size 1 or top-k 1."
        )
