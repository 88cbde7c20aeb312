"""Planning of captured steps: options, budgets, stored plans, reports."""
