// Runs the entry over a launch read from a file: grid and threadgroup, the number of arguments, then the
// length and the bytes of each argument. Then writes all arguments and the bounds report to another file.
static const int EMU_GUARD = 256;
// An argument between guard bytes, which must stay unchanged.
struct emu_arg {
  std::vector<unsigned char> bytes;
  unsigned long long len;
  explicit emu_arg(unsigned long long n) : bytes(n + 2 * EMU_GUARD, 0xab), len(n) {}
  unsigned char* data() { return bytes.data() + EMU_GUARD; }
  bool is_whole() const {
    for (int i = 0; i < EMU_GUARD; i++) {
      if (bytes[i] != 0xab || bytes[bytes.size() - 1 - i] != 0xab) return false;
    }
    return true;
  }
};
static std::vector<emu_arg> emu_args;
static unsigned long long emu_report[4];
static launch_grid emu_threads;
static void emu_entry() {
  EMU_CALL;
  emu_fibers[emu_current].done = true;
  swapcontext(&emu_fibers[emu_current].context, &emu_scheduler);
}
static int emu_fail(const char* why) {
  printf("%s in block %u %u %u:", why, emu_block.x, emu_block.y, emu_block.z);
  for (size_t i = 0; i < emu_fibers.size(); i++) {
    const emu_fiber& f = emu_fibers[i];
    if (!f.done) printf(" %zu waits %d mask %x;", i, f.wait, f.mask);
  }
  printf("\n");
  return 3;
}
// Resumes the lanes of a complete warp-level operation. Returns 0 if none is complete, 2 if one can never be.
static int emu_release(int n) {
  for (int i = 0; i < n; i++) {
    const emu_fiber f = emu_fibers[i];
    if (f.done || f.wait < EMU_BALLOT) continue;
    const int base = i & ~31;
    unsigned ballot = 0;
    bool all = true;
    for (int l = 0; l < 32; l++) {
      if (!(f.mask >> l & 1u)) continue;
      if (base + l >= n || emu_fibers[base + l].done) return 2;
      const emu_fiber& o = emu_fibers[base + l];
      all = all && o.wait == f.wait && o.mask == f.mask;
      if (o.value) ballot |= 1u << l;
    }
    if (!all) continue;
    for (int l = 0; l < 32; l++) {
      if (!(f.mask >> l & 1u)) continue;
      emu_fiber& o = emu_fibers[base + l];
      const bool there = f.mask >> o.source & 1u;
      o.answer = f.wait == EMU_BALLOT ? ballot : there ? emu_fibers[base + o.source].value : 0xdeadbeefu;
    }
    for (int l = 0; l < 32; l++) {
      if (f.mask >> l & 1u) emu_fibers[base + l].wait = EMU_RUNS;
    }
    return 1;
  }
  return 0;
}
static int emu_run_block(std::mt19937& random) {
  const int n = blockDim.x * blockDim.y * blockDim.z;
  emu_fibers.clear();
  emu_fibers.resize(n);
  for (int i = 0; i < n; i++) {
    emu_fiber& f = emu_fibers[i];
    f.stack.resize(1 << 17);
    f.place = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = &emu_scheduler;
    makecontext(&f.context, emu_entry, 0);
  }
  for (;;) {
    std::vector<int> ready;
    int alive = 0, waiting = 0;
    for (int i = 0; i < n; i++) {
      if (emu_fibers[i].done) continue;
      alive++;
      waiting += emu_fibers[i].wait == EMU_BARRIER;
      if (emu_fibers[i].wait == EMU_RUNS) ready.push_back(i);
    }
    if (alive == 0) return 0;
    if (!ready.empty()) {
      emu_current = ready[random() % ready.size()];
      swapcontext(&emu_scheduler, &emu_fibers[emu_current].context);
      continue;
    }
    if (waiting == alive) {
      for (emu_fiber& f : emu_fibers) f.wait = EMU_RUNS;
      continue;
    }
    const int released = emu_release(n);
    if (released == 2) return emu_fail("a mask names a lane that has ended");
    if (released == 0) return emu_fail("deadlock");
  }
}
int main(int, char** argv) {
  FILE* file = fopen(argv[1], "rb");
  unsigned long long head[7], length;
  if (!file || fread(head, 8, 7, file) != 7) return 4;
  for (unsigned long long i = 0; i < head[6]; i++) {
    if (fread(&length, 8, 1, file) != 1) return 4;
    emu_args.emplace_back(length);
    if (fread(emu_args.back().data(), 1, length, file) != length) return 4;
  }
  fclose(file);
  emu_threads = {head[0], head[1], head[2]};
  blockDim = {(unsigned)head[3], (unsigned)head[4], (unsigned)head[5]};
  gridDim = {(unsigned)groups_along(head[0], blockDim.x), (unsigned)groups_along(head[1], blockDim.y),
             (unsigned)groups_along(head[2], blockDim.z)};
  std::mt19937 random(12345);
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++) {
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++) {
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
        if (int bad = emu_run_block(random)) return bad;
      }
    }
  }
  file = fopen(argv[2], "wb");
  if (!file) return 4;
  for (auto& arg : emu_args) {
    if (!arg.is_whole()) return emu_fail("a write past the end of an argument");
    fwrite(arg.data(), 1, arg.len, file);
  }
  fwrite(emu_report, 8, 4, file);
  return fclose(file) == 0 ? 0 : 4;
}
