"""See paddock_fetch."""
from paddock_fetch import *  # noqa: F403
