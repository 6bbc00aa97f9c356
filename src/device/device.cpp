#include "device/device.h"

#include <algorithm>
#include <utility>

namespace strata::device {

Memory::Memory(Memory&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), address_(other.address_), bytes_(other.bytes_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (device_ == nullptr) return;
  device_->do_release(address_, bytes_);
  device_->allocated_ -= bytes_;
}

Memory Device::allocate(int64_t bytes) {
  const Address address = do_allocate(bytes);
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return Memory(this, address, bytes);
}

}  // namespace strata::device
