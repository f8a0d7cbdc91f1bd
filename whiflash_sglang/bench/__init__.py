"""The benchmark behind benchmark.py: prompts, arms, the run, the report."""
