"""Planned recomputation in eager mode: a real step is recorded and planned; hooks for saved tensors run it."""
