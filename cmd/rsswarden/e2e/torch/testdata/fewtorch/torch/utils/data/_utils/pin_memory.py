def _pin_memory_loop():
    pass
