"""Learning: hears what is searched and called, and lifts in search what its caller means by such words.

conversation (which call followed which search) → lesson (the batch since the last write) → learner (memory and disk)
"""

from portico.learning.learner import Learner

__all__ = ["Learner"]
