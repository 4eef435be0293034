"""Runs tasks of 1 ms in two multiprocessing.Pools of one worker, in turns of 100, and says as JSON what each took.

ours, bare  seconds a task, with rsswarden's hook between two tasks, and in a pool that was
            made with it off, whose worker compares tasks with None as without us
hook        processor time inside the hook a task, less that of looking at the clock
"""
import json
import multiprocessing.pool
import sys
import time

TURN = 100
SPENT = [0]


def timed(compare):
    def inner(limit, done):
        began = time.thread_time_ns()
        clock = time.thread_time_ns()
        try:
            return compare(limit, done)
        finally:
            SPENT[0] += time.thread_time_ns() - clock - (clock - began)
    return inner


def task(_):
    time.sleep(0.001)


def spent(_):
    return SPENT[0], getattr(sys.modules["_rsswarden.pools"], "_worker", None) is not None


class Side:
    def __init__(self, hooked):
        hook = sys.modules["_rsswarden.pools"]
        hook._off = not hooked
        self.pool = multiprocessing.Pool(1)
        hook._off = False
        self.wall = self.hook = 0
        self.pool.map(task, range(5 * TURN), chunksize=1)  # with what a worker does once
        assert self.pool.apply(spent, (0,))[1] == hooked, "the hook is where it should not be, or is not there"

    def turn(self):
        before, began = self.pool.apply(spent, (0,))[0], time.monotonic()
        self.pool.map(task, range(TURN), chunksize=1)
        self.wall += time.monotonic() - began
        self.hook += self.pool.apply(spent, (0,))[0] - before


def main():
    turns = int(sys.argv[1])
    limit = sys.modules["_rsswarden.pools"].Limit
    limit.__gt__, limit.__le__ = timed(limit.__gt__), timed(limit.__le__)
    ours, bare = Side(True), Side(False)
    for turn in range(turns):
        for side in (ours, bare) if turn % 2 else (bare, ours):
            side.turn()
    # A turn of tasks and what asks for the time: a comparison each.
    print(json.dumps({"ours": ours.wall / turns / TURN, "bare": bare.wall / turns / TURN, "hook": ours.hook / 1e9 / turns / (TURN + 1)}))


if __name__ == "__main__":
    main()
