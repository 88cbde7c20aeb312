"""Models that tests and benchmarks train; not part of the package that is shipped."""
