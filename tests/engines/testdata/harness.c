// Runs translated modules with the runtime that the guests have, by commands
// on the standard input, a line each; names are an x and then hexadecimal:
//
//	new SLOT MODULE           instantiates a module
//	register SLOT NAME        what it exports can be imported from NAME
//	call SLOT EXPORT WORD...  calls a function
//	get SLOT EXPORT           reads a global
//	memory SLOT               the pages of its memory, and a digest
//
// An answer is one line: "ok WORD...", "trap NUMBER", "killed" or "error TEXT".
// A line "ask MODULE NAME WORD..." goes before for each call of a function that
// no module has registered; such a function gives zeros.
#define _GNU_SOURCE
#include "guest.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// An index and an offset of 32 bits each, and what is accessed there.
#define RESERVATION ((8ull << 30) + 65536)
#define MOST_PAGES 65535
#define SLOTS 4096
#define DEEP 256
#define PATIENCE_MS 300 // of processor time

extern const struct pd_shared { const char *name, *type; void *(*at)(void *instance); } *const pd_shared[];

struct slot {
  pd_guest *guest;
  const struct pd_module *module;
  const struct pd_shared *shared;
  struct pd_module deferred; // the same, but for its instantiation
};
static struct slot slots[SLOTS];
static struct { char *name; struct slot *slot; } registered[64];
static int registrations;

static struct slot *find_registered(const char *name) {
  for (int i = registrations - 1; i >= 0; i--)
    if (!strcmp(registered[i].name, name)) return registered[i].slot;
  return 0;
}

static const struct pd_export *find_export(struct slot *s, const char *name) {
  for (const struct pd_export *e = s->module->exports; e->name; e++)
    if (!strcmp(e->name, name)) return e;
  return 0;
}

static const struct pd_shared *find_shared(struct slot *s, const char *name) {
  for (const struct pd_shared *e = s->shared; e->name; e++)
    if (!strcmp(e->name, name)) return e;
  return 0;
}

static void print_words(const uint64_t *words, int n) {
  for (int i = 0; i < n; i++) printf(" %llx", (unsigned long long)words[i]);
  putchar('\n');
}

static void print_hex(const char *s) {
  printf(" x");
  for (; *s; s++) printf("%02x", (unsigned char)*s);
}

// ---- calls

// Whoever runs too long is killed, with all that it was called by.
static pd_guest *volatile calls[DEEP];
static volatile int deep;
static volatile long long began; // ms; 0: nothing runs

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1 + t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void *watch(void *unused) {
  for (;; usleep(5000)) {
    long long since = began;
    if (since && now() - since > PATIENCE_MS)
      for (int i = deep - 1; i >= 0; i--) pd_kill(calls[i]);
  }
  return unused;
}

static enum pd_status run(struct slot *s, const struct pd_export *e);

// ask serves an import; when it ends the guest, the status is another.
static enum pd_status ask(pd_guest *g, uint64_t *words) {
  const struct pd_import *i = &pd_imports[g->call];
  struct slot *s = find_registered(i->module);
  const struct pd_export *e = s ? find_export(s, i->name) : 0;
  if (!e) {
    printf("ask");
    print_hex(i->module);
    print_hex(i->name);
    print_words(words, i->params);
    memset(words, 0, sizeof g->args);
    return PD_DONE;
  }
  memcpy(s->guest->args, words, sizeof g->args);
  enum pd_status status = run(s, e);
  memcpy(words, s->guest->args, sizeof g->args);
  if (status == PD_TRAPPED) g->call = s->guest->call;
  return status;
}

static uint64_t grow(struct slot *s, uint64_t delta) {
  wasm_rt_memory_t *m = s->module->memory(s->guest->instance);
  uint32_t old = m->pages;
  if (delta > MOST_PAGES - old || mprotect(m->data + old * 65536ull, delta * 65536, PROT_READ | PROT_WRITE)) return UINT32_MAX;
  pd_resized(s->guest, old + delta);
  return old;
}

