import unittest

import hook
from _rsswarden import collect, growth


class Growth(unittest.TestCase):
    def reports(self, own, batches):
        """Returns what a worker reports which has own(n) of its own after n batches, and how often it is looked."""
        side, has, looks = hook.Side(), [100], []
        self.addCleanup(setattr, collect, "anonymous", collect.anonymous)
        collect.anonymous = lambda: looks.append(1) or has[0]
        worker = growth.Growth(side)
        for n in range(1, batches + 1):
            worker.batches += 1
            has[0] = 100 + own(n)
            if worker.batches >= worker.due:
                worker.look()
        return [(s["worker"] == side.pid, s["count"], s["before"], s["after"]) for s in side.said], len(looks)

    def test_after_six_batches_and_each_time_they_have_doubled(self):
        said, looks = self.reports(lambda n: 10 * n, 100)
        self.assertEqual(said, [(True, n, 5 * n, 10 * n) for n in (6, 12, 24, 48, 96)])
        self.assertEqual(looks, 1 + 1 + 5)

    def test_of_reports_that_are_not_sent_the_last_is(self):
        side, own = hook.Side(), iter((100, 110, 130, 160, 170))
        self.addCleanup(setattr, collect, "anonymous", collect.anonymous)
        collect.anonymous = lambda: next(own)
        worker = growth.Growth(side)
        for sends in (False, False, False, True):
            worker.batches = worker.due
            worker.look(send=False)
            if sends:
                worker.send()
        worker.send()
        self.assertEqual([(s["count"], s["before"], s["after"]) for s in side.said], [(24, 60, 70)])

    def test_less_than_at_first_is_nothing(self):
        self.assertEqual(self.reports(lambda n: -n, 6)[0], [(True, 6, 0, 0)])
