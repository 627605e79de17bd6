"""The best of all ways: for each weight, the best that can be packed of the things so far."""
best = {0: (0, [])}  # the value, and the things, by their weight
for weight, value in things:
    for total, (worth, taken) in list(best.items()):
        if total + weight <= room and best.get(total + weight, (-1,))[0] < worth + value:
            best[total + weight] = worth + value, taken + [(weight, value)]
_, packed = max(best.values())
print("exactly:   ", sum(value for _, value in packed))
