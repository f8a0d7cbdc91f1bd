"""Train a router from a target's own decoding: collect rounds, fit the MLP, simulate, export."""
