"""The data sets: what is asked, and how long the answers get."""
