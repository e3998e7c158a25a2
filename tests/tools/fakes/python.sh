#!/usr/bin/env bash
# In the place of Python: makes environments that hold itself, and notes what pip is asked for.
case "$*" in
    '-m venv '*) mkdir -p "$3/bin"
                 if [ "${BREAK:-}" = venv ]; then touch "$3/pyvenv.cfg" "$3/half"; kill $$; fi
                 cp "$0" "$3/bin/python"; touch "$3/pyvenv.cfg" "$3/pip" ;;
    '-m pip --version') [ -e "$(dirname "$0")/../pip" ] ;;
    '-m ensurepip') [ -z "${NO_ENSUREPIP:-}" ] && touch "$(dirname "$0")/../pip" ;;
    '-m pip check') echo 'mmcv 2.3.6 requires opencv-python, which is not installed.'
                    echo 'twine 7.0.0 requires keyring, which is not installed.'
                    [ "${BREAK:-}" != check ] || echo 'a 1.0 requires b, which is not there'
                    exit 1 ;;
    '-m pip '*) shift 2; echo "$*" >> "$NOTES"
                if [ -n "${OFFLINE:-}" ]; then
                    echo 'WARNING: Retrying after NewConnectionError: Network is unreachable'
                    echo 'ERROR: No matching distribution found for torch'; exit 1
                fi
                case "$*" in *"${BREAK:-nothing}"*) echo 'ERROR: no disk'; exit 1 ;; esac ;;
    *) exec "$REAL" "$@" ;;
esac
