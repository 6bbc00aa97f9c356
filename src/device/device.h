#pragma once
// A device: memory that only it may touch, and kernels that run operations on it.
//
// Nothing outside src/device dereferences a device address: hosts read and write through upload and download. The
// poison device makes any other access fault.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/types.h"
#include "device/wire.h"
#include "ops/op.h"

namespace strata::device {

/// A place in device memory. Opaque: only arithmetic is meaningful outside the device.
class Address {
 public:
  Address() = default;
  explicit Address(uintptr_t value) : value_(value) {}
  Address operator+(int64_t bytes) const { return Address(value_ + static_cast<uintptr_t>(bytes)); }
  bool operator==(const Address&) const = default;
  explicit operator bool() const { return value_ != 0; }
  uintptr_t value() const { return value_; }

 private:
  uintptr_t value_ = 0;
};

/// What varies between runs of one kernel in a step.
struct Launch {
  int unit = 0;  ///< index of the unit in the model, for names of random streams
  int micro_batch = 0;
};

/// One operation, prepared for its shapes: library primitives built, layouts chosen. Running it allocates nothing.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Operands in the order: in, out, workspace (if any). Absent optional operands are not passed.
  virtual void run(std::span<const Address> operands, const Launch& launch) = 0;
};

/// Owns one allocation; gives it back to its device. Must not outlive the device.
class Device;
class Memory {
 public:
  Memory() = default;
  Memory(Device* device, Address address, int64_t bytes) : device_(device), address_(address), bytes_(bytes) {}
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  Address address() const { return address_; }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  Address address_;
  int64_t bytes_ = 0;
};

/// Alignment of every allocation and of every buffer in an arena, in bytes.
inline constexpr int64_t alignment = 64;

/// The lowering's only question to a device: it needs no memory and starts nothing.
class Planner {
 public:
  virtual ~Planner() = default;
  /// Bytes of workspace the kernel for `op` wants besides its operands; library scratch included.
  virtual int64_t workspace_bytes(const ops::Op& op, std::span<const ops::Tensor> tensors) const = 0;
};

/// Methods may be called from one thread at a time unless a backend says otherwise. Operations run in the order given.
class Device : public Planner {
 public:
  /// Name and what of it is used, for reports: "cpu (AMD EPYC, avx3_zen4, 2 threads)".
  virtual std::string description() const = 0;

  Memory allocate(int64_t bytes);
  /// Bytes now, and at most so far, held by Memory objects.
  int64_t allocated_bytes() const { return allocated_; }
  int64_t peak_bytes() const { return peak_; }

  virtual void upload(Address to, const void* from, int64_t bytes) = 0;
  virtual void download(void* to, Address from, int64_t bytes) = 0;
  virtual void fill_zero(Address to, int64_t bytes) = 0;
  virtual void copy(Address to, Address from, int64_t bytes) = 0;

  /// Builds the kernel for one operation of a block. The tensors' shapes and types are final.
  virtual std::unique_ptr<Kernel> prepare(const ops::Op& op, std::span<const ops::Tensor> tensors) = 0;
  /// Runs it (or queues it, on devices that queue).
  virtual void launch(Kernel& kernel, std::span<const Address> operands, const Launch& launch) = 0;
  /// Returns when all queued work is done.
  virtual void synchronise() = 0;

  // What travels between ranks (wire.h). These four may be called from any thread, also while others run kernels or are
  // in these methods themselves; they work on the calling thread and allocate nothing. Buffers do not overlap unless said.

  /// `x`: n values of `dtype` (f32, bf16, f16; i64 and f64 on raw wires of their own type). `out`: wire.bytes(n) bytes.
  virtual void encode(const Wire& wire, DType dtype, Address x, int64_t n, Address out, const Noise& noise) = 0;
  /// The same of x + error. What the encoding loses is kept for the next time, in `error`, n f32:
  /// error = (x + error) - decoded; 0 where that is not finite, and in all of a block that is not.
  virtual void encode_with_feedback(const Wire& wire, DType dtype, Address x, int64_t n, Address error, Address out,
                                    const Noise& noise) = 0;
  /// `y`: n values of `dtype`, f32, bf16 or f16, or what the raw wire's are.
  virtual void decode(const Wire& wire, Address in, int64_t n, DType dtype, Address y) = 0;
  /// y = [y +] the sum of `sources`, n values each, encoded but for source `own` (-1: none), whose values are `own_dtype`.
  /// Summed in f32 and rounded to `y_dtype` at the end; i64 and f64 (raw wires) in their own type, i64 modulo 2^64.
  ///
  /// Sources are numbered with the first of `widths` (at most 8 above 1, their product the number of sources) fastest.
  /// Those that differ in the first coordinate alone are added in order of it, those sums in order of the second, and so
  /// on; `accumulate` adds the finished total to y. y may be the memory of source `own`, if of its type.
  virtual void reduce(const Wire& wire, std::span<const Address> sources, std::span<const int64_t> widths, int own,
                      DType own_dtype, int64_t n, DType y_dtype, Address y, bool accumulate) = 0;

 protected:
  virtual Address do_allocate(int64_t bytes) = 0;
  virtual void do_release(Address address, int64_t bytes) noexcept = 0;

 private:
  friend class Memory;
  int64_t allocated_ = 0, peak_ = 0;
};

/// The CPU with `threads` threads. Kernels' results do not depend on anything but operands and `threads`.
std::unique_ptr<Device> make_cpu(int threads);

/// The CPU behind memory that faults on any access from outside a kernel, upload, download, fill or copy; fresh memory
/// holds signalling patterns (NaN in every float type), and each allocation ends at an inaccessible page.
std::unique_ptr<Device> make_poison(int threads);

/// Sizes without a device: workspace as the CPU's own kernels ask, library scratch unknown (0).
std::unique_ptr<Planner> make_formula_planner(int threads);

/// What a plan is made with: the CPU itself, which knows its libraries' scratch, or, in a plan-only build, the formulas.
std::unique_ptr<Planner> make_planner(int threads);

}  // namespace strata::device
