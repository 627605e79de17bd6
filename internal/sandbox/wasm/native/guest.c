//go:build native

#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <asm/prctl.h>
#endif

// Five times what the deepest recursion takes that CPython and QuickJS allow
// (6.2 MiB, nested expressions in QuickJS); only what is touched costs memory.
#define STACK_SIZE (32u << 20)
#define STACK_GUARD (1u << 20)

static const struct pd_module *module_of(pd_guest *g);

static __thread pd_guest *running __attribute__((tls_model("initial-exec")));

// The compiler may not keep the address of a thread's variable across a switch.
__attribute__((noinline)) static pd_guest *current(void) { __asm__ volatile(""); return running; }
__attribute__((noinline)) static void set_current(pd_guest *g) { running = g; __asm__ volatile(""); }

// ---- switching stacks

// pd_switch saves where it is in *save and goes on at to. pd_land is its second
// half, where a signal's handler sends a thread whose stack pointer is to.
void pd_switch(void **save, void *to);
void pd_land(void);

#if defined(__x86_64__)
__asm__(
    ".text\n.globl pd_switch\n.hidden pd_switch\n.globl pd_land\n.hidden pd_land\n"
    ".type pd_switch,@function\npd_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp,(%rdi)\n  movq %rsi,%rsp\n"
    "pd_land:\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size pd_switch,.-pd_switch\n");
#define SAVED 7 // words: six registers and where to return
#define UC_SP(u) ((u)->uc_mcontext.gregs[REG_RSP])
#define UC_PC(u) ((u)->uc_mcontext.gregs[REG_RIP])
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl pd_switch\n.hidden pd_switch\n.globl pd_land\n.hidden pd_land\n"
    ".type pd_switch,%function\npd_switch:\n"
    "  sub sp,sp,#160\n"
    "  stp x19,x20,[sp,#0]\n  stp x21,x22,[sp,#16]\n  stp x23,x24,[sp,#32]\n  stp x25,x26,[sp,#48]\n"
    "  stp x27,x28,[sp,#64]\n  stp x29,x30,[sp,#80]\n  stp d8,d9,[sp,#96]\n  stp d10,d11,[sp,#112]\n"
    "  stp d12,d13,[sp,#128]\n  stp d14,d15,[sp,#144]\n"
    "  mov x9,sp\n  str x9,[x0]\n  mov sp,x1\n"
    "pd_land:\n"
    "  ldp x19,x20,[sp,#0]\n  ldp x21,x22,[sp,#16]\n  ldp x23,x24,[sp,#32]\n  ldp x25,x26,[sp,#48]\n"
    "  ldp x27,x28,[sp,#64]\n  ldp x29,x30,[sp,#80]\n  ldp d8,d9,[sp,#96]\n  ldp d10,d11,[sp,#112]\n"
    "  ldp d12,d13,[sp,#128]\n  ldp d14,d15,[sp,#144]\n"
    "  add sp,sp,#160\n  ret\n"
    ".size pd_switch,.-pd_switch\n");
#define SAVED 20
#define UC_SP(u) ((u)->uc_mcontext.sp)
#define UC_PC(u) ((u)->uc_mcontext.pc)
#else
#error "the native engine knows amd64 and arm64"
#endif

// leave hands the thread back to the host; it returns when the host resumes.
static void leave(pd_guest *g, enum pd_status status) {
  g->status = status;
  void *host = g->host_sp;
  pd_switch(&g->guest_sp, host);
}

// begin is where a call into a guest starts, on the guest's stack.
static void begin(void) {
  pd_guest *g = current();
  g->export->call(g->instance, g->args);
  leave(g, PD_DONE);
  __builtin_trap(); // a call that is done is not resumed
}

#if defined(__x86_64__)
static int has_fsgsbase; // never with PD_NO_FSGSBASE, for the tests
static void set_base(pd_guest *g) {
  if (has_fsgsbase)
    __asm__ volatile("wrgsbase %0" ::"r"(g->memory));
  else if (syscall(SYS_arch_prctl, ARCH_SET_GS, g->memory))
    abort(); // without it a guest's address would be the worker's
}
#else
static void set_base(pd_guest *g) { (void)g; }
#endif

