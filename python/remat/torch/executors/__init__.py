"""Plans for other people's executors: a set of saved results, no order (docs/executors.md)."""
