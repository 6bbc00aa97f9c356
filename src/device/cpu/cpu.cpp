#include "device/cpu/cpu.h"

#include <hwy/highway.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/text.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/workspace.h"

namespace strata::device {

namespace cpu {
namespace {

/// Host copies and fills are split so that every core moves some; below this a second thread costs more than it gains.
constexpr int64_t copy_block = int64_t{1} << 20;

/// On x86 and most others; only decides when it is worth asking.
constexpr int64_t huge_page = int64_t{2} << 20;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

template <typename Move>
void in_blocks(int threads, int64_t bytes, const Move& move) {
  parallel_for(threads, divide_up(bytes, copy_block), 1, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * copy_block, to = std::min(end * copy_block, bytes);
    move(from, static_cast<size_t>(to - from));
  });
}

}  // namespace

int64_t page_bytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

void* map_pages(int64_t bytes, int protection) {
  void* address = mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    throw run_error(
        "cannot allocate {} of memory: {}; use a smaller micro-batch or model, more recompute, or more ranks",
        human_bytes(bytes), std::strerror(errno));
  // A help where large pages are given on request only; refusal costs nothing.
  if (bytes >= 2 * huge_page) (void)madvise(address, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return address;
}

DType check_floats(const ops::Op& op, Tensors tensors) {
  using ops::Kind;
  // Operands that are f32 whatever the compute type: bit i for the i-th.
  struct {
    unsigned in = 0, out = 0;
  } f32;
  switch (op.kind) {
    case Kind::layer_norm: f32 = {0, 0b110}; break;
    case Kind::layer_norm_backward: f32 = {0b11000, 0b110}; break;
    case Kind::rms_norm: f32 = {0, 0b10}; break;
    case Kind::rms_norm_backward: f32 = {0b1000, 0b10}; break;
    case Kind::rotary: f32 = {0b10, 0}; break;
    case Kind::attention: f32 = {0, 0b10}; break;
    case Kind::attention_backward: f32 = {0b1000, 0}; break;
    case Kind::cross_entropy: f32 = {0, 0b10}; break;
    case Kind::cross_entropy_backward: f32 = {0b10, 0}; break;
    case Kind::embedding_backward:
    case Kind::linear_backward_weight: f32 = {0, 0b11}; break;
    case Kind::grad_norm: f32 = {0b1, 0}; break;
    case Kind::adamw: f32 = {0b1, op.as<ops::AdamWAttributes>().block > 0 ? 0b11001u : 0b111u}; break;
    default: break;
  }
  const ops::Tensor* first = nullptr;
  const auto check = [&](const std::vector<int>& operands, unsigned fixed) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const ops::Tensor& tensor = tensors[static_cast<size_t>(operands[i])];
      const auto wrong = [&](std::string_view wanted) {
        return fmt::format("{} of {} is {}, not {}", tensor.name, ops::name_of(op.kind), name_of(tensor.dtype), wanted);
      };
      if ((fixed >> i & 1) != 0) {
        STRATA_CHECK(tensor.dtype == DType::f32, "{}", wrong("f32"));
      } else if (tensor.dtype == DType::f64) {
        STRATA_CHECK(op.kind == Kind::cross_entropy || op.kind == Kind::fill_zero, "{}", wrong("a compute type"));
      } else if (tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16) {
        if (first == nullptr) first = &tensor;
        STRATA_CHECK(tensor.dtype == first->dtype, "{}", wrong(name_of(first->dtype)));
      }
    }
  };
  check(op.in, f32.in);
  check(op.out, f32.out);
  return first == nullptr ? DType::f32 : first->dtype;
}

void check_operands(const ops::Op& op, size_t least_in, size_t most_in, size_t least_out, size_t most_out) {
  STRATA_CHECK(op.in.size() >= least_in && op.in.size() <= most_in, "{} with {} inputs", ops::name_of(op.kind),
               op.in.size());
  STRATA_CHECK(op.out.size() >= least_out && op.out.size() <= most_out, "{} with {} outputs", ops::name_of(op.kind),
               op.out.size());
}

Positions new_positions(const ops::StepInputs& inputs, int64_t rows, int64_t limit) {
  STRATA_CHECK(inputs.new_tokens >= 0 && inputs.new_tokens <= rows && inputs.position >= 0);
  if (int64_t{inputs.position} + inputs.new_tokens > limit)
    throw run_error("position {} is past the model's {}: generate fewer tokens or shorten the prompt",
                    int64_t{inputs.position} + inputs.new_tokens - 1, limit);
  return {inputs.position, inputs.new_tokens};
}

