"""The drafters WHIFLASH routes between. Each returns a tree; none knows of the others."""
