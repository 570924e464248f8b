"""Who may do what: roles, hashed tokens, certificates, and the guard in front of every method."""
