"""What the graphs of one compiled model share, from their first call on."""
