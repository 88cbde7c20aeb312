"""Carries out plans: rewritten graphs, generated code, Inductor, use of the outputs."""
