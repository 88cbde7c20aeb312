"""Carry out a plan: rewritten graphs, generated code, Inductor, what becomes of the outputs."""
