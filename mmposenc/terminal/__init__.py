"""What every command of the terminal shares: messages of errors, options, and safe streams. Only
the standard library is imported."""
