from torch.utils.data._utils import fetch, pin_memory, signal_handling, worker

python_exit_status = False
