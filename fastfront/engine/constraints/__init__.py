"""Whether the engine will take a constraint on its output, found out before it gets it."""
