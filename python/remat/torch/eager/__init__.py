"""Planned recomputation in eager mode: a real step is recorded and planned; hooks carry out the plan."""
