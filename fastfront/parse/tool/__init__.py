"""Tool call formats as tables, by the family that they are of."""
