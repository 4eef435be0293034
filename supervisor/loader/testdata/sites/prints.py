import sys
print(__name__, __file__, __doc__, sys.path)
