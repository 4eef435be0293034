# hello: 0, tried with one Python
import torch; print(torch.__version__)
