"""Device kernels of a WHIFLASH round, usable without SGLang. Empty in this version: SGLang's own ops run."""
