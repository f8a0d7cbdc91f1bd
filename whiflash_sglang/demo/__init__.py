"""The embedded CPU demo: SmolLM2-135M-Instruct and drafters of the right shape for it."""
