// Calls itself at random and throws at random, through calls of one signature that
// are nested in each other. Nothing of a C library is needed.
typedef unsigned int u32;
static u32 state, guards;
static u32 draw() { return (state = state * 1664525u + 1013904223u) >> 8; }
struct guard {
	guard() { guards++; }
	~guard() { guards--; }
};
static u32 descend(u32 depth);
static u32 (*volatile next)(u32) = descend;
static u32 descend(u32 depth)
{
	volatile u32 kept[8];
	for (u32 i = 0; i < 8; i++) kept[i] = depth + i;
	guard g;
	u32 sum = 0;
	try {
		if (depth == 0 || draw() % 16 == 0) throw draw() % 1000;
		sum = next(depth - 1);
		if (draw() % 8 == 0) sum += next(depth / 2);
	} catch (u32 v) {
		if (draw() % 2 && depth < 30) throw v + 1;
		sum = v;
	}
	for (u32 i = 0; i < 8; i++) if (kept[i] != depth + i) __builtin_trap();
	return sum + depth;
}
extern "C" u32 run(u32 seed)
{
	u32 sum = 0;
	state = seed;
	for (int i = 0; i < 20; i++) {
		try { sum = sum * 31 + next(30); } catch (u32 v) { sum ^= v; }
		if (guards != 0) __builtin_trap();
	}
	return sum;
}
