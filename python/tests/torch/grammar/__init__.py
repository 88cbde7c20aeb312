"""The grammar of random modules: one class a rule. `random_modules.py` checks many of them."""
