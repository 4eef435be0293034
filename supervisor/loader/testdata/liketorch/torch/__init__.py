__version__ = '0.0'
from torch import multiprocessing, utils
