"""The most valuable things first."""
packed, left = [], room
for weight, value in sorted(things, key=lambda t: -t[1]):
    if weight <= left:
        packed.append((weight, value))
        left -= weight
print("by value:  ", sum(value for _, value in packed))
