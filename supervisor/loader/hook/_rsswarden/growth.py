"""What a worker has of its own, by the number of batches it has made; a pool's tasks count as such.

A worker that was just started reaches what it needs within a few batches; a leak
goes on by as much with each. To tell them apart, the hook reports after 6 batches, and
each time their number has doubled, the growth since the worker's first batch, by then
and by half as many batches. In between a batch costs a comparison.
"""
from _rsswarden import collect

_FIRST = 6  # batches until the first report: PyTorch's own caches are full after 3


class Growth:
    """Counts one worker's batches; due is the number at which look is to be called."""

    def __init__(self, side):
        self._side = side
        self._base = collect.anonymous()  # before the first batch
        self._half = 0  # what it had of its own when half of what is due was made
        self._kept = None  # the last report, where it was not sent
        self.batches = 0
        self.due = _FIRST // 2

    def look(self, send=True):
        """Takes note of what the process has, and reports it, then or with the next call of send."""
        self.due = 2 * self.batches
        own = collect.anonymous() - self._base
        if self.batches >= _FIRST:
            self._kept = {"count": self.batches, "before": max(self._half, 0), "after": max(own, 0)}
        self._half = own
        if send:
            self.send()

    def send(self):
        """Sends the last report, where that was not done."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._side.say("grown", worker=self._side.pid, **kept)
