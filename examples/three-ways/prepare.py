"""Things to pack into a bag that takes 500: each has a weight and a value."""
import random

random.seed(22)
things = [(random.randint(5, 60), random.randint(10, 100)) for _ in range(80)]
room = 500
print(len(things), "things of the weight", sum(weight for weight, _ in things))
