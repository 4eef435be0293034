# Shows the traceback of a data set that raises.
import torch
torch.set_num_threads(1)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return 1 // (5 - i)
for workers in (0, 1) if __name__ == "__main__" else (): # with two, torch has a line of its own for batches out of turn
    try:
        for batch in torch.utils.data.DataLoader(Data(), 2, num_workers=workers): pass
    except ZeroDivisionError:
        import traceback
        print(traceback.format_exc())
