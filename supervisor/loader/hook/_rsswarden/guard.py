"""Keeps what raises in the hook away from the program."""
import inspect
import signal


def ours(error):
    """Says whether the hook itself raised error, and not a signal handler of the program.

    Handlers run between any two lines, ours too: torch's handler of SIGCHLD raises
    RuntimeError when a worker has died, a user's of SIGALRM what it likes. Those
    must reach the program. A handler is known by how it is called, with the frame
    that it interrupted; one may have put another in its place before it raised.
    """
    try:
        handlers = set()
        for number in signal.valid_signals():
            code = _code(signal.getsignal(number))
            if code is not None:
                handlers.add(code)
        trace = error.__traceback__
        while trace is not None:
            # Before Python 3.13 a frame keeps what its f_locals gave: ours would hold error,
            # which holds the frames, and the iterator in them would end late, by the
            # garbage collector, with five seconds for each worker.
            mine = trace.tb_frame.f_globals.get("__name__", "").startswith("_rsswarden")
            if trace.tb_frame.f_code in handlers or not mine and _interrupts(trace.tb_frame):
                return False
            trace = trace.tb_next
    except Exception:
        pass
    return True


def _interrupts(frame):
    """Says whether frame is a call that was given the frame of its caller."""
    code, back = frame.f_code, frame.f_back
    names = code.co_varnames[:code.co_argcount]
    given = [frame.f_locals[name] for name in names if name in frame.f_locals]
    if code.co_flags & inspect.CO_VARARGS:
        given.extend(frame.f_locals.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ()))
    return back is not None and any(value is back for value in given)


def _code(handler):
    for _ in range(4):
        code = getattr(handler, "__code__", None)
        if code is not None:
            return code
        if hasattr(handler, "__func__"):
            handler = handler.__func__
        elif hasattr(handler, "func"):
            handler = handler.func
        else:
            break
    return getattr(getattr(type(handler), "__call__", None), "__code__", None)


def describe(error):
    """Returns error and the last line of ours it passed, for people."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_globals.get("__name__", "").startswith("_rsswarden"):
            line = " at %s:%d" % (frame.f_globals["__name__"], trace.tb_lineno)
        trace = trace.tb_next
    return "%s: %s%s" % (type(error).__name__, str(error)[:200], line)


