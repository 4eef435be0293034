"""A Lightning training that keeps 2 MB of each batch, by mistake."""
import lightning.pytorch as pl
import torch

from when_asked import CheckpointWhenAsked


class Forgets(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.kept = torch.nn.Linear(16, 1), []

    def training_step(self, batch, batch_idx):
        self.kept.append(b"\x55" * (2 << 20))
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(torch.ones(4 * 200, 16), batch_size=4)
    trainer = pl.Trainer(max_epochs=1, callbacks=[CheckpointWhenAsked("asked.ckpt")])
    trainer.fit(Forgets(), loader)
    print("trained", trainer.global_step, "steps", flush=True)
