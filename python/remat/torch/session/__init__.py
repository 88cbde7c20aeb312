"""State shared by the graphs of one compiled model, from their first call on."""
