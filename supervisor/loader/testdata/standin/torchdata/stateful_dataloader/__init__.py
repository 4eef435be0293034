"""A stand-in for torchdata's StatefulDataLoader, for tests: the same structure, and no more than they need."""
from .stateful_dataloader import Stateful, StatefulDataLoader
