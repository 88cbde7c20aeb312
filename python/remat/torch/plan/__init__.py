"""Which plan a step gets: options, budget, stored plans, reports."""
