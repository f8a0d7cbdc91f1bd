"""Every test process runs SGLang's CPU engine, also on a machine with a GPU."""

from whiflash_sglang.cpu.environment import prepare

prepare("cpu")
