"""Training: integers of all sizes, floats, decimals, fractions, random numbers."""
import cmath
import decimal
import fractions
import math
import random
import statistics

random.seed(20250101)


def mandelbrot(size):
    inside = 0
    for row in range(size):
        for column in range(size):
            c, z, n = complex(column / size * 3 - 2, row / size * 2 - 1), 0j, 0
            while abs(z) < 2 and n < 20:
                z, n = z * z + c, n + 1
            inside += n == 20
    return inside


def heat(size, rounds):
    rod = [0.0] * size
    rod[size // 2] = 100.0
    for _ in range(rounds):
        rod = [rod[0]] + [rod[i] + 0.2 * (rod[i - 1] - 2 * rod[i] + rod[i + 1]) for i in range(1, size - 1)] + [rod[-1]]
    return sum(rod)


def matrices(n):
    a = [[random.random() for _ in range(n)] for _ in range(n)]
    b = list(zip(*a))
    product = [[sum(x * y for x, y in zip(row, column)) for column in b] for row in a]
    for i in range(n):  # Gauss
        pivot = product[i][i]
        for j in range(i + 1, n):
            factor = product[j][i] / pivot
            for k in range(i, n):
                product[j][k] -= factor * product[i][k]
    return math.prod(product[i][i] for i in range(n))


def projectile():
    x, y, vx, vy, t = 0.0, 0.0, 40.0, 60.0, 0.0
    while y >= 0:
        speed = math.sqrt(vx * vx + vy * vy)
        vx -= 0.002 * speed * vx * 0.01
        vy -= (9.81 + 0.002 * speed * vy) * 0.01
        x, y, t = x + vx * 0.01, y + vy * 0.01, t + 0.01
    return round(x, 3), round(t, 2)


def whole(rounds):
    total = 0
    for i in range(rounds):
        total += i * 3 - i // 7 + (i << 2) % 11 ^ i & 255 | i >> 3
        total = -total if total % 5 == 0 else abs(total)
    return total, math.gcd(123456, 7890), math.comb(60, 30), divmod(-17, 5), (255).bit_length(), int("ff", 16), hex(total)


def large():
    product = math.factorial(400)
    assert sum(map(int, str(product))) % 9 == 0
    a, b = 3 ** 700, 7 ** 500
    checks = (a * b) // a == b, (a + b) - a == b, pow(5, a, 10 ** 40 + 7), math.isqrt(a), a % 1000003, a >> 100, a & b, a | b, a ^ b
    modulus, base = 2 ** 127 - 1, 3
    for _ in range(200):
        base = base * base % modulus
    text = str(a)
    n, x = 2 * 10 ** 120, 10 ** 60
    while True:  # the square root of two
        y = (x + n // x) // 2
        if y >= x:
            break
        x = y
    return checks, base, int(text) == a, str(x), float(a >> 500), a.to_bytes(200, "big"), int.from_bytes(b"1234567890" * 9, "little")


def digits_of_pi(count):
    q, r, t, k, m, x = 1, 0, 1, 1, 3, 3
    digits = []
    while len(digits) < count:
        if 4 * q + r - t < m * t:
            digits.append(m)
            q, r, m = 10 * q, 10 * (r - m * t), (10 * (3 * q + r)) // t - 10 * m
        else:
            q, r, t, k, m, x = q * k, (2 * q + r) * x, t * x, k + 1, (q * (7 * k + 2) + r * x) // (t * x), x + 2
    return digits


def decimals():
    with decimal.localcontext() as context:
        context.prec = 40
        one = decimal.Decimal(1)
        harmonic = sum(one / n for n in range(1, 800))
        prices = [decimal.Decimal(f"{n}.{n % 100:02d}") for n in range(500)]
        total = sum(price * decimal.Decimal("1.19") for price in prices).quantize(decimal.Decimal("0.01"))
        return harmonic.sqrt(), total, harmonic.ln(), str(total), [f"{price:,.2f}" for price in prices[:100]]


def chances():
    dice = [random.randint(1, 6) + random.randint(1, 6) for _ in range(4000)]
    sample, deck = random.sample(range(1000), 100), list(range(52))
    random.shuffle(deck)
    picked = random.choices(["a", "b", "c"], weights=[5, 3, 1], k=500)
    bell = [random.gauss(10, 3) for _ in range(1500)]
    hits = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(8000))
    return (statistics.mean(dice), statistics.median(dice), statistics.mode(picked), statistics.stdev(bell), statistics.quantiles(bell),
            statistics.fmean(bell), statistics.linear_regression(range(100), bell[:100]), hits, sample, deck)


def functions():
    total = 0.0
    for i in range(1, 4000):
        x = i / 500
        total += math.sin(x) * math.cos(x) + math.exp(-x) + math.log(x) + math.atan2(x, 2) + math.hypot(x, 1) + x ** 0.5 + round(x, 2)
        total += math.floor(x) + math.ceil(x) - int(x) + (x > 3) + min(x, 2.0) + max(x, 1)
    texts = [f"{i / 7:.3f} {i / 7:10.2e} {i:>8d} {i:,} {i:08b} {i / 1000:.1%}" for i in range(1500)]
    return total, [float(t.split()[0]) for t in texts], [repr(i / 7) for i in range(1500)], cmath.sqrt(-2), math.fsum([0.1] * 10), math.isclose(0.1 + 0.2, 0.3)


for _ in range(3):
    mandelbrot(36), heat(120, 60), matrices(24), projectile(), whole(20000), large(), digits_of_pi(150), decimals(), chances(), functions()
    sum((fractions.Fraction(1, n) for n in range(1, 60)), fractions.Fraction(0))
