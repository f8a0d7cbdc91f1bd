"""Entry point of the SGLang plugin (group ``sglang.srt.plugins``)."""

from __future__ import annotations

_registered = False


def register() -> None:
    """Register WHIFLASH with SGLang. Idempotent; runs once in every SGLang process.

    SGLang swallows a plugin's exception, so an SGLang that does not fit the
    contract gets an algorithm that tells the reason when it is asked for, and
    no hook at all.
    """
    global _registered
    if _registered:
        return
    _registered = True
    from whiflash_sglang import contract

    try:
        contract.check()
    except contract.ContractError as error:
        contract.register_refusal(error)
        return
    _register_algorithm()


def _register_algorithm() -> None:
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from whiflash_sglang import hooks
    from whiflash_sglang.algorithm import NAME, WORKER_ATTRIBUTE, WhiflashAlgorithm, validate_arguments
    from whiflash_sglang.cpu import hooks as cpu_hooks
    from whiflash_sglang.cpu.environment import is_cpu_engine

    @SpeculativeAlgorithm.register(
        NAME,
        supports_overlap=True,
        validate_server_args=validate_arguments,
        spec_class=WhiflashAlgorithm,
    )
    def worker_class(server_args):  # SGLang calls it in the scheduler process
        hooks.install_for_decoding()
        other = getattr(server_args, WORKER_ATTRIBUTE, None)
        if other is not None:
            return other()
        from whiflash_sglang.worker import WhiflashWorker

        return WhiflashWorker

    hooks.install()
    if is_cpu_engine():
        cpu_hooks.install()
