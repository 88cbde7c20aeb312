"""Planned recomputation in eager mode: a real step is recorded and planned; hooks run the plan."""
