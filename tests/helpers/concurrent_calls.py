"""Calls of one model from several threads, which switch often."""
import sys
from concurrent.futures import ThreadPoolExecutor


def in_threads(run, inputs, *, threads=4, times=10):
    """What ``run`` gives for each input, called by each thread with one of the inputs: pairs of the
    number of the input and the result. An error in a thread is raised."""
    numbers = [number % len(inputs) for number in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(threads) as pool:
            results = pool.map(
                lambda number: [(number, run(inputs[number])) for _ in range(times)], numbers)
            return [pair for each in results for pair in each]
    finally:
        sys.setswitchinterval(interval)
