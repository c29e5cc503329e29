"""Drives a scan as a run does."""


def run_to_end(scan, dispatcher, clock):
    """Pump until it is finished; who waits for the time of a next try has it pass."""
    while not scan.finished:
        scan.pump()
        if dispatcher.in_flight:
            dispatcher.step(0)
        elif not scan.finished:
            assert scan.retrying, "it hangs"
            clock.sleep(0.5)
