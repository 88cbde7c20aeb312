"""Shared by all layers: errors, the step graph, helpers for fx graphs, the allocator trace."""
