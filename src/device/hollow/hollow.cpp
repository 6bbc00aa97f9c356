#include "device/hollow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace strata::device {
namespace {

class Nothing final : public Kernel {
 public:
  void run(std::span<const Address>, const Launch&) override {}
};

class Hollow final : public Device {
 public:
  explicit Hollow(int threads) : planner_(make_formula_planner(threads)) {}

  int64_t workspace_bytes(const ops::Op& op, std::span<const ops::Tensor> tensors) const override {
    return planner_->workspace_bytes(op, tensors);
  }
  std::string description() const override { return "hollow (no arithmetic)"; }

  void upload(Address to, const void* from, int64_t bytes) override {
    std::memcpy(pointer(to), from, static_cast<size_t>(bytes));
  }
  void download(void* to, Address from, int64_t bytes) override {
    std::memcpy(to, pointer(from), static_cast<size_t>(bytes));
  }
  void fill_zero(Address to, int64_t bytes) override { std::memset(pointer(to), 0, static_cast<size_t>(bytes)); }
  void copy(Address, Address, int64_t) override {}

  std::unique_ptr<Kernel> prepare(const ops::Op&, std::span<const ops::Tensor>) override {
    return std::make_unique<Nothing>();
  }
  void launch(Kernel&, std::span<const Address>, const Launch&) override {}
  void synchronise() override {}

  void encode(const Wire&, DType, Address, int64_t, Address, const Noise&) override {}
  void encode_with_feedback(const Wire&, DType, Address, int64_t, Address, Address, const Noise&) override {}
  void decode(const Wire&, Address, int64_t, DType, Address) override {}
  void reduce(const Wire&, std::span<const Address>, std::span<const int64_t>, int, DType, int64_t, DType, Address,
              bool) override {}

 protected:
  Address do_allocate(int64_t bytes) override {
    STRATA_CHECK(bytes >= 0);
    void* base =
        mmap(nullptr, size_of_map(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw run_error("no room for {} bytes of addresses", bytes);
    return Address(reinterpret_cast<uintptr_t>(base));
  }
  void do_release(Address address, int64_t bytes) noexcept override { munmap(pointer(address), size_of_map(bytes)); }

 private:
  static void* pointer(Address address) { return reinterpret_cast<void*>(address.value()); }
  static size_t size_of_map(int64_t bytes) { return static_cast<size_t>(std::max<int64_t>(bytes, 1)); }

  std::unique_ptr<Planner> planner_;
};

}  // namespace

std::unique_ptr<Device> make_hollow(int threads) { return std::make_unique<Hollow>(threads); }

}  // namespace strata::device
