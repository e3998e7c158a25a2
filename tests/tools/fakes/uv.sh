#!/usr/bin/env bash
# uv, which leaves all to that Python, but for what it would read of the environment.
env > "$NOTES.env"
echo uv >> "$NOTES.env"
exec "$FAKE" -m "$@"
