"""Several processes on one port, for more cores than one event loop can use.

The first worker forks the others before anything has begun: only what must be bound first is there. From then on each
is a server of its own, with its own copy of the model's tokenizer, and the kernel spreads connections over them. The
first says when: it alone decides what to serve and finds the model, all listen once all have loaded, and they end with
it. It hears of their errors and ends if one of them does; if it is killed, they notice.

The first has a line to each other worker. Over these it also gathers what all have counted, for whichever is asked.
"""

from fastfront.workers.start import check_room, fork, unasked
from fastfront.workers.worker import Worker

__all__ = ["Worker", "check_room", "fork", "unasked"]
