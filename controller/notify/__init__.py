"""Incidents for people: grouped, inhibited, repeated, and never sent twice by mistake."""