static enum pd_status run(struct slot *s, const struct pd_export *e) {
  pd_guest *g = s->guest;
  void *waiting = g->guest_sp;
  g->killed = 0;
  if (deep == DEEP) {
    g->call = WASM_RT_TRAP_EXHAUSTION;
    return PD_TRAPPED;
  }
  calls[deep] = g;
  deep++;
  enum pd_status status = pd_call(g, e);
  while (status == PD_ASKS || status == PD_GROWS) {
    void *at = g->guest_sp;
    if (status == PD_GROWS) {
      g->args[0] = grow(s, g->args[0]);
    } else if (g->call >= 0) { // else it only has to be entered anew
      uint64_t words[sizeof g->args / 8];
      memcpy(words, g->args, sizeof words);
      enum pd_status served = ask(g, words);
      memcpy(g->args, words, sizeof words);
      if (served != PD_DONE) {
        status = served;
        break;
      }
    }
    g->guest_sp = at;
    if (g->killed) {
      status = PD_KILLED;
      break;
    }
    status = pd_resume(g);
  }
  deep--;
  g->guest_sp = waiting;
  return status;
}

static void call(struct slot *s, const struct pd_export *e, int results) {
  began = now();
  enum pd_status status = run(s, e);
  began = 0;
  if (status == PD_TRAPPED)
    printf("trap %d\n", s->guest->call);
  else if (status == PD_KILLED)
    puts("killed");
  else {
    printf("ok");
    print_words(s->guest->args, results);
  }
}

// ---- instances

static void later(void *instance, pd_guest *g) {}

static void instantiate(void *instance, uint64_t *args) {
  struct slot *s = (struct slot *)args[0];
  s->module->instantiate(instance, s->guest);
}

static void make(struct slot *s, const char *name) {
  int n = 0;
  while (pd_modules[n] && strcmp(pd_modules[n]->name, name)) n++;
  if (!pd_modules[n]) {
    puts("error no such module");
    return;
  }
  s->module = pd_modules[n];
  s->shared = pd_shared[n];
  s->deferred = *s->module;
  s->deferred.instantiate = later;
  uint8_t *memory = mmap(0, RESERVATION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, s->module->pages * 65536ull, PROT_READ | PROT_WRITE)) {
    puts("error no memory");
    return;
  }
  s->guest = pd_new(&s->deferred, memory, RESERVATION, s->module->pages, MOST_PAGES);
  s->guest->args[0] = (uint64_t)(uintptr_t)s;
  // On the guest's own stack, since its start may trap.
  static const struct pd_export start = {"", instantiate, 0, 0};
  call(s, &start, 0);
}

// pd_given is what is imported beside functions.
void *pd_given(pd_guest *g, const char *module, const char *name) {
  static uint32_t global_i32 = 666;
  static uint64_t global_i64 = 666;
  static float global_f32 = 666.6f;
  static double global_f64 = 666.6;
  static wasm_rt_memory_t memory;
  static wasm_rt_funcref_table_t table;
  void *given = 0;
  int is_memory = 0;
  struct slot *s = find_registered(module);
  if (s) {
    const struct pd_shared *e = find_shared(s, name);
    // A table holds functions that only its own module can call.
    if (e && !strstr(e->type, "_table_t")) given = e->at(s->guest->instance), is_memory = !strcmp(e->type, "wasm_rt_memory_t*");
  } else if (!strcmp(module, "spectest")) {
    if (!strcmp(name, "global_i32")) given = &global_i32;
    if (!strcmp(name, "global_i64")) given = &global_i64;
    if (!strcmp(name, "global_f32")) given = &global_f32;
    if (!strcmp(name, "global_f64")) given = &global_f64;
    if (!strcmp(name, "memory")) {
      if (!memory.data) {
        memory = (wasm_rt_memory_t){mmap(0, RESERVATION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), 1, 2, 65536};
        mprotect(memory.data, 65536, PROT_READ | PROT_WRITE);
      }
      given = &memory, is_memory = 1;
    }
    if (!strcmp(name, "table")) {
      if (!table.data) wasm_rt_allocate_funcref_table(&table, 10, 20);
      given = &table;
    }
  }
  if (!given) wasm_rt_trap(0); // it cannot be linked
  if (is_memory) {
    g->memory = ((wasm_rt_memory_t *)given)->data;
    pd_ask(g, -1); // what is in %gs is set when a guest is entered
  }
  return given;
}

