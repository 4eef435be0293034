class DelayedSubmission:
    """A call that is to be made in a job."""

    def __init__(self, function, *args, **kwargs):
        self.function, self.args, self.kwargs = function, args, kwargs

    def result(self):
        return self.function(*self.args, **self.kwargs)
