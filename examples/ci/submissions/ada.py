"""Does what was asked: the sum of the numbers."""
import sys

print(sum(int(line) for line in sys.stdin))
