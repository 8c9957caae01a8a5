"""What the first worker and another say to each other (line.py)."""

#: From the first: what it has decided; the model's files are there; it is time to listen; it was sent a signal.
AGREED, FOUND, LISTEN, SIGNAL = "agreed", "found", "listen", "signal"
#: To the first: it could listen; an error that it ends with.
READY, FAILED = "ready", "failed"
#: Questions: what it has counted, to another; what all but the asker have, to the first.
COUNTS, OTHERS = "counts", "others"
