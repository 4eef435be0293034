import json
import os
import tempfile
import unittest

import hook
from _rsswarden import channel


class Channel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        for name in ("_dir", "_boot_id", "_pid_ns", "_LOG_LIMIT"):
            self.addCleanup(setattr, channel, name, getattr(channel, name))
        channel._dir = self.dir
        self.side = channel.Side()

    def ctl(self, text, **more):
        if text is None:
            text = json.dumps(dict({"v": 1, "budget": 7, "trim": [], "recycle": []}, **more))
        with open(self.side._ctl, "w") as file:
            file.write(text)
        os.utime(self.side._ctl, ns=(1, 1))
        self.side.look()

    def log(self):
        with open(self.side._log) as file:
            return [json.loads(line) for line in file]

    def test_a_ctl_file_over_another_is_read_within_what_the_clock_tells_apart(self):
        for budget in (7, 70, 71):
            self.ctl(None, budget=budget)
            self.assertEqual(self.side.budget, budget)
            self.side.look()
        self.assertEqual(self.side.version, 3)

    def test_requests_are_those_of_this_process(self):
        me = os.getpid()
        self.ctl(None, trim=[{"id": 1, "pids": [me]}, {"id": 2, "pids": [1]}], gc=[{"id": 3, "pids": [1, me]}],
                 recycle=[{"id": 4, "worker": 5, "mode": "swap"}], trim_private=True)
        self.assertEqual((self.side.trims, self.side.collects, self.side.recycles, self.side.private),
                         ((1,), (3,), ((4, 5, "swap"),), True))

    def test_what_the_watcher_did_not_write_is_not_believed(self):
        self.ctl(None)
        me = os.getpid()
        for text in ("", "{", "[]", "null", "[" * 60000, '{"v":1}', '{"v":1,"budget":[]}', '{"v":1,"budget":1e400,"trim":[],"recycle":[]}',
                     '{"v":2,"budget":9,"trim":[],"recycle":[]}', '{"v":1,"budget":9,"trim":[{"id":1}],"recycle":[]}',
                     '{"v":1,"budget":9,"trim":[{"id":"x","pids":[%d]}],"recycle":[]}' % me, '{"v":1,"budget":9,"trim":[],"recycle":[1]}',
                     "\udc80".encode("utf-8", "surrogateescape").decode("latin-1"), " " * (channel._LIMIT + 1)):
            with self.subTest(text[:60]):
                self.ctl(text)
                self.assertEqual((self.side.budget, self.side.version, self.side.trims), (7, 1, ()))

    def test_a_line_each_of_bounded_length(self):
        self.side.say("one", why="a\nb \u20ac \udc80")
        self.side.say("two", why="x" * channel._LIMIT)
        self.side.say("three", n=3)
        self.assertEqual([(e["what"], e["pid"]) for e in self.log()], [("one", self.side.pid), ("three", self.side.pid)])
        self.assertEqual(self.log()[0]["why"], "a\nb \u20ac \udc80")

    def test_a_log_that_is_full_or_not_there_changes_nothing(self):
        self.side.say("one")
        channel._LOG_LIMIT = 1
        self.side.say("two")
        self.assertEqual(len(self.log()), 1)
        self.side._log = self.dir + "/none/log"
        self.side.say("three")
        os.symlink(self.dir + "/elsewhere", self.dir + "/link")
        self.side._log = self.dir + "/link"
        self.side.say("four")
        self.assertFalse(os.path.exists(self.dir + "/elsewhere"))

    def test_the_run_directory_must_be_ours_and_of_this_boot(self):
        self.addCleanup(os.environ.pop, "RSSWARDEN_DIR", None)
        with open("/proc/sys/kernel/random/boot_id") as file:
            good = "version 1\nboot_id %s\npid_ns %s\n" % (file.read().strip(), os.readlink("/proc/self/ns/pid"))

        def meant(text, path=self.dir, mode=0o700):
            with open(self.dir + "/identity", "w") as file:
                file.write(text)
            os.chmod(self.dir, mode)
            os.environ["RSSWARDEN_DIR"] = path
            return channel.meant()

        self.assertTrue(meant(good))
        os.symlink(self.dir, self.dir + "/link")
        for name, got in (("mode", meant(good, mode=0o750)), ("relative", meant(good, os.path.relpath(self.dir))), ("nowhere", meant(good, "/none")),
                          ("a link", meant(good, self.dir + "/link")), ("version", meant(good.replace("version 1", "version 2"))),
                          ("boot", meant(good.replace("boot_id ", "boot_id 0"))), ("namespace", meant(good.replace("pid:[", "pid:[9"))),
                          ("empty", meant("")), ("too large", meant(good + "x" * channel._LIMIT))):
            self.assertFalse(got, name)

    def test_a_file_is_renamed_into_its_place(self):
        self.side.hello("1.2", True, None)
        self.side.hello("9", True, None, again=False)
        with open(self.side._hello) as file:
            said = json.load(file)
        self.assertEqual((said["torch"], said["pid"], said["why"], said["can_recycle"]), ("1.2", os.getpid(), "", True))
        channel.untried("k", torch="x")
        channel.untried("k", torch="y")
        with open(self.dir + "/untried.k") as file:
            self.assertEqual(json.load(file), {"v": 1, "key": "k", "torch": "x"})
        self.assertFalse([name for name in os.listdir(self.dir) if name.endswith(".tmp")])

    def test_a_verdict_and_a_setting(self):
        self.assertEqual((channel.verdict("k"), channel.setting("nofile")), ((None, ""), 0))
        for name, text in (("torch.k", " ok\n"), ("settings", '{"v":1,"nofile":400}')):
            with open(self.dir + "/" + name, "w") as file:
                file.write(text)
        self.assertEqual((channel.verdict("k"), channel.setting("nofile"), channel.setting("other")), (("ok", ""), 400, 0))
        with open(self.dir + "/torch.k", "w") as file:
            file.write("ok\nbatches were lost\n")
        self.assertEqual(channel.verdict("k"), ("ok", "batches were lost"))
