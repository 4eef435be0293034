from multiprocessing import *
