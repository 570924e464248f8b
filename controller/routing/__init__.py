"""From incidents to routes: a pure desired state, a loop that applies it and reads it back."""
