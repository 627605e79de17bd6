"""The things first that have the most value for their weight."""
packed, left = [], room
for weight, value in sorted(things, key=lambda t: -t[1] / t[0]):
    if weight <= left:
        packed.append((weight, value))
        left -= weight
print("by density:", sum(value for _, value in packed))
