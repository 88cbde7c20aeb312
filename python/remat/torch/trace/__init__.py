"""From a traced graph of PyTorch to a step graph."""
