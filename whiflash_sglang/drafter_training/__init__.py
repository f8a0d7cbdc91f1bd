"""Training small drafters for a small target on a CPU: the demo's own, and anyone's first try.

For real targets use the field's trainer, SpecForge; what it writes loads here as well.
"""
