"""Durations and workspaces of the ops of a step: measured, from a roofline, or from a file."""
