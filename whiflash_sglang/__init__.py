"""WHIFLASH: routed EAGLE-3 / DFlash speculative decoding as an SGLang plugin."""

__version__ = "0.1.0"
