"""The part of ``sgl_kernel.utils`` that SGLang reads at import time."""


def is_arch_support_pdl() -> bool:
    """Programmatic dependent launch exists on Hopper GPUs and later only."""
    return False
