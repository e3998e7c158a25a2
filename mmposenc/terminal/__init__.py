"""What every command of the terminal shares: messages of errors, and options. Only
the standard library is imported."""
