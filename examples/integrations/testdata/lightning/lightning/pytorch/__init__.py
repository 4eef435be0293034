"""Stands in for Lightning in tests, which Debian does not have: a trainer of one rank
that calls the callbacks where Lightning does, with what it gives them."""
import time

import torch

LightningModule = torch.nn.Module


class Strategy:
    def reduce_boolean_decision(self, decision, all=True):
        return decision


class Trainer:
    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks = max_epochs, callbacks
        self.strategy, self.should_stop, self.global_step = Strategy(), False, 0

    def fit(self, model, loader):
        self.model, optimizer = model, model.configure_optimizers()
        self.call("on_fit_start")
        for epoch in range(self.max_epochs):
            for index, batch in enumerate(loader):
                optimizer.zero_grad()
                loss = model.training_step(batch, index)
                loss.backward()
                optimizer.step()
                self.global_step += 1
                time.sleep(0.01)
                self.call("on_train_batch_end", loss, batch, index)
                if self.should_stop:
                    break
        self.call("on_fit_end")

    def call(self, name, *args):
        for callback in self.callbacks:
            getattr(callback, name)(self, self.model, *args)

    def save_checkpoint(self, path):
        torch.save({"global_step": self.global_step, "state_dict": self.model.state_dict()}, path)
