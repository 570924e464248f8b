"""The commands: each module registers its arguments and runs; heavy imports wait until then."""
