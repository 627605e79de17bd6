"""Training: the language itself: loops, calls, objects, generators, exceptions."""
import contextlib
import dataclasses
import enum
import functools
import operator


def primes(limit):
    sieve = bytearray([1]) * (limit + 1)
    sieve[0:2] = b"\0\0"
    for n in range(2, int(limit ** 0.5) + 1):
        if sieve[n]:
            sieve[n * n::n] = bytes(len(range(n * n, limit + 1, n)))
    return [n for n, flag in enumerate(sieve) if flag]


def collatz(limit):
    longest = (0, 0)
    for start in range(1, limit):
        n, steps = start, 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        longest = max(longest, (steps, start))
    return longest


def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


class Shape:
    count = 0

    def __init__(self, name, *sides):
        self.name, self.sides = name, sides
        Shape.count += 1

    @property
    def perimeter(self):
        return sum(self.sides)

    def area(self):
        raise NotImplementedError(self.name)

    def __lt__(self, other):
        return self.area() < other.area()

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r}, {self.area():.2f})"


class Box(Shape):
    def __init__(self, name, width, height):
        super().__init__(name, width, height, width, height)

    def area(self):
        return self.sides[0] * self.sides[1]


class Disc(Shape):
    def area(self):
        return 3.14159 * self.sides[0] ** 2

    @classmethod
    def unit(cls):
        return cls("unit", 1)


class Vector:
    __slots__ = ("x", "y", "z")

    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y, self.z + other.z)

    def __mul__(self, factor):
        return Vector(self.x * factor, self.y * factor, self.z * factor)

    def __eq__(self, other):
        return isinstance(other, Vector) and (self.x, self.y, self.z) == (other.x, other.y, other.z)

    def __hash__(self):
        return hash((self.x, self.y, self.z))

    def __iter__(self):
        yield from (self.x, self.y, self.z)

    @staticmethod
    def zero():
        return Vector(0, 0, 0)


@dataclasses.dataclass(order=True)
class Account:
    owner: str
    balance: int = 0
    log: list = dataclasses.field(default_factory=list, compare=False)

    def move(self, amount):
        if self.balance + amount < 0:
            raise ValueError(f"{self.owner} has only {self.balance}")
        self.balance += amount
        self.log.append(amount)


class Colour(enum.Enum):
    RED, GREEN, BLUE = 1, 2, 3


class Node:
    def __init__(self, key, value):
        self.key, self.value, self.left, self.right = key, value, None, None


class Tree:
    def __init__(self):
        self.root, self.size = None, 0

    def __setitem__(self, key, value):
        if self.root is None:
            self.root = Node(key, value)
        node = self.root
        while node.key != key:
            side = "left" if key < node.key else "right"
            following = getattr(node, side)
            if following is None:
                following = Node(key, value)
                setattr(node, side, following)
                self.size += 1
            node = following
        node.value = value

    def __iter__(self):
        def walk(node):
            if node is not None:
                yield from walk(node.left)
                yield node.key, node.value
                yield from walk(node.right)
        return walk(self.root)


