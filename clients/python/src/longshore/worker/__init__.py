"""The worker.

- `worker.py`: the public class
- `run.py`: claims and the drain of one run
- `settling.py`, `settlements.py`: outcomes on their way to the server
- `keeper.py`: heartbeats and deadlines, in a thread
- `handling.py`, `batch.py`, `threads.py`: run handlers
- `slots.py`, `held.py`, `clock.py`: state of a run
- `signals.py`: drain, release all, exit
"""
