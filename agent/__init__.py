"""The sidecar: takes traces from the processes beside it and keeps them in an event log."""
