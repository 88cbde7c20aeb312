"""Reproduces the tables and figures of four papers: ``remat bench SUITE`` (docs/benchmarking.md).

``lab`` runs planners in separate processes and stores every result in a file, so that an interrupted suite
continues. ``suites`` holds the experiments of each paper; ``report`` writes Markdown, ``plots`` figures.
Suites name planners, and new ones are included automatically.
"""
