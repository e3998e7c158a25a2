"""Calls of one model from several threads, which switch often."""
import sys
import threading


def in_threads(run, inputs, *, threads=4, times=10):
    """What ``run`` gives for each input, called by each thread with one of the inputs: pairs of the
    number of the input and the result, which is an exception if it raised one."""
    found = []

    def work(number):
        for _ in range(times):
            try:
                found.append((number, run(inputs[number])))
            except Exception as error:  # an error in a thread must fail the test
                found.append((number, error))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        workers = [threading.Thread(target=work, args=(number % len(inputs),))
                   for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == threads * times
    return found
