"""What a worker has of its own, by the number of batches it has made; a pool's tasks count as such.

A worker that was just started reaches what it needs within a few batches; a leak
goes on by as much with each. To tell them apart, the hook reports after 6 batches, and
each time their number has doubled, the growth since the worker's first batch, by then
and by half as many batches. In between a batch costs a comparison. Where many tasks of
a pool take no time, the first reports are left out.
"""
from _rsswarden import collect

_FIRST = 6  # batches until the first report: PyTorch's own caches are full after 3


class Growth:
    """Counts one worker's batches; due is the number at which look is to be called."""

    def __init__(self, side):
        self._side = side
        self._base = collect.anonymous()  # before the first batch
        self._half = None  # what it had of its own when half of what is due was made
        self.batches = 0
        self.due = _FIRST // 2

    def skip(self):
        """Leaves out what is due: reports begin with twice as many batches."""
        self.due = 2 * self.batches

    def look(self):
        """Takes note of what the process has, and reports it where it has half as many batches ago."""
        self.due = 2 * self.batches
        own = collect.anonymous() - self._base
        if self._half is not None:
            self._side.say("grown", worker=self._side.pid, count=self.batches, before=max(self._half, 0), after=max(own, 0))
        self._half = own
