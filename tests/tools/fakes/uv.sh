#!/usr/bin/env bash
# uv, which leaves all to that Python, but for what it would read of the environment.
env > "$NOTES.env"
exec "$FAKE" -m "$@"