// ---- tables, as our guests have none

#define TABLES(type)                                                                                                       \
  uint32_t wasm_rt_grow_##type##_table(wasm_rt_##type##_table_t *t, uint32_t delta, wasm_rt_##type##_t init) {             \
    uint32_t old = t->size;                                                                                                \
    if ((uint64_t)old + delta > t->max_size || (uint64_t)old + delta > 10000000) return UINT32_MAX;                        \
    void *data = realloc(t->data, (old + delta + 1ull) * sizeof *t->data);                                                 \
    if (!data) return UINT32_MAX;                                                                                          \
    t->data = data;                                                                                                        \
    t->size = old + delta;                                                                                                 \
    for (uint32_t i = old; i < t->size; i++) t->data[i] = init;                                                            \
    return old;                                                                                                            \
  }
TABLES(funcref)
TABLES(externref)

void wasm_rt_allocate_externref_table(wasm_rt_externref_table_t *t, uint32_t n, uint32_t max) {
  *t = (wasm_rt_externref_table_t){calloc(n + 1, sizeof *t->data), max, n};
}
void wasm_rt_free_externref_table(wasm_rt_externref_table_t *t) { free(t->data); }

// ---- commands

static char *unhex(char *s) {
  if (!s || !*s) return "";
  char *to = s, *from = s + 1;
  for (unsigned c; sscanf(from, "%2x", &c) == 1; from += 2) *to++ = c;
  *to = 0;
  return s;
}

static void get(struct slot *s, const char *name) {
  const struct pd_shared *e = find_shared(s, name);
  uint64_t word = 0;
  if (!e) {
    puts("error no such export");
    return;
  }
  void *at = e->at(s->guest->instance);
  if (!strcmp(e->type, "u32*") || !strcmp(e->type, "f32*"))
    word = *(uint32_t *)at;
  else if (!strcmp(e->type, "wasm_rt_funcref_t*"))
    word = (uint64_t)(uintptr_t)((wasm_rt_funcref_t *)at)->func;
  else
    word = *(uint64_t *)at;
  printf("ok");
  print_words(&word, 1);
}

static void memory(struct slot *s) {
  uint64_t words[2] = {0, 14695981039346656037u}; // FNV-1a
  if (s->module->memory) {
    wasm_rt_memory_t *m = s->module->memory(s->guest->instance);
    words[0] = m->pages;
    for (uint64_t i = 0; i < m->size; i++) words[1] = (words[1] ^ m->data[i]) * 1099511628211u;
  }
  printf("ok");
  print_words(words, 2);
}

static void obey(char *line) {
  char *what = strtok(line, " \n"), *number = strtok(0, " \n"), *name = strtok(0, " \n");
  struct slot *s = &slots[number ? atoi(number) % SLOTS : 0];
  if (!what || !number) {
    puts("error not understood");
  } else if (!strcmp(what, "new")) {
    make(s, unhex(name));
  } else if (!s->guest) {
    puts("error no such instance");
  } else if (!strcmp(what, "register")) {
    registered[registrations].name = strdup(unhex(name));
    registered[registrations++].slot = s;
    puts("ok");
  } else if (!strcmp(what, "call")) {
    const struct pd_export *e = find_export(s, unhex(name));
    int n = 0;
    for (char *w; (w = strtok(0, " \n"));) s->guest->args[n++] = strtoull(w, 0, 16);
    if (!e || e->params != n)
      puts("error no such export");
    else
      call(s, e, e->result);
  } else if (!strcmp(what, "get")) {
    get(s, unhex(name));
  } else {
    memory(s);
  }
}

int main(void) {
  // A guest that has used its stack up leaves none for a signal.
  stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};
  pthread_t watcher;
  if (pd_start() || sigaltstack(&other, 0) || pthread_create(&watcher, 0, watch, 0)) return 1;
  char *line = 0;
  size_t size = 0;
  while (getline(&line, &size, stdin) > 0) {
    deep = 0;
    obey(line);
    fflush(stdout);
  }
  return 0;
}
