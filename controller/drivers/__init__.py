"""What moves traffic: one driver per router, each with its own read-back."""