def counted(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return function(*args, **kwargs)
    wrapper.calls = 0
    return wrapper


@counted
def describe(value, *rest, sep=", ", **named):
    match value:
        case int() | float() if value > 10:
            return "large"
        case [first, *others]:
            return f"{first}{sep}{len(others)}"
        case {"kind": kind, **more}:
            return f"{kind}:{len(more)}"
        case str() as text:
            return text.upper()
        case _:
            return repr(value)


@contextlib.contextmanager
def noted(log, name):
    log.append("enter " + name)
    try:
        yield len(log)
    finally:
        log.append("leave " + name)


def closures():
    adders = [lambda x, k=k: x + k for k in range(20)]
    total = 0

    def add(n):
        nonlocal total
        total += n
    for i in range(2000):
        add(adders[i % 20](i))
    return total


def errors():
    seen = {}
    for i in range(6000):
        try:
            if i % 4 == 0:
                raise ValueError(i)
            if i % 4 == 1:
                {}[i]
            if i % 4 == 2:
                [][i]
            int("x" if i % 3 else "7")
        except (KeyError, IndexError) as error:
            seen[type(error).__name__] = seen.get(type(error).__name__, 0) + 1
        except ValueError as error:
            try:
                raise RuntimeError("again") from error
            except RuntimeError as outer:
                seen[str(outer.__cause__)[:3]] = i
        else:
            seen["none"] = i
        finally:
            seen["last"] = i
    return len(seen)


def pipeline(n):
    def numbers():
        for i in range(n):
            got = yield i * i
            if got:
                yield got

    def odd(source):
        return (x for x in source if x % 2)
    squares = list(odd(numbers()))
    table = {x: [y for y in range(x % 7)] for x in squares}
    return sum(map(len, table.values())), {x % 10 for x in squares}, all(squares), any(x > 5 for x in squares)


def grid(size, rounds):
    cells = [[(x * y + x) % 3 == 0 for x in range(size)] for y in range(size)]
    for _ in range(rounds):
        fresh = []
        for y in range(size):
            row = []
            for x in range(size):
                near = sum(cells[(y + dy) % size][(x + dx) % size] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dx or dy)
                row.append(near == 3 or near == 2 and cells[y][x])
            fresh.append(row)
        cells = fresh
    return sum(map(sum, cells))


def knapsack(items, capacity):
    best = [0] * (capacity + 1)
    for weight, value in items:
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[-1]


def permutations(items):
    if len(items) <= 1:
        yield list(items)
        return
    for i, item in enumerate(items):
        for rest in permutations(items[:i] + items[i + 1:]):
            yield [item, *rest]


@functools.lru_cache(maxsize=None)
def ways(total, coins):
    if total == 0:
        return 1
    if total < 0 or not coins:
        return 0
    return ways(total - coins[0], coins) + ways(total, coins[1:])


def sorts(numbers):
    def quick(part):
        if len(part) < 2:
            return part
        pivot = part[len(part) // 2]
        return quick([x for x in part if x < pivot]) + [x for x in part if x == pivot] + quick([x for x in part if x > pivot])

    bubble = numbers[:120]
    for i in range(len(bubble)):
        for j in range(len(bubble) - 1 - i):
            if bubble[j] > bubble[j + 1]:
                bubble[j], bubble[j + 1] = bubble[j + 1], bubble[j]
    assert bubble == sorted(numbers[:120])
    assert quick(numbers) == sorted(numbers)
    by_text = sorted(numbers, key=str, reverse=True)
    pairs = sorted(zip(numbers, by_text), key=operator.itemgetter(1, 0))
    pairs.sort(key=lambda pair: (pair[0] % 10, pair[1]))
    return pairs[0], sorted(map(str, numbers))[0], sorted(x / 3 for x in numbers)[0]


def main():
    scattered = [i * 7919 % 10007 for i in range(6000)]
    for _ in range(3):
        primes(60000)
        collatz(1500)
        ackermann(2, 40)
        shapes = [Box(f"b{i}", i % 9 + 1, i % 5 + 1) if i % 3 else Disc(f"d{i}", i % 7) for i in range(1500)]
        sum(shape.perimeter for shape in shapes), min(shapes), sorted(shapes)[:3], repr(shapes[:50]), Disc.unit()
        position, seen = Vector.zero(), set()
        for i in range(4000):
            position = position + Vector(i, 1, -i) * 2
            seen.add(position)
        sum(x + y + z for x, y, z in seen)
        accounts = [Account(f"owner {i % 40}", i) for i in range(400)]
        for i, account in enumerate(accounts):
            with contextlib.suppress(ValueError):
                account.move(50 - i)
        sorted(accounts), dataclasses.replace(accounts[0], balance=1), dataclasses.asdict(accounts[1]), [c.name for c in Colour], Colour(2)
        tree = Tree()
        for n in scattered[:3000]:
            tree[n] = str(n)
        assert [key for key, _ in tree] == sorted(scattered[:3000])
        for i in range(1500):
            describe(i), describe([i, 2, 3], sep=";"), describe({"kind": "x", "n": i}), describe("text", 1, 2, a=3), describe(None)
        log = []
        for i in range(500):
            with noted(log, str(i)) as n:
                log[n - 1] += "!"
        closures(), errors(), pipeline(4000), grid(32, 4), knapsack([(i % 13 + 1, i * 7 % 31) for i in range(60)], 200)
        list(permutations("abcdef")), ways(120, (1, 2, 5, 10, 20, 50)), ways.cache_clear(), sorts(scattered)


main()