CpuDevice::CpuDevice(int threads) : threads_(threads) {
  STRATA_CHECK(threads >= 1, "{} threads", threads);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::string CpuDevice::description() const {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS, best = targets & -targets;
  return fmt::format("cpu ({}, {}, {} thread{})", processor_name(), hwy::TargetName(best), threads_,
                     threads_ == 1 ? "" : "s");
}

Address CpuDevice::do_allocate(int64_t bytes) {
  STRATA_CHECK(bytes >= 0);
  // An empty allocation still gets an address of its own.
  return Address(reinterpret_cast<uintptr_t>(
      map_pages(round_up(std::max<int64_t>(bytes, 1), page_bytes()), PROT_READ | PROT_WRITE)));
}

void CpuDevice::do_release(Address address, int64_t bytes) noexcept {
  munmap(pointer<void>(address), static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), page_bytes())));
}

void CpuDevice::upload(Address to, const void* from, int64_t bytes) {
  in_blocks(threads_, bytes, [=](int64_t offset, size_t size) {
    std::memcpy(pointer<char>(to) + offset, static_cast<const char*>(from) + offset, size);
  });
}

void CpuDevice::download(void* to, Address from, int64_t bytes) {
  in_blocks(threads_, bytes, [=](int64_t offset, size_t size) {
    std::memcpy(static_cast<char*>(to) + offset, pointer<const char>(from) + offset, size);
  });
}

void CpuDevice::fill_zero(Address to, int64_t bytes) {
  in_blocks(threads_, bytes, [=](int64_t offset, size_t size) { std::memset(pointer<char>(to) + offset, 0, size); });
}

void CpuDevice::copy(Address to, Address from, int64_t bytes) {
  const bool apart = to.value() + static_cast<uintptr_t>(bytes) <= from.value() ||
                     from.value() + static_cast<uintptr_t>(bytes) <= to.value();
  in_blocks(apart ? threads_ : 1, bytes, [=](int64_t offset, size_t size) {
    std::memmove(pointer<char>(to) + offset, pointer<const char>(from) + offset, size);
  });
}

int64_t CpuDevice::workspace_bytes(const ops::Op& op, Tensors tensors) const {
  switch (op.kind) {
    case ops::Kind::linear:
    case ops::Kind::linear_backward_input:
    case ops::Kind::linear_backward_weight: return linear_workspace(op, tensors, threads_);
    default: return own_workspace(op, tensors, threads_);
  }
}

std::unique_ptr<Kernel> CpuDevice::prepare(const ops::Op& op, Tensors tensors) {
  using ops::Kind;
  check_floats(op, tensors);
  switch (op.kind) {
    case Kind::embedding:
    case Kind::embedding_backward: return make_embedding(op, tensors, threads_);
    case Kind::layer_norm:
    case Kind::rms_norm:
    case Kind::layer_norm_backward:
    case Kind::rms_norm_backward: return make_norm(op, tensors, threads_);
    case Kind::linear:
    case Kind::linear_backward_input:
    case Kind::linear_backward_weight: return make_linear(op, tensors, threads_);
    case Kind::rotary: return make_rotary(op, tensors, threads_);
    case Kind::attention:
    case Kind::cached_attention:
    case Kind::attention_backward: return make_attention(op, tensors, threads_);
    case Kind::gelu:
    case Kind::swiglu:
    case Kind::gelu_backward:
    case Kind::swiglu_backward: return make_activation(op, tensors, threads_);
    case Kind::add:
    case Kind::dropout:
    case Kind::fill_zero: return make_elementwise(op, tensors, threads_);
    case Kind::cross_entropy:
    case Kind::cross_entropy_backward: return make_cross_entropy(op, tensors, threads_);
    case Kind::grad_norm:
    case Kind::clip: return make_grad_norm(op, tensors, threads_);
    case Kind::adamw: return make_adamw(op, tensors, threads_);
  }
  STRATA_CHECK(false, "no kernel for kind {}", static_cast<int>(op.kind));
}

void CpuDevice::launch(Kernel& kernel, Operands operands, const Launch& launch) { kernel.run(operands, launch); }

}  // namespace cpu

std::unique_ptr<Planner> make_planner(int threads) { return make_cpu(threads); }

std::unique_ptr<Device> make_cpu(int threads) { return std::make_unique<cpu::CpuDevice>(threads); }

}  // namespace strata::device
