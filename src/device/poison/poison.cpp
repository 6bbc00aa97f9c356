// The CPU's kernels over memory that is inaccessible except while the device itself works on it. What it catches: host
// code that dereferences device addresses, kernels that touch memory that is not an operand, that run past an
// allocation's end, or that read what nobody wrote.

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels.h"

namespace strata::device {
namespace {

constexpr unsigned char poison_byte = 0xFF;  // all ones is a NaN in every float type and -1 in every integer type

class PoisonDevice final : public cpu::CpuDevice {
 public:
  using CpuDevice::CpuDevice;

  std::string description() const override { return "poison " + CpuDevice::description(); }

  void upload(Address to, const void* from, int64_t bytes) override {
    const Opened opened(*this, {{to, bytes}});
    CpuDevice::upload(to, from, bytes);
  }
  void download(void* to, Address from, int64_t bytes) override {
    const Opened opened(*this, {{from, bytes}});
    CpuDevice::download(to, from, bytes);
  }
  void fill_zero(Address to, int64_t bytes) override {
    const Opened opened(*this, {{to, bytes}});
    CpuDevice::fill_zero(to, bytes);
  }
  void copy(Address to, Address from, int64_t bytes) override {
    const Opened opened(*this, {{to, bytes}, {from, bytes}});
    CpuDevice::copy(to, from, bytes);
  }
  void launch(Kernel& kernel, std::span<const Address> operands, const Launch& launch) override {
    std::vector<Extent> extents;
    for (const Address operand : operands) extents.push_back({operand, 0});
    const Opened opened(*this, extents);
    CpuDevice::launch(kernel, operands, launch);
    opened.check();
  }

  void encode(const Wire& wire, DType dtype, Address x, int64_t n, Address out, const Noise& noise) override {
    const Opened opened(*this, {{x, n * size_of(dtype)}, {out, wire.bytes(n)}});
    CpuDevice::encode(wire, dtype, x, n, out, noise);
    opened.check();
  }
  void encode_with_feedback(const Wire& wire, DType dtype, Address x, int64_t n, Address error, Address out,
                            const Noise& noise) override {
    const Opened opened(*this, {{x, n * size_of(dtype)}, {error, n * size_of(DType::f32)}, {out, wire.bytes(n)}});
    CpuDevice::encode_with_feedback(wire, dtype, x, n, error, out, noise);
    opened.check();
  }
  void decode(const Wire& wire, Address in, int64_t n, DType dtype, Address y) override {
    const Opened opened(*this, {{in, wire.bytes(n)}, {y, n * size_of(dtype)}});
    CpuDevice::decode(wire, in, n, dtype, y);
    opened.check();
  }
  void reduce(const Wire& wire, std::span<const Address> sources, std::span<const int64_t> widths, int own,
              DType own_dtype, int64_t n, DType y_dtype, Address y, bool accumulate) override {
    std::vector<Extent> extents = {{y, n * size_of(y_dtype)}};
    for (size_t i = 0; i < sources.size(); ++i)
      extents.push_back({sources[i], static_cast<int>(i) == own ? n * size_of(own_dtype) : wire.bytes(n)});
    const Opened opened(*this, extents);
    CpuDevice::reduce(wire, sources, widths, own, own_dtype, n, y_dtype, y, accumulate);
    opened.check();
  }

 protected:
  Address do_allocate(int64_t bytes) override {
    STRATA_CHECK(bytes >= 0);
    Region region;
    region.size = round_up(std::max<int64_t>(bytes, 1), cpu::page_bytes());
    region.base = static_cast<unsigned char*>(cpu::map_pages(region.size + cpu::page_bytes(), PROT_READ | PROT_WRITE));
    region.bytes = bytes;
    region.start = region.base + region.size - round_up(bytes, alignment);
    std::memset(region.base, poison_byte, static_cast<size_t>(region.size));
    protect(region.base + region.size, cpu::page_bytes(), PROT_NONE);
    protect(region.base, region.size, PROT_NONE);
    const Address address(reinterpret_cast<uintptr_t>(region.start));
    const std::lock_guard lock(mutex_);
    regions_[address.value()] = region;
    return address;
  }

  void do_release(Address address, int64_t) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(address.value());
    munmap(found->second.base, static_cast<size_t>(found->second.size + cpu::page_bytes()));
    regions_.erase(found);
  }

 private:
  /// base .. start: slack; start .. start + bytes: the allocation; then under 64 bytes of slack; then the guard page.
  struct Region {
    unsigned char* base = nullptr;
    unsigned char* start = nullptr;
    int64_t size = 0, bytes = 0;
    int users = 0;  ///< how many Opened hold it
  };
  struct Extent {
    Address address;
    int64_t bytes;
  };

  /// Makes the allocations behind some extents accessible while it lives, or longer if another thread uses them too.
  class Opened {
   public:
    Opened(PoisonDevice& device, const std::vector<Extent>& extents) : device_(device) {
      const std::lock_guard lock(device.mutex_);
      for (const Extent& extent : extents) {
        Region& region = device.region_of(extent);
        if (std::find(regions_.begin(), regions_.end(), &region) == regions_.end()) regions_.push_back(&region);
      }
      for (Region* region : regions_)
        if (region->users++ == 0) protect(region->base, region->size, PROT_READ | PROT_WRITE);
    }
    ~Opened() {
      const std::lock_guard lock(device_.mutex_);
      for (Region* region : regions_)
        if (--region->users == 0) protect(region->base, region->size, PROT_NONE);
    }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

    /// The slack around each allocation still holds poison.
    void check() const {
      const auto poisoned = [](const unsigned char* from, const unsigned char* to) {
        return std::all_of(from, to, [](unsigned char c) { return c == poison_byte; });
      };
      for (const Region* region : regions_) {
        STRATA_CHECK(poisoned(region->base, region->start), "a kernel wrote before the start of its operand");
        STRATA_CHECK(poisoned(region->start + region->bytes, region->base + region->size),
                     "a kernel wrote past the end of its operand");
      }
    }

   private:
    PoisonDevice& device_;
    std::vector<Region*> regions_;
  };

  static void protect(unsigned char* base, int64_t bytes, int protection) {
    STRATA_CHECK(mprotect(base, static_cast<size_t>(bytes), protection) == 0, "{}", std::strerror(errno));
  }

  Region& region_of(const Extent& extent) {
    auto next = regions_.upper_bound(extent.address.value());
    STRATA_CHECK(next != regions_.begin(), "an operand is no device memory");
    Region& region = std::prev(next)->second;
    const int64_t offset = cpu::pointer<unsigned char>(extent.address) - region.start;
    STRATA_CHECK(offset <= region.bytes && extent.bytes <= region.bytes - offset,
                 "bytes {} to {} of an allocation of {}", offset, offset + extent.bytes, region.bytes);
    return region;
  }

  std::mutex mutex_;  ///< of the regions: wires are encoded on one thread while another runs kernels
  std::map<uintptr_t, Region> regions_;
};

}  // namespace

std::unique_ptr<Device> make_poison(int threads) { return std::make_unique<PoisonDevice>(threads); }

}  // namespace strata::device
