"""What the ops of a step take: measured, from a roofline, or from a file."""
