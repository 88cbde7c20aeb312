"""Plans for executors outside Remat, which take a set of saved results and no order (docs/executors.md)."""
