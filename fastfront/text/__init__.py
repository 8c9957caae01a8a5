"""Token deltas to text deltas."""