static enum pd_status enter(pd_guest *g, void *to) {
  static __thread int tid; // asking the kernel each time costs more than the rest
  if (!tid) tid = (int)syscall(SYS_gettid);
  set_base(g);
  set_current(g);
  __atomic_store_n(&g->tid, tid, __ATOMIC_SEQ_CST);
  pd_switch(&g->host_sp, to);
  __atomic_store_n(&g->tid, 0, __ATOMIC_SEQ_CST);
  set_current(0);
  return g->status;
}

enum pd_status pd_call(pd_guest *g, const struct pd_export *export) {
  // A call from within a call begins below it.
  uintptr_t top = (uintptr_t)(g->guest_sp ? g->guest_sp : g->stack + g->stack_size);
  void **sp = (void **)((top - 256) & ~(uintptr_t)63);
  if ((uintptr_t)sp < (uintptr_t)g->stack + (64 << 10)) {
    g->call = WASM_RT_TRAP_EXHAUSTION;
    return PD_TRAPPED;
  }
  g->export = export;
#if defined(__x86_64__)
  *--sp = 0; // where begin would return to, and what aligns its frame
  *--sp = (void *)begin;
  sp -= SAVED - 1;
  memset(sp, 0, (SAVED - 1) * sizeof *sp);
#else
  sp -= SAVED;
  memset(sp, 0, SAVED * sizeof *sp);
  sp[11] = (void *)begin; // x30
#endif
  return enter(g, sp);
}

enum pd_status pd_resume(pd_guest *g) { return enter(g, g->guest_sp); }

void pd_ask(pd_guest *g, int import) {
  g->call = import;
  leave(g, PD_ASKS);
}

// ---- traps


static struct sigaction before[65];
static int kill_signal;

// outside tells whether the thread is not on its guest's stack: it is on its
// way in or out, and has nothing that could be left.
static int outside(pd_guest *g, ucontext_t *u) {
  uintptr_t sp = (uintptr_t)UC_SP(u), low = (uintptr_t)g->stack - STACK_GUARD;
  return sp < low || sp > (uintptr_t)g->stack + g->stack_size;
}

static void land(pd_guest *g, ucontext_t *u, enum pd_status status, int call) {
  g->status = status;
  g->call = call;
  UC_SP(u) = (uintptr_t)g->host_sp;
  UC_PC(u) = (uintptr_t)pd_land;
}

static void on_signal(int sig, siginfo_t *info, void *context) {
  pd_guest *g = running;
  ucontext_t *u = context;
  if (sig == kill_signal) {
    if (g && __atomic_load_n(&g->killed, __ATOMIC_SEQ_CST) && !outside(g, u)) land(g, u, PD_KILLED, 0);
    return;
  }
  uintptr_t at = (uintptr_t)info->si_addr;
  if (g && !outside(g, u) && info->si_code > 0) {
    if (at - (uintptr_t)g->memory < g->reservation) {
      land(g, u, PD_TRAPPED, WASM_RT_TRAP_OOB);
      return;
    }
    if (at - ((uintptr_t)g->stack - STACK_GUARD) < STACK_GUARD) {
      land(g, u, PD_TRAPPED, WASM_RT_TRAP_EXHAUSTION);
      return;
    }
  }
  // It is not the guest's: the host's own handler says what that means.
  struct sigaction *b = &before[sig];
  if (b->sa_flags & SA_SIGINFO)
    b->sa_sigaction(sig, info, context);
  else if (b->sa_handler != SIG_DFL && b->sa_handler != SIG_IGN)
    b->sa_handler(sig);
  else
    signal(sig, SIG_DFL); // it comes again
}

void pd_kill(pd_guest *g) {
  __atomic_store_n(&g->killed, 1, __ATOMIC_SEQ_CST);
  int tid = __atomic_load_n(&g->tid, __ATOMIC_SEQ_CST);
  if (tid) syscall(SYS_tgkill, getpid(), tid, kill_signal);
}

int pd_start(void) {
#if defined(__x86_64__) && !defined(PD_NO_FSGSBASE)
  has_fsgsbase = getauxval(AT_HWCAP2) >> 1 & 1;
#endif
  kill_signal = SIGRTMAX - 3;
  struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigfillset(&a.sa_mask);
  int signals[] = {SIGSEGV, SIGBUS, kill_signal};
  for (int i = 0; i < 3; i++)
    if (sigaction(signals[i], &a, &before[signals[i]])) return errno;
  for (int i = 0; pd_modules[i]; i++) pd_modules[i]->init();
  return 0;
}

