"""The tables and figures of four papers, measured again: ``remat bench SUITE`` (docs/benchmarking.md).

``lab`` runs planners in processes of their own and keeps every result in a file, so that a suite that was
stopped goes on where it was. ``suites`` says what each paper measured; ``report`` writes Markdown, ``plots``
figures. Nothing here plans: a suite knows planners by name only, and new ones appear by themselves.
"""
