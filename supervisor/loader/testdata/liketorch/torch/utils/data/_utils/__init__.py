from torch.utils.data._utils import fetch, signal_handling, worker
