"""A Lightning callback that saves a checkpoint when it is asked for one by a signal:

    rsswarden run --at 93%:signal=USR2 -- python train.py

rsswarden sends it to every rank, and to no process that has no handler for it. Without
the signal, with rsswarden or without, the callback does nothing.
"""
import signal
import threading

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # of its older name
    from pytorch_lightning.callbacks import Callback


class CheckpointWhenAsked(Callback):
    """Saves to path after the batch in which the signal came; then_stop ends the fit too.

    Ranks agree every so many batches: all must take part in saving.
    """

    def __init__(self, path, number=signal.SIGUSR2, then_stop=False, every=1):
        self.path, self.number, self.then_stop, self.every = path, number, then_stop, every
        self.asked, self.before = False, None

    def ask(self, number, frame):
        self.asked = True

    def on_fit_start(self, trainer, pl_module):
        if threading.current_thread() is threading.main_thread():  # no other may take signals
            self.before = signal.signal(self.number, self.ask)

    def on_fit_end(self, trainer, pl_module):
        if self.before is not None:
            signal.signal(self.number, self.before)
            self.before = None

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch_idx % self.every or not trainer.strategy.reduce_boolean_decision(self.asked, all=False):
            return
        self.asked = False
        trainer.save_checkpoint(self.path)
        trainer.should_stop = trainer.should_stop or self.then_stop
