"""`python -m remat` is the command line."""

from remat._cli import main

main()
