"""What a pickle can hold: code to run when it is read."""


class Call:
    """A call of a function with these arguments, made by whoever unpickles it."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call