// ---- instances

struct whole {
  pd_guest guest;
  const struct pd_module *module;
  uint64_t instance[]; // the module's own
};

static const struct pd_module *module_of(pd_guest *g) { return ((struct whole *)g)->module; }

static __thread struct { uint8_t *memory; uint32_t pages, max; } making;

pd_guest *pd_new(const struct pd_module *m, uint8_t *memory, uint64_t reservation, uint32_t pages, uint32_t max_pages) {
  struct whole *w = calloc(1, sizeof *w + m->size);
  if (!w) return 0;
  uint8_t *stack = mmap(0, STACK_GUARD + STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) {
    free(w);
    return 0;
  }
  if (mprotect(stack, STACK_GUARD, PROT_NONE)) {
    munmap(stack, STACK_GUARD + STACK_SIZE);
    free(w);
    return 0;
  }
  w->module = m;
  w->guest.memory = memory;
  w->guest.reservation = reservation;
  w->guest.stack = stack + STACK_GUARD;
  w->guest.stack_size = STACK_SIZE;
  w->guest.instance = w->instance;
  making.memory = memory;
  making.pages = pages;
  making.max = max_pages;
  m->instantiate(w->instance, &w->guest);
  return &w->guest;
}

void pd_free(pd_guest *g) {
  module_of(g)->free(g->instance);
  munmap(g->stack - STACK_GUARD, STACK_GUARD + STACK_SIZE);
  free(g);
}

void pd_resized(pd_guest *g, uint32_t pages) {
  wasm_rt_memory_t *m = module_of(g)->memory(g->instance);
  m->pages = pages;
  m->size = pages * 65536;
}

uint32_t pd_stack_pointer(pd_guest *g) { return *module_of(g)->stack_pointer(g->instance); }
void pd_set_stack_pointer(pd_guest *g, uint32_t v) { *module_of(g)->stack_pointer(g->instance) = v; }

// ---- what the translation asks of its runtime

bool wasm_rt_is_initialized(void) { return true; }

void wasm_rt_trap(wasm_rt_trap_t trap) {
  pd_guest *g = current();
  g->call = trap;
  leave(g, PD_TRAPPED);
  __builtin_trap();
}

void wasm_rt_allocate_memory(wasm_rt_memory_t *m, uint32_t pages, uint32_t max) {
  (void)pages;
  m->data = making.memory;
  m->pages = making.pages;
  m->size = making.pages * 65536;
  m->max_pages = making.max < max ? making.max : max;
}

void wasm_rt_free_memory(wasm_rt_memory_t *m) { (void)m; } // it is the host's

// Only the host can make pages of the reservation usable.
uint32_t wasm_rt_grow_memory(wasm_rt_memory_t *m, uint32_t delta) {
  uint32_t old = m->pages;
  if ((uint64_t)old + delta > m->max_pages) delta = UINT32_MAX; // so that the host hears of it
  pd_guest *g = current();
  g->args[0] = delta;
  leave(g, PD_GROWS);
  return (uint32_t)g->args[0];
}

void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t *t, uint32_t n, uint32_t max) {
  t->size = n;
  t->max_size = max;
  t->data = calloc(n, sizeof *t->data);
  if (!t->data) abort();
}

void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t *t) { free(t->data); }

// Types are the same if they look the same, in whichever guest.
uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...) {
  enum { MOST = 512, WIDE = 104 };
  static struct { uint32_t params, results; int types[WIDE]; } known[MOST];
  static uint32_t count;
  if (params + results > WIDE) abort();
  int types[WIDE] = {0};
  va_list list;
  va_start(list, results);
  for (uint32_t i = 0; i < params + results; i++) types[i] = va_arg(list, int);
  va_end(list);
  for (uint32_t i = 0; i < count; i++)
    if (known[i].params == params && known[i].results == results && !memcmp(known[i].types, types, sizeof types)) return i + 1;
  if (count == MOST) abort();
  known[count].params = params;
  known[count].results = results;
  memcpy(known[count].types, types, sizeof types);
  return ++count;
}
