"""Runs tasks of 1 ms in two multiprocessing.Pools of one worker, in turns of 50, and says as JSON what each took.

Arguments: how many turns, and which pool is made first, "ours" or "bare".

ours, bare  seconds a task, with rsswarden's hook between two tasks, and in a pool that was
            made with it off, whose worker compares tasks with None as without us
ratios      bare to ours, of each pair of turns
hook        processor time inside the hook a task, less that of looking at the clock
"""
import json
import multiprocessing.pool
import sys
import time

TURN = 50
SPENT = [0]


def timed(compare):
    """Adds up in SPENT what compare takes, which itself takes longer by it: a third pool's."""
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
        self.walls = []
        self.pool.map(task, range(500), chunksize=1)  # with what a worker does once
        assert self.pool.apply(spent, (0,))[1] == hooked, "the hook is where it should not be, or is not there"

    def turn(self):
        began = time.monotonic()
        self.pool.map(task, range(TURN), chunksize=1)
        self.walls.append(time.monotonic() - began)


def main():
    turns, first = int(sys.argv[1]), sys.argv[2]
    sides = {hooked: Side(hooked) for hooked in ((True, False) if first == "ours" else (False, True))}
    ours, bare = sides[True], sides[False]
    for turn in range(turns):
        for side in (ours, bare) if turn % 2 else (bare, ours):
            side.turn()
    limit = sys.modules["_rsswarden.pools"].Limit
    limit.__gt__, limit.__le__ = timed(limit.__gt__), timed(limit.__le__)
    inside, tasks = Side(True), turns * TURN
    before = inside.pool.apply(spent, (0,))[0]
    inside.pool.map(task, range(tasks), chunksize=1)
    hook = inside.pool.apply(spent, (0,))[0] - before
    print(json.dumps({"ours": sum(ours.walls) / tasks, "bare": sum(bare.walls) / tasks, "hook": hook / 1e9 / (tasks + 1),
                      "ratios": [b / o for b, o in zip(bare.walls, ours.walls)]}))


if __name__ == "__main__":
    main()
