import atexit, signal
atexit.register(print, 'bye') if str is not bytes else None
signal.signal(signal.SIGUSR1, lambda *a: None)
