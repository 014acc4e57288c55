"""The worker.

- `worker.py`: the public class
- `run.py`: claims, settlements and the drain of one run
- `keeper.py`: heartbeats and deadlines, in a thread
- `handling.py`, `batch.py`, `threads.py`: run handlers
- `slots.py`, `held.py`, `settlements.py`, `clock.py`: state of a run
- `signals.py`: drain, release all, exit
"""
